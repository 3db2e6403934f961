package process

import (
	"bytes"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
)

// overflows returns an error if a batch should not have memory outside of the staging buffer, or if
// the job reports another amount of such memory than the process keeps.
func (p *Process) overflows(b *batch) error {
	var mine, size int64
	for _, b := range p.held {
		for _, s := range b.extras {
			mine += int64(len(s.data))
		}
	}
	for _, length := range b.Lengths {
		size += int64(length+7) &^ 7
	}
	// What an earlier stream began to read may not have been freed.
	needless := len(b.extras) > 0 && !p.o.Keeps && p.o.Calm && p.begun == 1 &&
		p.o.Request.Arguments["share"] == nil
	if !p.o.Keeps && !needless {
		return nil
	}
	switch s := p.State(); {
	case needless && size <= s.Staging:
		return fmt.Errorf("%w: it has %d bytes outside of the staging buffer, which has room for %d",
			ErrWrong, mine, size)
	case p.o.Keeps && s.Extra != mine:
		return fmt.Errorf("%w: %d bytes are said to be outside of the staging buffer, and %d are "+
			"kept", ErrWrong, s.Extra, mine)
	}
	return nil
}

// giveBack returns what the process does not keep while it waits.
func (p *Process) giveBack() error {
	if p.o.Keeps {
		return p.Trained()
	}
	return p.Return()
}

// Trained returns batches beyond those that are kept.
func (p *Process) Trained() error {
	for len(p.held) > p.o.Hold {
		if err := p.returnFirst(); err != nil {
			return err
		}
	}
	return nil
}

// Return returns all batches: a process that keeps the batches that the next one needs the memory
// of would wait for itself.
func (p *Process) Return() error {
	for len(p.held) > 0 {
		if err := p.returnFirst(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Process) returnFirst() error {
	first := p.held[0]
	p.held = p.held[1:]
	if err := p.check(first); err != nil {
		return fmt.Errorf("when it was returned: %w", err)
	}
	return p.release(first)
}

// check compares a batch's bytes with those that are due.
func (p *Process) check(b *batch) error {
	for i, id := range b.IDs {
		at, end := b.Offsets[i], b.Offsets[i]+b.Lengths[i]
		data := b.at[i].data
		if data == nil || end > uint64(len(data)) {
			return fmt.Errorf("%w: sample %d lies outside of segment %#x", ErrWrong, id,
				b.Segments[i])
		}
		if !bytes.Equal(data[at:end], p.o.Content(int(id))) {
			return fmt.Errorf("%w: sample %d has other bytes", ErrWrong, id)
		}
		if int(b.Labels[i]) != p.o.Label(int(id)) {
			return fmt.Errorf("%w: sample %d has the label %d", ErrWrong, id, b.Labels[i])
		}
	}
	return nil
}

// array returns an error if a batch of transformed samples is not one array in one slot.
func (p *Process) array(b *batch) error {
	if p.o.Request.Transforms == nil || p.o.Request.Arguments["share"] != nil || len(b.IDs) == 0 {
		return nil // or it has pieces of what others of its group have
	}
	if b.Offsets[0]%aligned > 0 {
		return fmt.Errorf("%w: its array begins at %d", ErrWrong, b.Offsets[0])
	}
	for i, length := range b.Lengths {
		if length != b.Lengths[0] || b.Segments[i] != b.Segments[0] ||
			b.Offsets[i] != b.Offsets[0]+uint64(i)*length {
			return fmt.Errorf("%w: its samples are not an array: segments %v, offsets %v, lengths %v",
				ErrWrong, b.Segments, b.Offsets, b.Lengths)
		}
	}
	return nil
}

// release returns a batch's slots, and drops segments that nothing else names.
func (p *Process) release(b *batch) error {
	for _, slot := range b.Slots {
		if p.note(slot) {
			continue
		}
		retired, err := p.rank.Return(slot)
		if err != nil {
			return err
		}
		if stage.InWindow(retired) {
			p.retire(retired)
		}
	}
	for _, s := range b.extras {
		s.unmap()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.letGo()
	return nil
}
