package transform

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
	"github.com/hdmlp/hdmlp/internal/transform/left"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/targets"
)

// Worker applies a Program to samples, one at a time. It is not safe for concurrent use, reuses its
// memory for every sample, and must be closed.
type Worker struct {
	program  *Program
	decoder  codec.Decoder
	resizer  pixels.Resizer
	editor   pixels.Editor
	buffers  [2]pixels.Image
	base     pixels.Image // of which views are made
	extender pixels.Extender
	view     view
	// Of a joint Program: the fields, what moves with the image, and a mask that was decoded.
	srcs  [][]byte
	only  [1][]byte // the field of a Program that is for one
	set   targets.Set
	boxes targets.Boxes
	raw   pixels.Image
	// metadata is what the current sample says beside its pixels; of large ones nothing is kept.
	metadata []byte
	draws    draws
	// The kernels of a blur, and what the current sample's tensor gets in its place.
	across, down []float32
	patches      []patch
	noise        []float32

	step  int    // the current step, among Program.Names
	index int    // the same, in its list
	known *known // of the result that is made
	times []time.Duration
	last  time.Time // until when times have been charged

	whole   bool // damage anywhere in a sample is an error
	form    forms.Kind
	memory  int64 // most bytes that a sample may use at a time; 0: no limit
	taken   int64 // bytes that the current sample uses, without the following
	resized int64 // by resizing
	spared  [2]int64
	kept    int64 // most bytes to keep between samples, if memory is limited

	recording bool
	drawn     []Drawn
}

// Worker returns a new worker.
func (p *Program) Worker() *Worker {
	return &Worker{
		program: p,
		decoder: codec.Decoder{MaxPixels: p.known.most},
		times:   make([]time.Duration, len(p.names)),
	}
}

// Close frees the decoder's C memory.
func (w *Worker) Close() { w.decoder.Close() }

// Memory returns how many bytes the worker keeps between samples, without the decoder's: twice the
// pixels of the largest sample so far, at most 128 MiB. While it transforms a sample it may use
// more, which it frees afterwards.
func (w *Worker) Memory() int {
	return cap(w.buffers[0].Pix) + cap(w.buffers[1].Pix) + cap(w.base.Pix) + cap(w.raw.Pix)
}

// MemoryError reports that a sample needs more memory than the worker may use, and how much. After
// a retry with that much, the sample may turn out to need still more.
type MemoryError = codec.MemoryError

// Limit sets how many bytes a sample may use at a time, in addition to its own and the result:
// Apply returns a MemoryError for a sample that needs more. most is the largest value that memory
// could have, and kept is how many bytes the worker may keep between samples. A memory of 0 means
// no limit.
func (w *Worker) Limit(memory, most, kept int64) {
	w.memory, w.kept = memory, kept
	w.decoder.MostMemory = most
}

// Whole sets whether damage anywhere in a sample is an error, also where the result does not depend
// on it (codec.Want).
func (w *Worker) Whole(on bool) { w.whole = on }

// Form sets the kind that the input comes in that TakesForm; others come as read. Results are the
// same, bit for bit. The caller has checked the form's digest.
func (w *Worker) Form(kind forms.Kind) { w.form = kind }

// TakesForm reports whether a Worker takes forms of an input, by its position: of an image. Where
// one would be delivered encoded and the file does not lie in the form, Apply returns an error that
// says why, and needs the file.
func (p *Program) TakesForm(input int) bool {
	k := &p.known
	return (k.joint == nil || k.joint.Image == input) && k.stored == nil && k.stage != raw
}

// BesideImage reports whether an input of a joint Program is a mask or boxes.
func (p *Program) BesideImage(input int) bool {
	return p.known.joint != nil && p.known.joint.Image != input
}

// header describes the image src.
func (w *Worker) header(src []byte) (codec.Header, error) {
	if w.form != forms.AsRead {
		return forms.Header(&w.decoder, src)
	}
	return w.decoder.Header(src)
}

// Drop frees all memory that the worker keeps between samples and returns it to the operating
// system.
func (w *Worker) Drop() {
	w.decoder.Drop()
	w.buffers, w.base = [2]pixels.Image{}, pixels.Image{}
	w.raw = pixels.Image{}
	w.resizer = pixels.Resizer{}
	w.editor = pixels.Editor{}
	debug.FreeOSMemory()
}

// take returns a MemoryError if the current sample may not use the memory recorded for it.
func (w *Worker) take() error {
	if need := w.taken + w.resized + w.spared[0] + w.spared[1]; w.memory > 0 && need >= w.memory {
		return &MemoryError{Need: need + 1}
	}
	return nil
}

// spare records that the sample needs an image of that size in the buffer.
func (w *Worker) spare(buffer, width, height, channels int) error {
	w.spared[buffer] = max(w.spared[buffer], int64(width)*int64(height)*int64(channels))
	return w.take()
}

// Times returns how long each transform has taken so far, in the order of Program.Names. Decoding
// is charged to ImgDecode and resizing to the transform that requested it, whenever they were
// executed; fused work (types, normalizing, flips, layout) is charged to ToTensor or, without one,
// to the last transform. The caller must not modify the slice.
func (w *Worker) Times() []time.Duration { return w.times }

// lap charges the time since the last lap to a step.
func (w *Worker) lap(step int) {
	now := time.Now()
	w.times[step] += now.Sub(w.last)
	w.last = now
}

// Param is a parameter that a transform drew or decided.
type Param struct {
	Name  string
	Value float64
}

// Drawn holds the parameters that one transform drew or decided for a sample.
type Drawn struct {
	Step   int // index in Program.Names
	Params []Param
}

// Record turns recording for Drawn on or off. Recording allocates.
func (w *Worker) Record(on bool) { w.recording = on }

// Drawn returns what the transforms drew for the last sample. It is valid until the next sample.
func (w *Worker) Drawn() []Drawn { return w.drawn }

// Apply transforms the sample src and writes the result to dst, which must have the bytes of all
// Outputs, one after another. The result is a pure function of src and key. On error the contents
// of dst are unspecified.
//
// The error names the transform and wraps codec's error if the image cannot be decoded, or a
// MemoryError. The caller adds sample and path. Retrying is useless: the same sample fails the same
// way again.
func (w *Worker) Apply(dst, src []byte, key Key) error {
	p := w.program
	if want := p.bytes; len(dst) != want || p.Varies() || p.known.joint != nil {
		return fmt.Errorf(
			"transform: the destination has %d bytes; the sample needs %d", len(dst), want)
	}
	used := 0
	w.only[0] = src
	return w.ApplyTo(func(_, size int) ([]byte, error) {
		used += size
		return dst[used-size : used], nil
	}, w.only[:], key)
}

// Alloc returns size bytes of memory for a view of a sample, by its number, or for the only result;
// or an error if there is none.
type Alloc func(view, size int) ([]byte, error)

// ApplyTo is like Apply, but gets the memory for each result from alloc. It calls alloc as soon as
// the size is known, and again with another size if a ragged sample turns out to need delivery in
// encoded form. It wraps an error of alloc. srcs are the fields of a joint Program, or one; their
// errors are an InputError.
func (w *Worker) ApplyTo(alloc Alloc, srcs [][]byte, key Key) error {
	p := w.program
	src := srcs[0]
	w.last = time.Now()
	w.step, w.drawn = 0, w.drawn[:0]
	w.taken, w.resized = 0, 0
	w.spared = [2]int64{}
	w.eraseNothing()
	var err error
	switch {
	case p.known.joint != nil:
		err = w.joint(alloc, srcs, key)
	case p.known.stage == raw:
		var dst []byte
		if dst, err = alloc(0, p.bytes); err == nil {
			err = p.known.array.Apply(dst, src)
		}
	case p.known.stage == sizes:
		err = w.ragged(alloc, src, key)
	default:
		err = w.image(alloc, src, key)
	}
	if err != nil {
		if e := (*codec.Error)(nil); errors.As(err, &e) {
			w.step = 0
		}
		if p.known.joint == nil { // else joint has named the step
			err = fmt.Errorf("%s: %w", p.names[w.step], err)
		}
		if p.known.leave && left.Foreign(err) {
			err = &left.Error{Why: err}
		}
	}
	w.view, w.only[0] = view{}, nil // do not keep src
	w.trim()
	w.lap(w.step)
	return err
}

// mostMetadata is how many bytes of metadata are kept between samples.
const mostMetadata = 1 << 20

// trim frees the memory of a large image and returns it to the operating system: the garbage
// collector would first let as much again be allocated, and would keep it for minutes. Trimming
// takes milliseconds, an image of that size hundreds.
func (w *Worker) trim() {
	large := w.decoder.Trim()
	if cap(w.metadata) > mostMetadata {
		w.metadata = nil
	}
	for _, m := range []*pixels.Image{&w.buffers[0], &w.buffers[1], &w.base, &w.raw} {
		if cap(m.Pix) > codec.MostKept {
			*m, large = pixels.Image{}, true
		}
	}
	kept := w.decoder.Kept() + w.resizer.Kept() + w.editor.Kept() + int64(w.Memory())
	if w.memory > 0 && (kept > w.kept || w.kept == 0) {
		w.Drop()
	} else if large {
		debug.FreeOSMemory()
	}
}

// image is ApplyTo for images.
func (w *Worker) image(alloc Alloc, src []byte, key Key) error {
	v := &w.view
	if w.program.known.stored != nil {
		if err := v.beginStored(w, src); err != nil {
			return err
		}
		return w.moved(alloc, src, key, 0, &codec.Header{})
	}
	// What a form holds is not computed again. One that is damaged is reported by what decodes it.
	if p := w.program.prefix; p != nil && w.form == forms.Transformed && !w.recording {
		if m, ok := forms.ResultOf(src, p.Prefix); ok {
			v.begin(w, nil, &codec.Header{Width: m.Width, Height: m.Height, Orientation: 1})
			v.source, v.shared = m, true // it lies in the form, which must not change
			return w.moved(alloc, src, key, len(p.program.steps), &codec.Header{})
		}
	}
	header, err := w.header(src)
	if err != nil {
		return err
	}
	if w.program.known.leaves() {
		switch {
		case header.Incomplete:
			return left.ErrIncomplete
		case header.Odd:
			return left.ErrOdd
		case w.program.known.unconverted && header.Mode() != w.program.known.mode():
			return left.ErrMode
		}
	}
	v.begin(w, src, &header)
	if err := w.beginTargets(v); err != nil {
		return err
	}
	return w.moved(alloc, src, key, 0, &header)
}

// moved is image once the view has begun, and so many steps are done.
func (w *Worker) moved(alloc Alloc, src []byte, key Key, done int, header *codec.Header) error {
	v := &w.view
	w.known = &w.program.known
	item := key.Item()
	for i, s := range w.program.steps {
		m, ok := s.(mover)
		if !ok || i < done {
			continue
		}
		w.lap(w.step)
		w.step, w.index = i, i
		w.draws.Begin(item, w.program.positions[i])
		if err := m.apply(v, &w.draws); err != nil {
			return err
		}
	}
	if w.program.Views() {
		return w.views(alloc, item)
	}
	if v.targets != nil {
		return w.results(alloc)
	}
	if err := w.describable(header); err != nil {
		return err
	}
	dst, err := w.alloc(alloc, src)
	if err != nil {
		return err
	}
	return w.pack(dst)
}

// pack computes the pixels and writes the tensor.
func (w *Worker) pack(dst []byte) error {
	v := &w.view
	if err := v.compute(); err != nil {
		return err
	}
	w.lap(w.step)
	w.step = w.program.packed
	w.program.packer.Pack(dst, &v.source, v.mirror)
	w.erase(dst, w.program.erasers)
	return nil
}

// alloc gets memory for the image in its current size, of the sample src.
func (w *Worker) alloc(alloc Alloc, src []byte) ([]byte, error) {
	if w.program.Ragged() {
		return w.raggedAlloc(alloc, src)
	}
	return alloc(0, w.program.bytes)
}

// begin sets v to the view of a whole sample.
func (v *view) begin(w *Worker, src []byte, h *codec.Header) {
	*v = view{w: w, sample: src, width: h.Width, height: h.Height, format: h.Format}
	if w.program.known.orient {
		v.width, v.height = h.Oriented()
	}
	v.box.Max.X, v.box.Max.Y = v.width, v.height
}
