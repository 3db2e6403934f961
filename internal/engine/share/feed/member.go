package feed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/share"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/report"
)

// minFlight is how many batches are sent to a member's process before it has taken them, if it has
// no workers. What a process was sent cannot be taken back if it is stopped, so this bounds what it
// can keep of the window; but two batches more than it uses hide the time of sending them. One with
// workers uses as many as these have, up to mostFlight.
const minFlight, mostFlight = 4, 256

// Member is one rank of a job in a group. Run is called by one goroutine at a time; its other
// methods are safe for concurrent use.
type Member struct {
	feed  *Feed
	id    int
	name  string
	shape Shape
	// flight is how many batches are sent before the process has taken them.
	flight int

	// The following are guarded by feed.mu.
	sent, taken int              // the last batches that were sent and taken, over all epochs
	slots       map[uint32]taken // by the number of the slot for the process
	slot        uint32           // the last number
	// segments are the memory of the window that was announced to the process, by the producer's
	// number.
	segments map[uint32]*segment
	segment  uint32 // the last number
	blocked  bool   // it waits for a batch
	lags     int    // how often it was detached
	kept     bool   // what its process has stays as it is after Close
}

// hold is a piece that the process has, in as many slots as it has samples in segments.
type hold struct{ piece, slots int }

// taken is a slot: a piece that the process has, and the extra segment in which it, or a part of
// it, lies, or 0.
type taken struct {
	of    *hold
	extra uint32 // the producer's number
}

// segment is memory of the window that was announced to the process. Each time that it is, it has
// another number, so that the process can be notified at any later time that it no longer needs it.
type segment struct {
	number uint32
	uses   int // batches that the process has there
}

// Join adds a member, whose epochs have at most as many samples as the producer's. name is for
// messages; members is how many members it waits for, and ahead up to how many batches its workers
// have at a time. Close makes it leave.
func (f *Feed) Join(name string, shape Shape, members, ahead int) *Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	f.group.Join(f.last, members, time.Now())
	m := &Member{
		feed: f, id: f.last, name: name, shape: shape, slots: make(map[uint32]taken),
		segments: make(map[uint32]*segment), flight: min(max(minFlight, ahead+2), mostFlight),
	}
	f.all[m.id] = m
	f.o.Producer.Hold(shape.Batch)
	return m
}

// Epoch returns the epoch of the batch that the furthest of the members takes next; 0: none takes
// any.
func (f *Feed) Epoch() (epoch int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, m := range f.all {
		if f.group.State(id) != share.Idle || m.taken < m.sent {
			next, _ := m.shape.split(m.taken + 1)
			epoch = max(epoch, next)
		}
	}
	return epoch
}

// Keep has Close not release what the process holds, as it may go on with that: until the group
// ends, nothing else is written there.
func (m *Member) Keep() {
	f := m.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	m.kept = true
}

// Close makes the member leave, and releases what its process holds. Run must have returned.
func (m *Member) Close() {
	f := m.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.kept {
		f.group.Exit(m.id)
	} else {
		f.group.Leave(m.id)
	}
	delete(f.all, m.id)
	f.look()
	f.moved.Broadcast()
}

var errAttached = errors.New("the window has the next batch")

// Run delivers the batches from one until before another, given by their steps over all epochs. It
// returns the first error: of ctx, of own, or of the producer, after the batches before it.
func (m *Member) Run(ctx context.Context, begin, end int, own stage.Own) (err error) {
	f := m.feed
	defer context.AfterFunc(ctx, f.wake)()
	f.mu.Lock()
	defer f.mu.Unlock()
	m.sent, m.taken = begin-1, begin-1
	defer func() {
		f.group.Exit(m.id)
		if err != nil {
			m.sent = m.taken // the process takes no more
		}
		m.blocked = false // the process may wait before the next Run has begun
		f.look()
		f.moved.Broadcast()
	}()
	for n := begin; n < end; {
		if s := f.group.State(m.id); s == share.Idle {
			f.enter(m, n)
		}
		switch f.group.State(m.id) {
		case share.Gathering:
			if err := ctx.Err(); err != nil {
				return err
			}
			f.moved.Wait()
		case share.Attached:
			b, err := m.take(ctx, n)
			if err != nil {
				return err
			}
			if b == nil {
				continue
			}
			f.mu.Unlock()
			err = own.Deliver(b)
			f.mu.Lock()
			if err != nil {
				m.untake(b)
				return err
			}
			n++
		case share.Private:
			blocked := m.blocked
			f.mu.Unlock()
			epoch, step := m.shape.split(n)
			err := own.Stage(ctx, epoch, step, blocked, func(epoch, step int) error {
				n = epoch*m.shape.Steps + step
				return m.meet(n)
			})
			f.mu.Lock()
			if !errors.Is(err, errAttached) {
				return err
			}
		}
	}
	return nil
}

// meet returns errAttached if the member is attached at a batch. Otherwise it is about to be
// delivered.
func (m *Member) meet(n int) error {
	f := m.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.enter(m, n) == share.Attached {
		return errAttached
	}
	m.sent, m.blocked = n, false
	return nil
}

// enter asks for batches from the window. f.mu must be held.
func (f *Feed) enter(m *Member, n int) share.State {
	from, _ := m.span(n)
	f.group.Enter(m.id, from, time.Now())
	f.look()
	f.moved.Broadcast()
	return f.group.State(m.id)
}

// span returns the positions of a batch.
func (m *Member) span(n int) (from, to int64) {
	epoch, step := m.shape.split(n)
	from, to = m.shape.span(step)
	before := int64(epoch) * int64(m.feed.o.Shape.Samples)
	return before + from, before + to
}

// take waits until a batch is in the window, and the process may be sent another, and takes it. It
// returns nil if something else changed. f.mu must be held; the caller must look at the state again
// then.
func (m *Member) take(ctx context.Context, n int) (*stage.Batch, error) {
	f := m.feed
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var pieces []share.Piece
	ok := false
	from, to := m.span(n)
	if m.sent-m.taken < m.flight {
		pieces, ok = f.group.Take(m.id, from, to)
	}
	if !ok {
		if _, head, running := f.group.Producer(); !running && head < to && f.err != nil {
			if f.err != errOver {
				return nil, f.err
			}
			f.err = nil
			f.group.Restart()
			f.moved.Broadcast()
		}
		if m.blocked { // maybe since before it was attached
			f.block(m)
		}
		f.moved.Wait()
		return nil, nil
	}
	m.sent, m.blocked = n, false
	b := m.batch(n, from, to, pieces)
	f.look()
	return b, nil
}

// batch returns a batch for the member's process, which has the samples between two positions, of
// pieces that it was given. Their slots have numbers of the member's, and the batch comes with the
// segments that the process does not know.
func (m *Member) batch(n int, from, to int64, pieces []share.Piece) *stage.Batch {
	parts := make([]stage.Part, len(pieces))
	for i, p := range pieces {
		parts[i] = stage.Part{
			Batch: m.feed.pieces[p.ID], From: int(max(from, p.From) - p.From),
			To: int(min(to, p.To) - p.From),
		}
	}
	epoch, step := m.shape.split(n)
	b := stage.Concat(epoch, step, parts)
	numbers := make([]map[uint32]uint32, len(parts))
	for i, p := range parts {
		numbers[i] = m.place(b, p, &hold{piece: pieces[i].ID})
	}
	at := 0
	for range b.Outputs() {
		for i, p := range parts {
			for range p.To - p.From {
				b.Segments[at] = numbers[i][b.Segments[at]]
				at++
			}
		}
	}
	return b
}

// place adds to a batch a slot for each segment in which samples of one of its parts are: one,
// unless their sizes differ. It returns the process's numbers of these segments, by the producer's.
func (m *Member) place(b *stage.Batch, p stage.Part, of *hold) map[uint32]uint32 {
	numbers := make(map[uint32]uint32, 1)
	n := len(p.IDs)
	for o := range p.Outputs() {
		for _, s := range p.Segments[o*n+p.From : o*n+p.To] {
			if _, known := numbers[s]; known {
				continue
			}
			memory := staging.Extra{File: m.feed.window, Size: m.feed.size}
			for _, x := range p.Extras {
				if x.Segment == s {
					memory = x
				}
			}
			number := m.use(b, memory)
			numbers[s] = number
			slot := m.newSlot()
			of.slots++
			m.slots[slot] = taken{of, memory.Segment}
			b.Slots = append(b.Slots, slot)
		}
	}
	return numbers
}

// use notes that a batch lies in a segment, which comes with it if the process does not know it,
// and returns the process's number of it.
func (m *Member) use(b *stage.Batch, memory staging.Extra) uint32 {
	at := m.segments[memory.Segment]
	if at == nil {
		at = &segment{number: m.newSegment()}
		m.segments[memory.Segment] = at
		b.Extras = append(b.Extras,
			staging.Extra{Segment: at.number, File: memory.File, Size: memory.Size})
	}
	at.uses++
	return at.number
}

// newSegment returns a number for a segment of which the process does not know.
func (m *Member) newSegment() uint32 {
	m.segment = (m.segment + 1) % stage.Windows
	return stage.FirstWindow + m.segment
}

// newSlot returns the number of a slot that the process does not have.
func (m *Member) newSlot() uint32 {
	for {
		m.slot++
		slot := staging.WindowSlot(m.slot)
		if _, used := m.slots[slot]; !used {
			return slot
		}
	}
}

// Wait records that the process is blocked in next(), and has taken all batches that it was sent.
// It returns false if the member prepares its batches itself.
func (m *Member) Wait() (attached bool) {
	f := m.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	m.blocked = true
	if f.group.State(m.id) == share.Private {
		return false
	}
	f.block(m)
	return true
}

// Yielded records that the process has taken all batches up to this one.
func (m *Member) Yielded(epoch, step int, stall stage.Stall) {
	f := m.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	n := epoch*m.shape.Steps + step
	m.taken = max(m.taken, n)
	if f.group.State(m.id) == share.Attached {
		_, to := m.span(n)
		f.yield(to, stall)
	}
	f.moved.Broadcast()
}

// Report returns the member's place in the group.
func (m *Member) Report() report.Group {
	f := m.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	return report.Group{
		Name: f.o.Name, Members: len(f.all), State: f.group.State(m.id).String(), Behind: m.behind(),
		HeldUp: f.group.Cost(m.id).Seconds(), Detached: m.lags,
	}
}

// behind returns how many samples more than the member's process that of the first member has
// taken, of those that are given the group's batches. f.mu must be held.
func (m *Member) behind() (samples int64) {
	f := m.feed
	if s := f.group.State(m.id); s != share.Attached && s != share.Private {
		return 0
	}
	at, _ := m.span(m.taken + 1)
	for id, other := range f.all {
		if f.group.State(id) == share.Attached {
			first, _ := other.span(other.taken + 1)
			samples = max(samples, first-at)
		}
	}
	return samples
}

// Return releases a slot. retired is the segment that the process needs no more, or 0.
func (m *Member) Return(slot uint32) (retired uint32, err error) {
	f := m.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.release(slot)
}

// untake releases a batch that was taken, and did not reach the process. The segments that it comes
// with were not announced to the process either. f.mu must be held.
func (m *Member) untake(b *stage.Batch) {
	for _, slot := range b.Slots {
		if _, err := m.release(slot); err != nil {
			m.feed.o.Log.Error("release a batch that was not delivered", "error", err)
		}
	}
	maps.DeleteFunc(m.segments, func(_ uint32, s *segment) bool {
		return slices.ContainsFunc(b.Extras, func(x staging.Extra) bool {
			return x.Segment == s.number
		})
	})
}

// release is Return with f.mu held.
func (m *Member) release(slot uint32) (retired uint32, err error) {
	has, ok := m.slots[slot]
	if !ok {
		return 0, fmt.Errorf("slot %#x of the window is not in use", slot)
	}
	delete(m.slots, slot)
	at := m.segments[has.extra]
	if at.uses--; at.uses == 0 && has.extra != 0 {
		delete(m.segments, has.extra)
		retired = at.number
	}
	if has.of.slots--; has.of.slots > 0 {
		return retired, nil
	}
	if err := m.feed.group.Release(m.id, has.of.piece); err != nil {
		return 0, err
	}
	m.feed.sweep()
	return retired, nil
}
