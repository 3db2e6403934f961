package stage

import (
	"errors"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Bring implements cache.Consumer.
func (b *batch) Bring(w *cache.Worker, i int) (abandoned bool) {
	id := int(b.IDs[i])
	err := b.ctx.Err()
	if err == nil {
		err = b.o.Unusable.Known(id)
	}
	if err == nil {
		err = b.bring(w, i, id)
	}
	if err != nil && b.ctx.Err() == nil {
		err = b.decide(w, i, id, err)
	}
	switch {
	case err == cache.ErrAbandoned:
		b.hung.Done() // the watchdog has recorded the failure
		return true
	case err != nil && err != errParked:
		b.fail(i, err)
	}
	b.arrived()
	return false
}

// bring fetches sample id for position i of the batch, and records where it is.
func (b *batch) bring(w *cache.Worker, i, id int) error {
	if len(b.o.Outputs) > 0 {
		return b.preprocess(w, i, id)
	}
	c := b.o.Cache
	s, err := c.Fetch(b.ctx, &b.request, id, b.dst[i])
	if errors.Is(err, cache.ErrNoCapacity) {
		if err = b.place(i, int(c.Index().Size(id))); err != nil {
			return err
		}
		s, err = c.Fetch(b.ctx, &b.request, id, b.dst[i])
	}
	if b.count(id, s, err); err != nil {
		return err
	}
	// The sample's segment is announced to the process before the segment ends (Stager.Barrier).
	defer s.Release()
	if b.o.Verify {
		if err := c.Verify(b.ctx, w, &b.request, id, s.Data, s.From); err != nil {
			return err
		}
	}
	if s.InPlace {
		b.setInPlace(i, id, s.At)
		b.parts[i].from = s.From
	} else {
		b.set(i, id, s.From)
	}
	b.parts[i].awaited = s.Awaited()
	b.latest.Store(int32(i + 1))
	return nil
}

// preprocess is bring for samples that are transformed.
func (b *batch) preprocess(w *cache.Worker, i, id int) error {
	c := b.o.Cache
	begun := time.Now()
	s, err := c.FetchView(b.ctx, w, &b.request, id)
	if b.count(id, s, err); err != nil {
		return err
	}
	defer s.Release()
	if b.o.Verify {
		if err := c.Verify(b.ctx, w, &b.request, id, s.Data, s.From); err != nil {
			return err
		}
	}
	fetched := time.Now()
	b.parts[i].from = s.From
	b.parts[i].awaited = s.Awaited()
	b.parts[i].slow = false
	b.latest.Store(int32(i + 1))
	err = b.apply(i, id, s.Data, s.Kind)
	if errors.Is(err, errAsRead) {
		s.Release()
		c.AsRead(id)
		request := b.request
		request.Forms = false
		s, err = c.FetchView(b.ctx, w, &request, id)
		if b.count(id, s, err); err != nil {
			return err
		}
		err = b.apply(i, id, s.Data, 0)
	}
	if err != nil {
		if errors.Is(err, errParked) {
			return errParked
		}
		return &source.SampleError{ID: id, Path: c.Path(id), Kind: source.ErrContent, Err: err}
	}
	c.SetSound(id)
	b.set(i, id, s.From)
	b.parts[i].slow = time.Since(fetched) > fetched.Sub(begun)
	b.latest.Store(int32(i + 1))
	return nil
}

// apply makes the outputs of sample i, whose packed bytes are data, or a form of this kind.
func (b *batch) apply(i, id int, data []byte, kind uint8) error {
	steps := len(b.spent) / len(b.parts)
	spent := b.spent[i*steps : (i+1)*steps : (i+1)*steps]
	var few [4][]byte
	var some [4]uint8
	fields, kinds, ok := b.o.Cache.Split(few[:0], some[:0], id, data, kind)
	if !ok {
		return errAsRead
	}
	whole := !b.o.Cache.Sound(id)
	for at := i; at < len(b.lefts); at += len(b.IDs) {
		b.lefts[at] = Left{}
	}
	for o := range b.o.Outputs {
		out := &b.o.Outputs[o]
		at := o*len(b.IDs) + i
		n := out.steps()
		var err error
		if out.View == 0 {
			err = b.applyTo(o, at, id, fields, kinds, whole, spent[:n:n])
		}
		if err != nil {
			clear(b.spent[i*steps : (i+1)*steps])
			if names := b.o.Cache.Index().Fields(); len(names) > 1 && len(b.o.Outputs) > 1 {
				err = fmt.Errorf("field %s: %w", names[out.fault(err)], err)
			}
			return err
		}
		spent = spent[n:]
		if fields[out.Field] != nil {
			b.Lengths[at] = uint64(len(b.dst[at]))
		}
	}
	return nil
}

// withhold notes that a sample does not have the field of an output whose results vary in size.
func (b *batch) withhold(at int) error {
	err := b.place(at, 0) // in memory that the process maps
	b.Lengths[at] = NoField
	return err
}

var (
	errNoField = errors.New("the sample does not have it")
	errNoBytes = errors.New("it has no bytes: the file, or its part, is empty")
	// errAsRead reports that a form does not suffice for what is made of the sample, or that it is
	// damaged: the sample as read decides what becomes of it.
	errAsRead = errors.New("the sample is needed as it was read")
)

// applyTo makes output o of sample id, at its place in the columns, and its further views. Fields
// are of these kinds.
func (b *batch) applyTo(o, at, id int, fields [][]byte, kinds []uint8, whole bool,
	spent []time.Duration,
) error {
	out := &b.o.Outputs[o]
	inputs, one := out.Inputs, [1]int{out.Field}
	if inputs == nil {
		inputs = one[:]
	}
	srcs, kind := make([][]byte, 0, len(inputs)), uint8(0)
	for i, field := range inputs {
		src, ok := fields[field], true
		switch takes := i < len(out.Forms) && out.Forms[i]; {
		case takes:
			kind = max(kind, kinds[field])
		case kinds[field] != 0:
			if src, ok = b.o.Cache.File(src, kinds[field]); !ok {
				return errAsRead
			}
		}
		switch {
		case out.Inputs == nil:
		case src == nil:
			return &inputError{field, errNoField}
		case len(src) == 0:
			return &inputError{field, errNoBytes}
		}
		srcs = append(srcs, src)
	}
	src := srcs[0]
	switch {
	case src == nil && out.size() == 0:
		clear(spent)
		return b.withhold(at)
	case src == nil:
		return errNoField
	}
	if out.Preprocessor == nil {
		dst, err := b.resultBuffer(out, at, len(src))
		copy(dst, src)
		return err
	}
	if len(src) == 0 { // nor can it be left to the process, which finds what is left by its bytes
		return errNoBytes
	}
	alloc := func(view, size int) ([]byte, error) {
		return b.resultBuffer(&b.o.Outputs[o+view], at+view*len(b.IDs), size)
	}
	occurrence := int(b.Occurrences[at%len(b.IDs)])
	err := out.Preprocessor.Apply(alloc, srcs, kind, b.Epoch, id, occurrence, whole, spent)
	switch {
	case err == nil:
		return nil
	case kind != 0 && !errors.Is(err, errParked):
		return errAsRead
	}
	if left, usual := out.Preprocessor.Left(err); left {
		clear(spent)
		return b.leaveAll(o, at, srcs, usual)
	}
	return err
}

// An inputError is an error of one of several fields, by its number in the index.
type inputError struct {
	field int
	error
}

// fault returns the number of the field that an error of an output is about.
func (o *Output) fault(err error) int {
	var own *inputError
	var of interface{ OfInput() int }
	switch {
	case errors.As(err, &own):
		return own.field
	case o.Inputs != nil && errors.As(err, &of):
		return o.Inputs[of.OfInput()]
	}
	return o.Field
}

// resultBuffer returns a buffer of size bytes for a result, or errParked if there is no memory. It
// may be called again with another size.
func (b *batch) resultBuffer(out *Output, at, size int) ([]byte, error) {
	if out.size() > 0 || b.dst[at] != nil && len(b.dst[at]) == size {
		return b.dst[at], nil
	}
	b.sizes.add(size)
	if err := b.place(at, size); err != nil {
		return nil, err
	}
	return b.dst[at], nil
}

// place gives what is at this place in the columns a part of size bytes, or parks its sample.
func (b *batch) place(at, size int) error {
	part, segment, offset, err := b.take(at, size)
	if err == nil {
		b.dst[at] = part
		b.Segments[at], b.Offsets[at] = segment, offset
	}
	return err
}

// take returns a part of size bytes for what is at this place in the columns, of the memory that
// the batch has reserved, or else of what is free in the staging buffer. If there is none, it parks
// the sample.
func (b *batch) take(at, size int) (part []byte, segment uint32, offset uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := &b.slab
	begin := from.used
	part = from.take(size)
	if part == nil {
		slot, ok := b.o.Buffer.TryAlloc(int64(max(size, 1)))
		if !ok {
			b.park(at%len(b.IDs), size)
			return nil, 0, 0, errParked
		}
		b.extraID = append(b.extraID, slot.ID)
		from, begin = &slab{slot: slot, align: b.o.align()}, 0
		part = from.take(size)
	}
	return part, from.slot.Segment, uint64(from.slot.Offset + begin), nil
}

// leaveAll leaves a sample to the process, with the bytes of the fields that output o is made of.
func (b *batch) leaveAll(o, at int, srcs [][]byte, usual bool) error {
	for i, src := range srcs {
		at := at + i*len(b.IDs)
		if err := b.leave(at, src, usual); err != nil {
			return err
		}
		if b.o.Outputs[o+i].size() == 0 {
			b.dst[at] = nil
			if err := b.place(at, 0); err != nil { // in memory that the process maps
				return err
			}
		}
	}
	return nil
}

// leave leaves what is at this place in the columns to the process, with its bytes.
func (b *batch) leave(at int, src []byte, usual bool) error {
	part, segment, offset, err := b.take(at, len(src))
	if err != nil {
		return err
	}
	copy(part, src)
	b.lefts[at] = Left{
		Segment: segment, Offset: offset, Length: uint64(len(src)), Usual: usual,
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leaves++; b.leaves > MaxLeft {
		return fmt.Errorf("more than %d samples of a batch are left to the process, as the daemon "+
			"does not decode them: use a smaller batch, or convert the files", MaxLeft)
	}
	return nil
}

// park notes that there is no memory for sample i, which needs size bytes more than it last did.
// b.mu must be held.
func (b *batch) park(i, size int) {
	if b.wants == nil {
		b.wants = make([]int64, len(b.IDs))
	}
	b.wants[i] += aligned(int64(max(size, 1)), b.o.align())
	b.parked = append(b.parked, i)
}

// count accounts for what a fetch has read from the source. If the read was given up, the batch is
// already done, and the ledger is charged at once.
func (b *batch) count(id int, s cache.Sample, err error) {
	if !s.Read {
		return
	}
	bytes := b.o.Cache.Index().Size(id)
	if err == cache.ErrAbandoned {
		b.o.Ledger.Source(b.Epoch, bytes)
		return
	}
	b.source.add(bytes)
	for _, size := range s.Others {
		b.source.add(size)
	}
	if s.Direct {
		b.direct.add(bytes)
	}
}

// decide applies the job's policy to sample id at position i, which failed with err. It returns nil
// if the sample was left out, substituted or left to the process, and else the error. A substitute
// may be parked: then all of this but the count is done again when there is memory.
func (b *batch) decide(w *cache.Worker, i, id int, err error) error {
	bad := b.o.Unusable
	if err := bad.Forgive(id, err, !b.parts[i].counted); err != nil {
		return err
	}
	b.parts[i].counted = true
	switch bad.Policy() {
	case Skip:
		b.skip(i)
		b.correctAudit(-access.Mix(b.Epoch, id))
		return nil
	case Leave:
		b.set(i, id, cache.Source)
		b.parts[i].bytes, b.parts[i].absent = 0, true
		return nil
	}
	samples := b.o.Cache.Index().Len()
	for step := 1; step < samples; step++ {
		standIn := (id + step) % samples
		if !b.view.Has(standIn) || bad.Known(standIn) != nil {
			continue
		}
		err := b.bring(w, i, standIn)
		if err == nil {
			b.correctAudit(access.Mix(b.Epoch, standIn) - access.Mix(b.Epoch, id))
			return nil
		}
		if err := bad.Forgive(standIn, err, false); err != nil {
			return err
		}
	}
	return fmt.Errorf("no readable sample is left to substitute for sample %d: %w", id, err)
}
