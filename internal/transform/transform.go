// Package transform makes of a sample's bytes what a training process gets: it
// decodes, augments and writes the finished tensor where the caller says, under
// torchvision's names and with torchvision's results (docs/SEMANTICS.md says how near).
//
// A list of transforms is compiled once into a Program, which knows the shape and type of
// what comes out, and does not change; each goroutine applies it with a Worker of its
// own, whose buffers are used again for every sample.
//
// Crops, resizes and flips are not carried out one by one. They are gathered in a
// view (view.go), and only when pixels are needed is that part decoded which matters, and
// only those pixels computed which are kept. ToTensor, ConvertImageDtype, Normalize and
// the flips are one pass that writes the tensor.
//
// A transform is one file with its kind, and a line in the table kinds: what arguments it
// takes, what it says about images before the first is seen (follow), and, for those that do
// something of their own, what they do to one (apply).
//
// It starts no goroutine and reads no files; how images are decoded, resized and packed is
// in codec and pixels.
package transform

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// kinds are all transforms, in the order of the documentation.
var kinds = []kind{
	imgDecode,
	resize, centerCrop, randomCrop, randomResizedCrop, randomHorizontalFlip, randomVerticalFlip,
	pad, colorJitter, grayscale,
	toTensor, convertImageDtype, normalize, scaleShift16, reshape, ragged,
}

// A kind is a transform as the table knows it.
type kind struct {
	name   string
	params []param
	build  func(a *arguments) step
}

// A step is a transform with its arguments. It does not change once built.
type step interface {
	// follow turns what is known about what comes in into what is known about
	// what goes out. An error says why the step cannot stand here, or can
	// not work on any sample.
	follow(k *known) error
}

// A mover is a step that changes images. The others only say what tensor
// is made of them.
type mover interface {
	step
	// apply changes the view. An error says why this sample cannot have it.
	apply(v *view, d *draws) error
}

// known is what is known before the first sample.
type known struct {
	stage         stage
	width, height int    // of images; 0: they differ from image to image
	shorter       int    // the shorter edge where that is all that is known; else 0
	varies        string // why width and height are 0, and what to add
	channels      int

	fast, gray, orient bool          // how images are decoded
	most               int64         // the most pixels that they may have
	target             pixels.Target // what they become
	array              *array        // or what array the sample is
	largest            int           // bytes of an image, where sizes differ
}

// stage is how far a sample has come.
type stage uint8

const (
	encoded stage = iota // the bytes of a file
	picture              // an image
	tensor               // a tensor, of an image
	raw                  // an array
	sizes                // an image, each of its own size
)

// fixed says that images now have this size.
func (k *known) fixed(width, height int) {
	k.width, k.height, k.shorter, k.varies = width, height, 0, ""
}

// image says that a step works on images, and refuses it where there are none.
func (k *known) image() error {
	switch k.stage {
	case tensor:
		return errors.New("it works on images and must come before ToTensor")
	case raw:
		return errors.New("it works on images, and Reshape makes arrays")
	case sizes:
		return errors.New("Ragged must come last in the list")
	}
	return nil
}

// Output says what a Program makes of every sample.
type Output struct {
	// Shape is channels, height, width or height, width, channels, as Layout says; or
	// what Reshape says. Of a ragged Program height and width are 0.
	Shape  []int
	Type   pixels.Type
	Layout pixels.Layout
}

// Bytes is the output's size; 0 of a ragged Program, where it differs.
func (o Output) Bytes() int {
	n := o.Type.Size()
	for _, d := range o.Shape {
		n *= d
	}
	return n
}

// maxOutput is the most bytes that a sample may become.
const maxOutput = 1 << 30

// Program is a compiled list of transforms. It does not change, and any number of
// goroutines may use it.
type Program struct {
	names  []string
	steps  []step
	known  known
	packer *pixels.Packer
	packed int // the step that packing is charged to
	bytes  int // of a sample
}

// Compile checks a description, a JSON list of transforms (docs/FORMATS.md),
// and prepares it. Where the list begins with neither ImgDecode nor Reshape,
// ImgDecode() stands before it.
//
// The error tells of every fault: which transform, which argument, its value, and what is
// allowed; or why what comes out would have no fixed size.
func Compile(description []byte) (*Program, error) {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(description, &list); err != nil {
		return nil, fmt.Errorf("transforms: %s: it must be a list of objects: %w",
			abbreviate(string(description)), err)
	}
	p := &Program{known: known{target: pixels.Target{Layout: pixels.HWC}}}
	var faults []error
	for i, entry := range list {
		s, name, errs := build(i, entry)
		faults = append(faults, errs...)
		if i == 0 && name != imgDecode.name && name != reshape.name {
			p.add(imgDecode.name, defaultDecode())
		}
		if s != nil {
			p.add(name, s)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if err := p.follow(len(p.steps) - len(list)); err != nil {
		return nil, err
	}
	if err := p.prepare(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Program) add(name string, s step) {
	p.names = append(p.names, name)
	p.steps = append(p.steps, s)
}

// build makes entry i of a description a step.
func build(i int, entry map[string]json.RawMessage) (step, string, []error) {
	var name string
	if err := json.Unmarshal(entry["name"], &name); err != nil || name == "" {
		return nil, "",
			[]error{fmt.Errorf(`transforms[%d]: "name" must be the name of a transform`, i)}
	}
	k, err := kindOf(name)
	if err != nil {
		return nil, name, []error{fmt.Errorf("transforms[%d]: %w", i, err)}
	}
	a := &arguments{place: place(i, name), params: k.params, given: entry}
	delete(entry, "name")
	a.unknown()
	s := k.build(a)
	return s, name, a.faults
}

func place(i int, name string) string { return fmt.Sprintf("transforms[%d] %s", i, name) }

// follow asks the steps, in order, what comes out; implied is how many of
// them the description does not have.
func (p *Program) follow(implied int) error {
	k := &p.known
	for i, s := range p.steps {
		if err := s.follow(k); err != nil {
			return fmt.Errorf("%s: %w", place(i-implied, p.names[i]), err)
		}
		if k.stage != raw && k.width > 0 && k.output().Bytes() > maxOutput {
			return fmt.Errorf("%s: %d x %d pixels are too many; the output of a sample is limited to %d MiB",
				place(i-implied, p.names[i]), k.width, k.height, maxOutput>>20)
		}
	}
	switch {
	case k.stage == encoded:
		return errors.New("transforms: the list is empty; it needs a transform that gives images " +
			"a fixed size, such as RandomResizedCrop(224)")
	case k.stage != raw && k.stage != sizes && k.width == 0:
		return fmt.Errorf("transforms: the output has no fixed size: %s", k.varies)
	}
	return nil
}

// prepare makes what workers share.
func (p *Program) prepare() error {
	p.bytes = p.Output().Bytes()
	if p.known.stage == raw {
		return p.known.array.check()
	}
	p.packed = len(p.steps) - 1
	if i := slices.Index(p.names, toTensor.name); i >= 0 {
		p.packed = i
	}
	var err error
	if p.packer, err = pixels.NewPacker(p.known.target); err != nil {
		return fmt.Errorf("transforms: %w", err)
	}
	return nil
}

// output is what comes out if nothing else follows.
func (k *known) output() Output {
	o := Output{Type: k.target.Type, Layout: k.target.Layout}
	switch {
	case k.stage == sizes:
		o.Shape = []int{0, 0, k.channels}
	case k.stage == raw:
		o.Shape, o.Type, o.Layout = k.array.shape[:], k.array.to(), pixels.HWC
	case o.Layout == pixels.CHW:
		o.Shape = []int{k.channels, k.height, k.width}
	default:
		o.Shape = []int{k.height, k.width, k.channels}
	}
	return o
}

// Output says what every sample becomes.
func (p *Program) Output() Output {
	o := p.known.output()
	o.Shape = slices.Clone(o.Shape)
	return o
}

// Arrays reports whether samples are arrays and not images.
func (p *Program) Arrays() bool { return p.known.stage == raw }

// Names are the transforms' names, an implied ImgDecode among them. Worker.Times and
// Drawn count as they do.
func (p *Program) Names() []string { return slices.Clone(p.names) }
