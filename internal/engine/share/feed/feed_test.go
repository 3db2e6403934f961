package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/share"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
)

const samples = 37 // of an epoch

// shapeOf returns the shape of epochs with batches of this size. drop leaves out a short last one.
func shapeOf(batch int, drop bool) Shape {
	if drop {
		return Shape{samples / batch, samples / batch * batch, batch}
	}
	return Shape{(samples + batch - 1) / batch, samples, batch}
}

// batchOf returns a batch of a stream in which sample IDs are positions.
func batchOf(s Shape, n int) *stage.Batch {
	epoch, step := s.split(n)
	b := &stage.Batch{Epoch: epoch, Step: step}
	from, to := s.span(step)
	for i := from; i < to; i++ {
		b.IDs = append(b.IDs, uint32(epoch*samples)+uint32(i))
		b.Occurrences = append(b.Occurrences, uint32(i%3))
	}
	b.Labels = make([]int64, len(b.IDs))
	b.Offsets, b.Lengths = make([]uint64, len(b.IDs)), make([]uint64, len(b.IDs))
	b.Segments = make([]uint32, len(b.IDs))
	return b
}

// producer prepares batches in memory for some of them at a time, and for one more if a member
// waits and nothing that members have not taken is left (Wait).
type producer struct {
	shape  Shape
	memory int
	epochs int // after which Run returns once all is taken; 0: it goes on
	file   *os.File

	mu      sync.Mutex // guards the following
	changed *sync.Cond
	used    map[uint32]bool
	last    uint32
	made    int // samples
	emitted int // the last batch, over all epochs
	taken   int
	urged   bool
	stuck   bool
	beyond  int  // batches for which there was no memory
	running bool // Run has not returned

	apart *staging.Extra // memory beyond the window in which batch 1 lies; nil: none does
	fails error          // why batch 1 is not prepared, once; nil: it is
}

func newProducer(t *testing.T, batch, memory int) *producer {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	p := &producer{
		shape: shapeOf(batch, false), memory: memory, file: file, used: map[uint32]bool{},
		emitted: -1, taken: -1,
	}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *producer) Run(ctx context.Context, epoch, step int, emit func(*stage.Batch) error) error {
	defer context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = true
	defer func() { p.running = false }()
	p.taken = epoch*p.shape.Steps + step - 1
	p.emitted = p.taken
	first := p.taken + 1
	for n := first; ; n++ {
		if n == p.epochs*p.shape.Steps && n > first {
			for p.stuck = true; p.taken < p.emitted && ctx.Err() == nil; {
				p.changed.Wait()
			}
			return ctx.Err()
		}
		for ; len(p.used) >= p.memory && !p.urged; p.changed.Wait() {
			if p.stuck = true; ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if len(p.used) >= p.memory {
			p.beyond++
		}
		if err := p.fails; err != nil && n == 1 {
			p.fails = nil
			return err
		}
		p.stuck, p.urged = false, false
		b := batchOf(p.shape, n)
		p.last++
		b.Slots = []uint32{p.last}
		if p.apart != nil && n == 1 {
			b.Extras = []staging.Extra{*p.apart}
			b.Segments = slices.Repeat([]uint32{p.apart.Segment}, len(b.IDs))
		}
		p.used[p.last] = true
		p.made += len(b.IDs)
		p.emitted = n
		p.mu.Unlock()
		time.Sleep(time.Millisecond) // what preparing it takes
		err := emit(b)
		p.mu.Lock()
		if err != nil || ctx.Err() != nil {
			delete(p.used, b.Slots[0])
			return errors.Join(err, ctx.Err())
		}
	}
}

func (p *producer) Wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.urged = p.taken == p.emitted; p.urged {
		p.changed.Broadcast()
	}
}

func (p *producer) WaitForSlots() {}
func (p *producer) Hold(int)      {}

func (p *producer) Yielded(epoch, step int, _ stage.Stall, _ uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// One that is not emitted is not counted, as job.Rank.Yielded.
	if n := epoch*p.shape.Steps + step; n <= p.emitted {
		p.taken = max(p.taken, n)
	}
	p.changed.Broadcast()
}

func (p *producer) Return(slot uint32) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.used[slot] {
		return 0, fmt.Errorf("slot %d is not in use", slot)
	}
	delete(p.used, slot)
	p.changed.Broadcast()
	return 0, nil
}

func (p *producer) Stuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck
}

func (p *producer) Window() (*os.File, int64) { return p.file, 1 << 20 }
func (p *producer) Pace() (float64, bool)     { return 0.001, true }
func (p *producer) Close()                    { p.file.Close() }

// process is a member's process. It takes a batch each time that it may go on.
type process struct {
	t       *testing.T
	m       *Member
	shape   Shape
	ready   chan *stage.Batch // as a socket
	private int               // samples that were prepared for it alone
	step    time.Duration     // what a batch takes it
	pause   int               // the batch after which it stops, until resume is closed
	resume  chan struct{}
	cancel  context.CancelFunc
	ended   chan error
	keeps   int                      // how many batches it keeps
	refuses func(*stage.Batch) error // why a batch is not delivered; nil: all are
}

func (p *process) Stage(ctx context.Context, epoch, step int, _ bool,
	next func(epoch, step int) error,
) error {
	for n := epoch*p.shape.Steps + step; ; n++ {
		b := batchOf(p.shape, n)
		time.Sleep(time.Millisecond)
		if err := next(b.Epoch, b.Step); err != nil {
			return err
		}
		p.private += len(b.IDs)
		select {
		case p.ready <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *process) Deliver(b *stage.Batch) error {
	if p.refuses != nil {
		if err := p.refuses(b); err != nil {
			return err
		}
	}
	p.ready <- b
	return nil
}

// begin delivers batches from one until before another.
func (p *process) begin(from, to int) {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		err := p.m.Run(ctx, from, to, p)
		close(p.ready)
		p.ended <- err
	}()
}

// take takes batches from one until before another, and requires that they are its stream's.
func (p *process) take(from, to int) {
	var kept []uint32
	for n := from; n < to; n++ {
		var b *stage.Batch
		select {
		case b = <-p.ready:
		default:
			p.m.Wait()
			b = <-p.ready
		}
		want := batchOf(p.shape, n)
		if b == nil || !slices.Equal(b.IDs, want.IDs) ||
			!slices.Equal(b.Occurrences, want.Occurrences) ||
			b.Epoch != want.Epoch || b.Step != want.Step {
			p.t.Errorf("batch %d is %+v, want %+v", n, b, want)
			return
		}
		if n == p.pause && p.resume != nil {
			<-p.resume
		}
		time.Sleep(p.step)
		p.m.Yielded(b.Epoch, b.Step, stage.Stall{})
		for kept = append(kept, b.Slots...); len(kept) > p.keeps; kept = kept[1:] {
			if _, err := p.m.Return(kept[0]); err != nil {
				p.t.Error(err)
			}
		}
	}
}

func join(t *testing.T, f *Feed, shape Shape) *process {
	return &process{
		t: t, m: f.Join("test", shape, 0, 0), shape: shape, ready: make(chan *stage.Batch, 100),
		ended: make(chan error, 1),
	}
}

func newFeed(t *testing.T, p *producer, o share.Options) *Feed {
	f, err := New(Options{
		Options: o, Name: "test", Producer: p, Shape: p.shape,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// end closes members and the feed, and requires that the window is free.
func end(t *testing.T, f *Feed, p *producer, members ...*process) {
	for _, m := range members {
		m.cancel()
		for range m.ready { // its Run may be sending
		}
		<-m.ended
		m.m.Close()
	}
	f.Close()
	if len(p.used) > 0 {
		t.Errorf("%d pieces were not freed", len(p.used))
	}
}

func TestBatchesOfAllSizesArePreparedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const epochs = 3
		p := newProducer(t, 8, 8)
		f := newFeed(t, p, share.Options{Members: 4, Deadline: time.Hour, Keep: 1})
		var all []*process
		for _, s := range []Shape{
			shapeOf(8, false), shapeOf(3, false), shapeOf(8, true), shapeOf(20, true),
		} {
			all = append(all, join(t, f, s))
		}
		all[1].keeps = 3
		var wg sync.WaitGroup
		for _, m := range all {
			m.begin(0, epochs*m.shape.Steps)
			wg.Go(func() { m.take(0, epochs*m.shape.Steps) })
		}
		wg.Wait()
		for i, m := range all {
			if m.private > 0 {
				t.Errorf("%d samples were prepared for member %d alone", m.private, i)
			}
		}
		if most := (epochs + 2) * samples; p.made > most {
			t.Errorf("%d samples were prepared", p.made)
		}
		end(t, f, p, all...)
	})
}

// TestAStoppedMemberHoldsOthersUpOnce stops a member that has all of the window, for an hour.
func TestAStoppedMemberHoldsOthersUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 3)
		f := newFeed(t, p, share.Options{Members: 2, Deadline: time.Hour, Keep: 1})
		stopped, other := join(t, f, shapeOf(8, false)), join(t, f, shapeOf(4, false))
		stopped.pause, stopped.resume = 2, make(chan struct{})
		stopped.begin(0, 50)
		other.begin(0, 100)
		begun := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { stopped.take(0, 50) })
		other.take(0, 100)
		if took := time.Since(begun); took > 2*minHoldUp {
			t.Errorf("it held up the other for %v", took)
		}
		if r := stopped.m.Report(); r.Detached == 0 || r.HeldUp < minHoldUp.Seconds() {
			t.Errorf("its report is %+v", r)
		}
		time.Sleep(time.Hour)
		close(stopped.resume)
		wg.Wait()
		end(t, f, p, stopped, other)
	})
}

// TestTheProducersLastEpochEndsForAll has a member that leaves out the short batch with which the
// producer's last epoch ends, and goes on although another is stopped before it.
func TestTheProducersLastEpochEndsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 6, 100)
		p.epochs = 1
		f := newFeed(t, p, share.Options{Members: 2, Deadline: time.Hour, Keep: 1})
		stopped, other := join(t, f, shapeOf(6, true)), join(t, f, shapeOf(6, true))
		stopped.begin(0, 6)
		other.begin(0, 18)
		begun := time.Now()
		stopped.take(0, 1)
		other.take(0, 18)
		if took := time.Since(begun); took > minHoldUp || stopped.m.Report().Detached > 0 {
			t.Errorf("it waited for %v for the one that is stopped: %+v", took, stopped.m.Report())
		}
		end(t, f, p, stopped, other)
	})
}

// TestALateMemberPreparesItsOwn begins at its own first epoch. Another begins where the group is.
func TestALateMemberPreparesItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 8)
		f := newFeed(t, p, share.Options{Keep: 1})
		first := join(t, f, shapeOf(8, false))
		first.begin(0, 100)
		first.take(0, 12)
		late := join(t, f, shapeOf(8, false))
		late.begin(0, 12)
		late.take(0, 12)
		if late.private == 0 {
			t.Error("the window had epochs that were over")
		}
		again := join(t, f, shapeOf(8, false)) // as from a checkpoint
		synctest.Wait()                        // the first was sent what it may have at a time
		again.begin(12+minFlight, 100)
		synctest.Wait()
		var wg sync.WaitGroup
		wg.Go(func() { first.take(12, 100) })
		again.take(12+minFlight, 100)
		wg.Wait()
		if again.private > 0 {
			t.Errorf("%d samples were prepared for a member that resumed in the window",
				again.private)
		}
		end(t, f, p, first, late, again)
	})
}
