package transform

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/targets"
)

// Input is one of the fields of a sample that a list of transforms is applied to jointly.
type Input struct {
	// Kind is "image", of which there is at most one; "mask", of its size, whose pixels are numbers;
	// or "boxes" around objects of the image, as JSON, of which there is at most one.
	Kind string
	// Type is that of a mask as it is decoded: uint8, of one byte; bool, of a PNG of one bit; or
	// uint16 or int32, of 16 bits. A sample with another is an error.
	Type pixels.Type
}

// inputs is what is known of the fields of a joint Program.
type inputs struct {
	list  []Input
	image int // the number of the image, or -1
	boxes int // the same of boxes
	mask  pixels.Type
	typed bool // mask is the type of all masks in the end
	pil   bool
}

// CompileJoint compiles a list of transforms that is applied to several fields of a sample jointly:
// each random parameter is drawn once, for the first of them, and moves all. There is one result of
// each. pil samples masks as PIL's nearest does; else they are sampled as torch's.
//
// Images need not become of one size: then each result has a size of its own (Output.Sized).
func CompileJoint(description []byte, list []Input, pil bool) (*Program, error) {
	in := &inputs{list: list, image: -1, boxes: -1, pil: pil}
	for i, input := range list {
		at := -1
		switch input.Kind {
		case "image":
			at, in.image = in.image, i
		case "boxes":
			at, in.boxes = in.boxes, i
		case "mask":
		default:
			return nil, fmt.Errorf("kinds: %q is no kind; allowed: image, mask, boxes", input.Kind)
		}
		if at >= 0 {
			return nil, fmt.Errorf("kinds: two fields are of the kind %s; one may be", input.Kind)
		}
	}
	if in.image < 0 && !slices.ContainsFunc(list, Input.isMask) {
		return nil, errors.New("kinds: there is neither an image nor a mask")
	}
	return compile(description, in)
}

func (i Input) isMask() bool { return i.Kind == "mask" }

// joins returns an error if a step cannot be applied to several fields.
func (k *known) joins(name string) error {
	if k.joint == nil {
		return nil
	}
	kind, err := kindOf(name)
	switch {
	case err != nil:
		return err
	case kind.joint == refused:
		return errors.New("it is for images alone, and the list is for several kinds of fields")
	case kind.joint == ofImages && k.joint.image < 0:
		return errors.New("it is for images, and none of the fields is one")
	}
	return nil
}

// Varies reports whether results have sizes of their own.
func (p *Program) Varies() bool { return p.varies }

// expected is Expected for a joint Program whose results vary.
func (p *Program) expected(file float64) (sum float64) {
	for _, o := range p.outputs {
		switch {
		case o.Boxes:
			sum += targets.Typical
		case o.Sized:
			sum += sizedHead + encodedRatio*file/3*float64(max(o.Shape[0], o.Shape[2])*o.Type.Size())
		default:
			sum += float64(o.Bytes())
		}
	}
	return sum
}

// ofInputs returns the Outputs of a joint Program.
func (k *known) ofInputs() (list []Output) {
	for i, input := range k.joint.list {
		o := Output{Input: i, Layout: pixels.HWC}
		switch {
		case i == k.joint.image:
			o = k.output()
			o.Input = i
			o.Sized = k.width == 0
		case input.isMask():
			o.Shape, o.Type = []int{1, k.height, k.width}, input.Type
			if k.joint.typed {
				o.Type = k.joint.mask
			}
			o.Sized = k.width == 0
		default:
			o.Boxes = true
		}
		list = append(list, o)
	}
	return list
}

// sizedHead is the size in bytes of what precedes a result with a size of its own: its height and
// its width in pixels, u32 each.
const sizedHead = 8

// beginTargets starts the targets of a sample: it checks the masks' sizes and reads the boxes.
func (w *Worker) beginTargets(v *view) error {
	in := w.program.known.joint
	if in == nil {
		return nil
	}
	v.targets, v.hollow = &w.set, in.image < 0
	width, height := v.size()
	w.set.PIL = in.pil
	w.set.Begin(width, height)
	for i, input := range in.list {
		switch {
		case input.isMask():
			h, err := w.decoder.Header(w.srcs[i])
			if err != nil {
				return &InputError{i, err}
			}
			if h.Width != width || h.Height != height {
				return &InputError{i, fmt.Errorf("the mask has %d x %d pixels (width x height), and its "+
					"image %d x %d: one crop cannot fit both; correct the file", h.Width, h.Height, width,
					height)}
			}
		case i == in.boxes:
			if err := w.boxes.Parse(w.srcs[i], width, height); err != nil {
				return &InputError{i, err}
			}
			w.set.Boxes = &w.boxes
		}
	}
	return nil
}

// InputError is an error of one of several fields, by its number.
type InputError struct {
	Input int
	Err   error
}

// OfInput returns the number of the field.
func (e *InputError) OfInput() int { return e.Input }

func (e *InputError) Error() string { return e.Err.Error() }

func (e *InputError) Unwrap() error { return e.Err }

// joint is ApplyTo for several fields.
func (w *Worker) joint(alloc Alloc, srcs [][]byte, key Key) error {
	in := w.program.known.joint
	first := in.image
	if first < 0 {
		first = slices.IndexFunc(in.list, Input.isMask)
	}
	w.srcs = srcs
	err := w.image(alloc, srcs[first], key)
	w.srcs = nil
	if e := (*InputError)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	if e := (*codec.Error)(nil); errors.As(err, &e) {
		w.step = 0
	}
	return &InputError{first, fmt.Errorf("%s: %w", w.program.names[w.step], err)}
}

// results writes the results of a joint Program, once all steps are applied.
func (w *Worker) results(alloc Alloc) error {
	width, height := w.set.Size()
	for i, o := range w.program.outputs {
		if o.Boxes {
			dst, err := alloc(i, w.boxes.Bytes())
			if err != nil {
				return err
			}
			w.boxes.Encode(dst, width, height)
			continue
		}
		dst, err := w.sized(alloc, i, o, width, height)
		switch {
		case err != nil:
			return err
		case i == w.program.known.joint.image:
			err = w.pack(dst)
		default:
			err = w.mask(dst, i, o.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sized gets memory for the elements of a result, whose size it writes before them where results
// have sizes of their own.
func (w *Worker) sized(alloc Alloc, i int, o Output, width, height int) ([]byte, error) {
	if !o.Sized {
		return alloc(i, o.Bytes())
	}
	o.Shape = slices.Clone(o.Shape)
	at := slices.Index(o.Shape, 0)
	o.Shape[at], o.Shape[at+1] = height, width
	if o.Bytes() > maxOutput {
		return nil, fmt.Errorf("%d x %d pixels are too many; the output of a sample is limited to "+
			"%d MiB", width, height, maxOutput>>20)
	}
	dst, err := alloc(i, sizedHead+o.Bytes())
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(dst, uint32(height))
	binary.LittleEndian.PutUint32(dst[4:], uint32(width))
	return dst[sizedHead:], nil
}

// mask decodes a mask and writes it as the set says.
func (w *Worker) mask(dst []byte, i int, t pixels.Type) error {
	need := w.set.Need()
	w.lap(w.step)
	beside := w.taken + w.resized + w.spared[0] + w.spared[1]
	if w.memory > 0 {
		w.decoder.Memory = max(w.memory-beside, 1)
	}
	origin, depth, err := w.decoder.DecodeRaw(&w.raw, w.srcs[i], need)
	w.lap(0)
	if err != nil {
		if e := (*MemoryError)(nil); errors.As(err, &e) {
			e.Need += beside
		}
		return &InputError{i, err}
	}
	if want := targets.Depth(w.program.known.joint.list[i].Type); depth != want {
		return &InputError{i, fmt.Errorf("the mask has %d bits, and the first one of the dataset %d: "+
			"save all in one form", depth, want)}
	}
	w.set.Mask(dst, &w.raw, origin, t, 1<<depth-1)
	return nil
}

// targeting returns the transforms of boxes.
func targeting() (list []kind) {
	for _, e := range targets.Entries {
		k := kind{name: e.Name, params: e.Params, joint: ofAll}
		k.build = func(a *arguments) step { return targeted{change: e.Build(&a.Arguments)} }
		list = append(list, k)
	}
	return list
}

// A targeted step changes only masks or boxes.
type targeted struct {
	change func(s *targets.Set)
	types  func(in *inputs) error
}

func (s targeted) follow(k *known) error {
	if k.joint == nil {
		return errors.New("it is for masks and boxes: say which fields are, with kinds=")
	}
	if s.types != nil {
		return s.types(k.joint)
	}
	return nil
}

func (s targeted) apply(v *view, _ *draws) error {
	if s.change != nil {
		s.change(v.targets)
	}
	return nil
}

// ConvertMaskDtype converts masks to another type, as v2's ToDtype.
//
//	dtype  uint8, int32, int64 or float32
var convertMaskDtype = kind{
	name:   "ConvertMaskDtype",
	help:   "the type of masks, of v2's ToDtype",
	params: []param{{"dtype", `"int64"`}},
	joint:  ofAll,
	build: func(a *arguments) step {
		t := a.Types("dtype", pixels.Uint8, pixels.Int32, pixels.Int64, pixels.Float32)
		return targeted{types: func(in *inputs) error {
			for _, input := range in.list {
				if input.isMask() && input.Type != pixels.Bool && input.Type.Size() > t.Size() {
					return fmt.Errorf("masks of type %v do not fit into %v", input.Type, t)
				}
			}
			in.mask, in.typed = t, true
			return nil
		}}
	},
}
