// Package transform converts a sample's bytes into the tensor that a training process gets: it
// decodes, augments and writes the tensor to the caller's memory. Transforms have torchvision's
// names and results (docs/SEMANTICS.md says how closely they match).
//
// A list of transforms is compiled once into a Program, which is immutable and has the shape and
// type of the output. Each goroutine applies it with its own Worker, which reuses its buffers for
// every sample.
//
// Crops, resizes and flips are not executed one by one. They are collected in a view (view.go);
// when pixels are needed, only the relevant part is decoded and only the pixels that are kept are
// computed. ToTensor, ConvertImageDtype, Normalize and the flips are one pass that writes the
// tensor.
//
// A transform is one file with its kind, or one of a file with those like it, and a line in the
// table kinds. A kind defines the
// arguments, the effect on what is known of images before the first one is read (follow) and, if
// the transform changes pixels or the view, the effect on one image (apply).
//
// The package starts no goroutines and reads no files. Packages codec and pixels decode, resize and
// pack images; package random has the random numbers, package policy what augmentation policies
// draw, and package describe reads descriptions.
package transform

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/arrays"
	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/random"
	"github.com/hdmlp/hdmlp/internal/transform/targets"
)

// A step is a transform with its arguments. It is immutable.
type step interface {
	// follow updates k from what is known about the step's input to what is known about its output.
	// It returns an error if the step cannot be at this position, or cannot work on any sample.
	follow(k *known) error
}

// A mover is a step that changes images. The other steps only determine the tensor.
type mover interface {
	step
	// apply changes the view. It returns an error if the step cannot be applied to this sample.
	apply(v *view, d *draws) error
}

// Key identifies the random numbers of one occurrence of a sample in an epoch.
type Key = random.Key

// draws are the random numbers of one step for a sample.
type draws = random.Draws

// round rounds as Python does: halves to even.
func round(x float64) int { return int(math.RoundToEven(x)) }

// An eraser is a mover that records patches of the tensor.
type eraser interface {
	mover
	erases()
}

// known is what is known about samples at a position in the list, before the first sample is read.
type known struct {
	stage         stage
	width, height int    // of images; 0 if they differ between images
	shorter       int    // the shorter edge if only that is known, else 0
	varies        string // why width and height are 0, and what to add to the list
	channels      int

	fast, gray, orient bool            // how images are decoded
	leave              bool            // those that only others decode are left to the receiver
	unconverted        bool            // those which PIL opens in another mode as well
	most               int64           // the most pixels that they may have
	target             pixels.Target   // the tensor that images become
	channelsLast       bool            // it is channels, height, width, and lies in memory as HWC
	array              *arrays.Array   // of samples that are arrays, else nil
	stored             *arrays.Image   // of images that are not encoded, else nil
	erased             []pixels.Target // what the tensor is where parts of it are erased
	largest            int             // most bytes of a ragged image
	decodes            bool            // no ragged image is delivered encoded
	views              []known         // of each view at its end
	joint              *targets.Inputs // of a list for several fields; nil: it is for one
	within             bool            // the list is that of a view
}

// stage is the form of a sample at a position in the list.
type stage uint8

const (
	encoded stage = iota // the bytes of a file
	picture              // an image
	tensor               // a tensor, of an image
	raw                  // an array
	sizes                // an image, each of its own size
	several              // several views of an image
)

// fixed sets the size that all images have from here on.
func (k *known) fixed(width, height int) {
	k.width, k.height = width, height
	k.shorter, k.varies = 0, ""
}

// leaves reports whether images that the receiver may make differently are left to it.
func (k *known) leaves() bool { return k.leave || k.stage == sizes && !k.decodes }

// mode returns the mode of a decoded image.
func (k *known) mode() codec.Mode {
	if k.gray {
		return codec.L
	}
	return codec.RGB
}

// image returns an error if the input of a step that works on images is not an image.
func (k *known) image() error {
	switch k.stage {
	case tensor:
		return errors.New("it works on images and must come before ToTensor")
	case raw:
		return errors.New("it works on images, and Reshape makes arrays")
	case sizes:
		return errors.New("Ragged must come last in the list")
	case several:
		return errors.New("Views must come last in the list")
	}
	return nil
}

// Output describes the output of a Program.
type Output struct {
	// Shape is channels, height, width or height, width, channels, depending on Layout; for arrays
	// it is that of Reshape. For a ragged Program height and width are 0.
	Shape  []int
	Type   pixels.Type
	Layout pixels.Layout
	// ChannelsLast means that Shape is channels, height, width, though Layout is HWC.
	ChannelsLast bool
	Input        int  // the number of the field that it is made of, of a joint Program
	Boxes        bool // it is encoded boxes (package targets) and has no shape
	// Sized means that height and width, which are 0 in Shape, are those of each sample. They
	// precede the elements.
	Sized bool
}

// Bytes returns the output's size in bytes; 0 where sizes differ.
func (o Output) Bytes() int {
	n := o.Type.Size()
	if o.Boxes {
		return 0
	}
	for _, d := range o.Shape {
		n *= d
	}
	return n
}

// maxOutput is the largest output of a sample, in bytes.
const maxOutput = 1 << 30

// Program is a compiled list of transforms. It is immutable and safe for concurrent use.
type Program struct {
	names []string
	steps []step
	// positions are those of the steps in the list from which the description was made.
	positions []int
	known     known
	packer    *pixels.Packer
	erasers   []*pixels.Eraser // of steps that erase parts of the tensor; nil for others
	packed    int              // the step that packing is charged to
	bytes     int              // of a sample, in all its views
	outputs   []Output         // of a joint Program
	varies    bool             // results have sizes of their own
	views     []chain
	prefix    *Prefix // nil: there is none
}

// Compile compiles a description, which is a JSON list of transforms (docs/FORMATS.md). If the list
// begins with none of ImgDecode, Pixels and Reshape, ImgDecode is added at its beginning, with the
// arguments that the first entry has as "decode". An entry may have a "position" in the list of
// which the description is a part, or in which the entries have another order: its random numbers
// follow from that. By default it is the entry's index, where ImgDecode and Pixels do not count.
//
// The error lists all faults: the transform, the argument, its value and what is allowed; or it
// states why the output would have no fixed size.
func Compile(description []byte) (*Program, error) { return compile(description, nil) }

// compile is Compile, or for a list that is for several fields CompileJoint.
func compile(description []byte, joint *targets.Inputs) (*Program, error) {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(description, &list); err != nil {
		return nil, fmt.Errorf("transforms: %s: it must be a list of objects: %w",
			describe.Abbreviate(string(description)), err)
	}
	p := &Program{known: known{target: pixels.Target{Layout: pixels.HWC}, joint: joint}}
	var faults []error
	decodes := 0 // entries that decode
	for i, entry := range list {
		if i == 0 {
			s, errs := impliedDecode(entry)
			faults = append(faults, errs...)
			if s != nil {
				p.add(imgDecode.name, s, 0)
			}
		}
		position, err := describe.Position(i, i-decodes, entry)
		if err != nil {
			faults = append(faults, err)
		}
		s, name, errs := build(i, entry)
		if i == 0 && (name == imgDecode.name || name == pixelsOf.name) {
			decodes = 1
		}
		faults = append(faults, errs...)
		if s != nil {
			p.add(name, s, position)
			if err := p.known.joins(name); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", place(i, name), err))
			}
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
	p.prefix = prefixOf(p)
	return p, nil
}

// impliedDecode returns the ImgDecode that precedes the first entry of a description, and its
// faults; nil: there is none. It deletes its arguments from the entry.
func impliedDecode(first map[string]json.RawMessage) (step, []error) {
	var name string
	_ = json.Unmarshal(first["name"], &name) // build reports the error
	if name == imgDecode.name || name == pixelsOf.name || name == reshape.name {
		return nil, nil
	}
	given := first["decode"]
	delete(first, "decode")
	if given == nil {
		return defaultDecode(), nil
	}
	entry := make(map[string]json.RawMessage)
	if err := json.Unmarshal(given, &entry); err != nil {
		return nil, []error{fmt.Errorf(`transforms[0]: "decode" must be an object: %w`, err)}
	}
	a := imgDecode.arguments("transforms[0] decode", entry)
	a.Unknown()
	s := imgDecode.build(a)
	return s, a.Faults
}

func (p *Program) add(name string, s step, position int) {
	p.names = append(p.names, name)
	p.steps = append(p.steps, s)
	p.positions = append(p.positions, position)
}

// build converts entry i of a description to a step. It returns the step, its name and the faults.
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
	a := k.arguments(place(i, name), entry)
	a.nested = build
	delete(entry, "name")
	a.Unknown()
	s := k.build(a)
	return s, name, a.Faults
}

func place(i int, name string) string { return fmt.Sprintf("transforms[%d] %s", i, name) }

// follow computes what is known about the output, by the follow methods of the steps in order.
// implied is the number of leading steps that the description does not have.
func (p *Program) follow(implied int) error {
	k := &p.known
	for i, s := range p.steps {
		if err := k.pass(s); err != nil {
			return fmt.Errorf("%s: %w", place(i-implied, p.names[i]), err)
		}
	}
	if err := k.complete(); err != nil {
		return fmt.Errorf("transforms: %w", err)
	}
	return nil
}

// pass updates k by a step, and checks the size of the step's output.
func (k *known) pass(s step) error {
	if err := s.follow(k); err != nil {
		return err
	}
	if (k.stage == picture || k.stage == tensor || k.stage == sizes) && k.width > 0 &&
		k.output().Bytes() > maxOutput {
		return fmt.Errorf("%d x %d pixels are too many; the output of a sample is limited to %d MiB",
			k.width, k.height, maxOutput>>20)
	}
	return nil
}

// complete returns an error if a list cannot end where k is known.
func (k *known) complete() error {
	switch {
	case k.stage == encoded:
		return errors.New("the list is empty; it needs a transform that gives images " +
			"a fixed size, such as RandomResizedCrop(224)")
	case k.joint != nil && k.joint.Image >= 0 && k.stage != tensor:
		return errors.New("the list is for several fields, and needs ToTensor for its images")
	case (k.stage == picture || k.stage == tensor) && k.width == 0 && k.joint == nil:
		return fmt.Errorf("the output has no fixed size: %s", k.varies)
	}
	return nil
}

// prepare initializes what workers share.
func (p *Program) prepare() error {
	if p.known.joint != nil {
		p.outputs = p.known.ofInputs()
	}
	for _, o := range p.Outputs() {
		p.bytes += o.Bytes()
		p.varies = p.varies || o.Bytes() == 0
	}
	switch p.known.stage {
	case raw:
		return p.known.array.Check()
	case several:
		return p.prepareViews()
	}
	p.packed = len(p.steps) - 1
	if i := slices.Index(p.names, toTensor.name); i >= 0 {
		p.packed = i
	}
	var err error
	if p.packer, err = pixels.NewPacker(p.known.target); err != nil {
		return fmt.Errorf("transforms: %w", err)
	}
	p.erasers = p.known.erasers(p.steps)
	return nil
}

// erasers returns what erases parts of the tensor, for each of the steps; nil for others.
func (k *known) erasers(steps []step) []*pixels.Eraser {
	list := make([]*pixels.Eraser, len(steps))
	erased := k.erased
	for i, s := range steps {
		if _, erases := s.(eraser); erases {
			list[i] = pixels.NewEraser(erased[0], k.target)
			erased = erased[1:]
		}
	}
	return list
}

// output returns the Output if no other step follows.
func (k *known) output() Output {
	o := Output{Type: k.target.Type, Layout: k.target.Layout, ChannelsLast: k.channelsLast}
	switch {
	case k.stage == sizes:
		o.Shape = []int{0, 0, k.channels}
	case k.stage == raw:
		o.Shape = k.array.Shape[:]
		o.Type = k.array.Type()
		o.Layout = pixels.HWC
	case o.Layout == pixels.CHW, o.ChannelsLast:
		o.Shape = []int{k.channels, k.height, k.width}
	default:
		o.Shape = []int{k.height, k.width, k.channels}
	}
	return o
}

// Outputs returns the shape and type of every sample's outputs: one, or one of each view.
func (p *Program) Outputs() []Output {
	if p.known.joint != nil {
		return slices.Clone(p.outputs)
	}
	if !p.Views() {
		return []Output{p.known.output().clone()}
	}
	var list []Output
	for i := range p.known.views {
		list = append(list, p.known.views[i].output().clone())
	}
	return list
}

// Output returns the first of Outputs, which for most programs is the only one.
func (p *Program) Output() Output { return p.Outputs()[0] }

func (o Output) clone() Output {
	o.Shape = slices.Clone(o.Shape)
	return o
}

// Arrays reports whether samples are arrays and not images.
func (p *Program) Arrays() bool { return p.known.stage == raw }

// Names returns the names of the steps, including an implied ImgDecode; after them those within
// views, where equal ones are one. Worker.Times and Drawn use the same indices.
func (p *Program) Names() []string { return slices.Clone(p.names) }
