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
	if b.o.Preprocessor != nil {
		return b.preprocess(w, i, id)
	}
	c := b.o.Cache
	s, err := c.Fetch(b.ctx, &b.request, id, b.parts[i].dst)
	if errors.Is(err, cache.ErrNoCapacity) {
		if err = b.place(i, int(c.Index().Size(id))); err != nil {
			return err
		}
		s, err = c.Fetch(b.ctx, &b.request, id, b.parts[i].dst)
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
	c, p := b.o.Cache, b.o.Preprocessor
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
	draw := id
	if b.occurs != nil {
		draw |= int(b.occurs[i]) << 32
	}
	steps := len(b.spent) / len(b.parts)
	spent := b.spent[i*steps : (i+1)*steps : (i+1)*steps]
	alloc := func(size int) ([]byte, error) { return b.resultBuffer(i, size) }
	b.parts[i].left = Left{}
	err = p.Apply(alloc, s.Data, b.Epoch, draw, !c.Sound(id), spent)
	if err == nil {
		c.SetSound(id)
	} else if p.Left(err) {
		err = b.leave(i, s.Data)
	}
	if err != nil {
		clear(spent)
		if errors.Is(err, errParked) {
			return errParked
		}
		return &source.SampleError{ID: id, Path: c.Path(id), Kind: source.ErrContent, Err: err}
	}
	b.set(i, id, s.From)
	b.Lengths[i] = uint64(len(b.parts[i].dst))
	b.parts[i].slow = time.Since(fetched) > fetched.Sub(begun)
	b.latest.Store(int32(i + 1))
	return nil
}

// resultBuffer returns a buffer of size bytes for the result of sample i, or errParked if there is
// no memory. It may be called again with another size.
func (b *batch) resultBuffer(i, size int) ([]byte, error) {
	if b.o.inOnePiece() || len(b.parts[i].dst) == size {
		return b.parts[i].dst, nil
	}
	b.sizes.add(size)
	if err := b.place(i, size); err != nil {
		return nil, err
	}
	return b.parts[i].dst, nil
}

// place gives sample i a part of size bytes, or parks it.
func (b *batch) place(i, size int) error {
	part, segment, offset, err := b.take(i, size)
	if err == nil {
		b.parts[i].dst = part
		b.Segments[i], b.Offsets[i] = segment, offset
	}
	return err
}

// take returns a part of size bytes for sample i, of the memory that the batch has reserved, or
// else of what is free in the staging buffer. If there is none, it parks the sample.
func (b *batch) take(i, size int) (part []byte, segment uint32, offset uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := &b.slab
	part = from.take(size)
	if part == nil {
		slot, ok := b.o.Buffer.TryAlloc(int64(size))
		if !ok {
			b.park(i, size)
			return nil, 0, 0, errParked
		}
		b.extraID = append(b.extraID, slot.ID)
		from = &slab{slot: slot}
		part = from.take(size)
	}
	return part, from.slot.Segment, uint64(from.slot.Offset + from.used - whole(size)), nil
}

// leave leaves sample i to the process, with its bytes.
func (b *batch) leave(i int, src []byte) error {
	part, segment, offset, err := b.take(i, len(src))
	if err != nil {
		return err
	}
	copy(part, src)
	b.parts[i].left = Left{Segment: segment, Offset: offset, Length: uint64(len(src))}
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
	b.wants[i] += whole(size)
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
	if s.Direct {
		b.direct.add(bytes)
	}
}

// decide applies the job's policy to sample id at position i, which failed with err. It returns nil
// if the sample was left out or substituted, and else the error. A substitute may be parked: then
// all of this but the count is done again when there is memory.
func (b *batch) decide(w *cache.Worker, i, id int, err error) error {
	bad := b.o.Unusable
	if err := bad.Forgive(id, err, !b.parts[i].counted); err != nil {
		return err
	}
	b.parts[i].counted = true
	if bad.Policy() == Skip {
		b.skip(i)
		b.correctAudit(-access.Mix(b.Epoch, id))
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
