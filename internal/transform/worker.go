package transform

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Worker applies a Program to one sample after the other. It belongs to one
// goroutine, uses its memory again for every sample, and must be closed.
type Worker struct {
	program *Program
	decoder codec.Decoder
	resizer pixels.Resizer
	buffers [2]pixels.Image
	columns []int // of extend
	rows    []int
	view    view
	draws   draws

	step  int // under way
	times []time.Duration
	last  time.Time // up to which times are charged

	memory  int64 // bytes that a sample may take at once; 0: any number
	taken   int64 // by the sample at hand, but for what follows
	resized int64 // by resizing
	spared  [2]int64
	kept    int64 // bytes that may be kept from one sample to the next, where memory is limited

	recording bool
	drawn     []Drawn
}

// Worker returns a new worker.
func (p *Program) Worker() *Worker {
	return &Worker{
		program: p,
		decoder: codec.Decoder{MaxPixels: p.known.most},
		times:   make([]time.Duration, len(p.steps)),
	}
}

// Close frees the decoder's memory, which the garbage collector does not know.
func (w *Worker) Close() { w.decoder.Close() }

// Memory is how many bytes the worker holds between samples, but for the decoder's: twice the
// largest sample's pixels so far, and 128 MiB at most. While a sample is transformed it may be
// more, which is given back.
func (w *Worker) Memory() int { return cap(w.buffers[0].Pix) + cap(w.buffers[1].Pix) }

// MemoryError is why a sample was not transformed that needs more memory than the worker may take,
// and how much it needs. Where it gets more, it may turn out to need still more.
type MemoryError = codec.MemoryError

// Limit sets how many bytes a sample may take at once, beside its own and the result: one that
// needs more is a MemoryError. most is the most that this could be, kept how many bytes the worker
// may keep from one sample to the next. A memory of 0 is any number.
func (w *Worker) Limit(memory, most, kept int64) {
	w.memory, w.kept = memory, kept
	w.decoder.MostMemory = most
}

// Drop lets go of all that the worker keeps from one sample to the next, and gives it back to the
// system.
func (w *Worker) Drop() {
	w.decoder.Drop()
	w.buffers = [2]pixels.Image{}
	w.resizer = pixels.Resizer{}
	debug.FreeOSMemory()
}

// take reports whether the sample at hand may take what it is noted to need.
func (w *Worker) take() error {
	if need := w.taken + w.resized + w.spared[0] + w.spared[1]; w.memory > 0 && need >= w.memory {
		return &MemoryError{Need: need + 1}
	}
	return nil
}

// spare notes that the sample needs an image of that size in a buffer.
func (w *Worker) spare(buffer, width, height, channels int) error {
	w.spared[buffer] = max(w.spared[buffer], int64(width)*int64(height)*int64(channels))
	return w.take()
}

// Times is how long each transform has taken so far, in the order of Program.Names. Decoding is
// charged to ImgDecode, resizing to the transform that asked for it, whenever they were done; what
// is fused (types, normalising, flips, layout) to ToTensor, or where there is none to the last
// transform. The slice is the worker's own.
func (w *Worker) Times() []time.Duration { return w.times }

// lap charges the time since the last lap to a step.
func (w *Worker) lap(step int) {
	now := time.Now()
	w.times[step] += now.Sub(w.last)
	w.last = now
}

// Param is something that a transform drew or decided.
type Param struct {
	Name  string
	Value float64
}

// Drawn is what one transform drew or decided for a sample.
type Drawn struct {
	Step   int // in Program.Names
	Params []Param
}

// Record makes the worker remember what is drawn, for Drawn. It costs allocations.
func (w *Worker) Record(on bool) { w.recording = on }

// Drawn is what the transforms drew for the last sample, valid until the next.
func (w *Worker) Drawn() []Drawn { return w.drawn }

// Apply makes of a sample's bytes what Program.Output says, in dst, which must have
// Output().Bytes() bytes. What it makes is a pure function of src and key. On an error what dst
// holds is not specified.
//
// The error wraps codec's where the image cannot be decoded, or MemoryError, and names the
// transform; sample and path are the caller's to add. Nothing is retried: the same sample fails
// the same way again.
func (w *Worker) Apply(dst, src []byte, key Key) error {
	p := w.program
	if want := p.bytes; len(dst) != want || p.Ragged() {
		return fmt.Errorf("transform: the destination has %d bytes; the sample needs %d", len(dst), want)
	}
	return w.ApplyTo(func(int) ([]byte, error) { return dst, nil }, src, key)
}

// Room returns where a sample's result goes, which has so many bytes; or why there is no room.
type Room func(size int) ([]byte, error)

// ApplyTo is Apply where room says where the result goes. It is asked as soon as the result's size
// is known, and again with another size where it turns out that a ragged sample has to be delivered
// encoded. Its error is wrapped.
func (w *Worker) ApplyTo(room Room, src []byte, key Key) error {
	p := w.program
	w.last, w.drawn, w.step = time.Now(), w.drawn[:0], 0
	w.taken, w.resized, w.spared = 0, 0, [2]int64{}
	var err error
	switch p.known.stage {
	case raw:
		var dst []byte
		if dst, err = room(p.bytes); err == nil {
			err = p.known.array.apply(dst, src)
		}
	case sizes:
		err = w.ragged(room, src, key)
	default:
		err = w.image(room, src, key)
	}
	if err != nil {
		if e := (*codec.Error)(nil); errors.As(err, &e) {
			w.step = 0
		}
		err = fmt.Errorf("%s: %w", p.names[w.step], err)
	}
	w.view = view{} // src is the caller's again
	w.trim()
	w.lap(w.step)
	return err
}

// trim gives the memory of a large image back, to the system as well: the collector would let as
// much again be taken before it looks, and keep it for minutes. That takes milliseconds, and an
// image of that size hundreds.
func (w *Worker) trim() {
	large := w.decoder.Trim()
	for i := range w.buffers {
		if cap(w.buffers[i].Pix) > codec.MostKept {
			w.buffers[i], large = pixels.Image{}, true
		}
	}
	if w.memory > 0 && w.decoder.Kept()+w.resizer.Kept()+int64(w.Memory()) > w.kept ||
		w.memory > 0 && w.kept == 0 {
		w.Drop()
	} else if large {
		debug.FreeOSMemory()
	}
}

// image is Apply for images.
func (w *Worker) image(room Room, src []byte, key Key) error {
	v := &w.view
	header, err := w.decoder.Header(src)
	if err != nil {
		return err
	}
	if w.program.Ragged() && header.Orientation > 1 && !w.program.known.orient {
		return errTurned
	}
	v.begin(w, src, &header)
	for i, s := range w.program.steps {
		m, ok := s.(mover)
		if !ok {
			continue
		}
		w.lap(w.step)
		w.step = i
		w.draws.begin(key, i)
		if err := m.apply(v, &w.draws); err != nil {
			return err
		}
	}
	dst, err := w.room(room)
	if err != nil {
		return err
	}
	img, err := v.pixels()
	if err != nil {
		return err
	}
	w.lap(w.step)
	w.step = w.program.packed
	w.program.packer.Pack(dst, img, v.mirror)
	return nil
}

// room takes room for the image as the steps have left it.
func (w *Worker) room(room Room) ([]byte, error) {
	if w.program.Ragged() {
		width, height := w.view.size()
		return w.raggedRoom(room, width, height)
	}
	return room(w.program.bytes)
}

// begin is the view of a whole sample.
func (v *view) begin(w *Worker, src []byte, h *codec.Header) {
	*v = view{w: w, sample: src, width: h.Width, height: h.Height, jpeg: h.Format == codec.JPEG}
	if w.program.known.orient {
		v.width, v.height = h.Oriented()
	}
	v.box.Max.X, v.box.Max.Y = v.width, v.height
}
