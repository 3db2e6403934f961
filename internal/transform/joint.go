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

// CompileJoint compiles a list of transforms that is applied to several fields of a sample jointly:
// each random parameter is drawn once, for the first of them, and moves all. There is one result of
// each. pil samples masks as PIL's nearest does; else they are sampled as torch's.
//
// Images need not become of one size: then each result has a size of its own (Output.Sized).
func CompileJoint(description []byte, list []targets.Input, pil bool) (*Program, error) {
	in, err := targets.InputsOf(list, pil)
	if err != nil {
		return nil, err
	}
	return compile(description, in)
}

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
	case kind.joint == ofImages && k.joint.Image < 0:
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
	for i, input := range k.joint.List {
		o := Output{Input: i, Layout: pixels.HWC}
		switch {
		case i == k.joint.Image:
			o = k.output()
			o.Input = i
			o.Sized = k.width == 0
		case input.IsMask():
			o.Shape, o.Type = []int{1, k.height, k.width}, input.Type
			if k.joint.Typed {
				o.Type = k.joint.Mask
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
	v.targets, v.hollow = &w.set, in.Image < 0
	width, height := v.size()
	w.set.PIL = in.PIL
	w.set.Begin(width, height)
	for i, input := range in.List {
		switch {
		case input.IsMask():
			h, err := w.decoder.Header(w.srcs[i])
			if err != nil {
				return &targets.InputError{Input: i, Err: err}
			}
			if h.Width != width || h.Height != height {
				return &targets.InputError{Input: i, Err: fmt.Errorf("the mask has %d x %d pixels "+
					"(width x height), and its image %d x %d: one crop cannot fit both; correct the file",
					h.Width, h.Height, width, height)}
			}
		case i == in.Boxes:
			if err := w.boxes.Parse(w.srcs[i], width, height); err != nil {
				return &targets.InputError{Input: i, Err: err}
			}
			w.set.Boxes = &w.boxes
		}
	}
	return nil
}

// joint is ApplyTo for several fields.
func (w *Worker) joint(alloc Alloc, srcs [][]byte, key Key) error {
	first := w.program.known.joint.First()
	w.srcs = srcs
	err := w.image(alloc, srcs[first], key)
	w.srcs = nil
	if e := (*targets.InputError)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	if e := (*codec.Error)(nil); errors.As(err, &e) {
		w.step = 0
	}
	return &targets.InputError{Input: first, Err: fmt.Errorf("%s: %w", w.program.names[w.step], err)}
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
		case i == w.program.known.joint.Image:
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
		return &targets.InputError{Input: i, Err: err}
	}
	if want := targets.Depth(w.program.known.joint.List[i].Type); depth != want {
		return &targets.InputError{Input: i, Err: fmt.Errorf("the mask has %d bits, and the first "+
			"one of the dataset %d: save all in one form", depth, want)}
	}
	w.set.Mask(dst, &w.raw, origin, t, 1<<depth-1)
	return nil
}

// targeting returns the transforms of masks and boxes.
func targeting() (list []kind) {
	for _, e := range targets.Entries {
		k := kind{name: e.Name, help: e.Help, params: e.Params, joint: ofAll}
		k.build = func(a *arguments) step { return targeted{e.Build(&a.Arguments)} }
		list = append(list, k)
	}
	return list
}

// A targeted step changes only masks or boxes.
type targeted struct{ step targets.Step }

func (s targeted) follow(k *known) error {
	if k.joint == nil {
		return errors.New("it is for masks and boxes: say which fields are, with kinds=")
	}
	if s.step.Types != nil {
		return s.step.Types(k.joint)
	}
	return nil
}

func (s targeted) apply(v *view, _ *draws) error {
	if s.step.Change != nil {
		s.step.Change(v.targets)
	}
	return nil
}
