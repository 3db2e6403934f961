// Package feed gives the members of a group their batches (package share): one producer prepares
// each of them once, into the group's window, and each member gets its location there.
//
//   - Feed runs the group's state machine for one local rank. It moves the producer to where the
//     members are, and frees pieces of the window that no member needs.
//   - Member is one job's rank in it. Its Run delivers batches, from the window while the member is
//     attached, and else by the job's own stager.
//
// A piece of the window is a batch of the producer. Members have batches of any size: ranges of the
// same stream.
//
// # Goroutines
//
// A Feed owns one, which runs the producer, and a timer while a member waits. Methods of a Member
// are called by its rank's connection. Feed.mu is never held while a batch is sent to a process.
package feed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/share"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
)

// Producer prepares the batches of a rank's stream into its staging buffer. Its methods must be
// safe for concurrent use, and must not block, except for Run and Close.
type Producer interface {
	// Run prepares batches from a step of an epoch on, and calls emit with each, as
	// stage.Stager.Run.
	Run(ctx context.Context, epoch, step int, emit func(*stage.Batch) error) error
	// Wait records that a member waits for the next batch. Yielded must have been called for all
	// that were emitted.
	Wait()
	// WaitForSlots is Wait while slots are about to be freed: there is no need yet for memory beyond
	// the window.
	WaitForSlots()
	// Yielded records that a member has taken a batch, the first one to do so, or that none will.
	Yielded(epoch, step int, stall stage.Stall, hash uint64)
	// Return frees a slot of a batch that was emitted.
	Return(slot uint32) (retired uint32, err error)
	// Window returns the memory of the staging buffer for processes to map, and its size in bytes.
	Window() (file *os.File, size int64)
	// Hold makes the window hold as many batches of so many samples as it would of the producer's, as
	// far as memory allows.
	Hold(samples int)
	// Stuck reports whether no more batches are prepared until some are taken, or slots are freed.
	Stuck() bool
	// Pace returns how long the fastest member works on a batch, in seconds; ok is false if that is
	// not known yet.
	Pace() (seconds float64, ok bool)
	// Close ends the producer. Run must have returned.
	Close()
}

// Options describe a Feed.
type Options struct {
	share.Options
	Name     string // of the group
	Producer Producer
	Shape    Shape // of the producer's epochs
	Log      *slog.Logger
}

// Feed is a group, for one local rank.
type Feed struct {
	o      Options
	ended  context.CancelFunc
	gone   sync.WaitGroup
	window *os.File // the ring, to be mapped by processes
	size   int64    // of the window, in bytes

	mu     sync.Mutex // guards the following
	moved  *sync.Cond // signals all changes
	group  *share.Group
	last   int // the number of the last member
	all    map[int]*Member
	pieces map[int]*stage.Batch // by ID
	taken  int64                // up to which position a member has taken the stream
	sums   map[int]uint64       // by epoch, the audit of the batches that were made
	began  bool                 // the group has started, and the log has it if members were missing
	waits  time.Time            // since when a member waits for what is not made; zero: none does
	err    error                // why the producer does not go on; nil: it does
	timer  *time.Timer
}

// New returns a feed without members, which owns its producer once it returns no error.
func New(o Options) (*Feed, error) {
	file, size := o.Producer.Window()
	window, err := staging.ReadOnly(file)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Feed{
		o: o, ended: cancel, window: window, size: size,
		pieces: make(map[int]*stage.Batch), all: make(map[int]*Member),
	}
	f.o.Begin = func(at int64) int64 { return f.position(f.step(at)) }
	f.group = share.New(f.o.Options)
	f.moved = sync.NewCond(&f.mu)
	f.timer = time.AfterFunc(time.Hour, f.check)
	f.timer.Stop()
	f.gone.Go(func() { f.produce(ctx) })
	return f, nil
}

// Close ends the feed and its producer. All members must have left.
func (f *Feed) Close() {
	f.ended()
	f.wake()
	f.gone.Wait()
	f.timer.Stop()
	f.o.Producer.Close()
	f.window.Close()
}

// wake wakes all that wait.
func (f *Feed) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved.Broadcast()
}

// position returns where a batch of the producer begins.
func (f *Feed) position(epoch, step int) int64 {
	from, _ := f.o.Shape.span(step)
	return int64(epoch)*int64(f.o.Shape.Samples) + from
}

// step returns which batch of the producer has a position.
func (f *Feed) step(at int64) (epoch, step int) {
	samples := int64(f.o.Shape.Samples)
	return int(at / samples), int(at%samples) / f.o.Shape.Batch
}

// produce runs the producer wherever the group needs it, until ctx ends.
func (f *Feed) produce(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ctx.Err() == nil {
		turn, at, running := f.group.Producer()
		if !running {
			f.moved.Wait()
			continue
		}
		f.err, f.sums = nil, make(map[int]uint64)
		epoch, step := f.step(at)
		f.taken = at
		within, cancel := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { f.whileAt(within, turn, cancel) })
		f.mu.Unlock()
		err := f.o.Producer.Run(within, epoch, step, func(b *stage.Batch) error {
			return f.made(turn, b)
		})
		cancel()
		f.wake()
		watch.Wait()
		f.mu.Lock()
		if now, _, _ := f.group.Producer(); now != turn || ctx.Err() != nil {
			continue
		}
		// The job's last epoch is over, or a sample cannot be read.
		f.group.Stopped()
		f.err = err
		if f.err == nil {
			f.err = errOver
		}
		f.moved.Broadcast()
	}
}

// errOver reports that the producer has prepared the last epoch that it was planned for.
var errOver = errors.New("the producer's last epoch is over")

// whileAt calls cancel when the producer is to go elsewhere, and returns then, or when ctx ends.
func (f *Feed) whileAt(ctx context.Context, turn int, cancel context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ctx.Err() == nil {
		if now, _, running := f.group.Producer(); now != turn || !running {
			cancel()
			return
		}
		f.moved.Wait()
	}
}

// errMoved ends a run of the producer that is wanted elsewhere.
var errMoved = errors.New("the group's producer was moved")

// made adds a batch that the producer has prepared to the window.
func (f *Feed) made(turn int, b *stage.Batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, at, running := f.group.Producer()
	if now != turn || !running {
		return errMoved // the batch's memory is freed
	}
	piece := *b
	piece.Extras = nil
	for _, x := range b.Extras {
		file, err := staging.ReadOnly(x.File)
		if err != nil {
			return err
		}
		x.File = file
		piece.Extras = append(piece.Extras, x)
	}
	f.sums[b.Epoch] += b.Audit
	delete(f.sums, b.Epoch-2)
	f.pieces[f.group.Made(at+int64(len(b.IDs))).ID] = &piece
	f.sweep()
	f.moved.Broadcast()
	return nil
}

// sweep frees the memory of pieces that are free. f.mu must be held.
func (f *Feed) sweep() {
	for _, id := range f.group.Freed() {
		b := f.pieces[id]
		delete(f.pieces, id)
		for _, x := range b.Extras {
			x.File.Close()
		}
		for _, slot := range b.Slots {
			if _, err := f.o.Producer.Return(slot); err != nil {
				f.o.Log.Error("free a piece of the window", "error", err)
			}
		}
	}
}

const (
	// holdUpSteps is for how many of the fastest member's batches another may hold it up (CoorDL 4.3:
	// ten times the duration of an iteration), and minHoldUp the time if that is shorter or not
	// known.
	holdUpSteps = 10
	minHoldUp   = time.Second
	maxHoldUp   = time.Minute
	// checkInterval is how often it is checked whether a member holds others up.
	checkInterval = 50 * time.Millisecond
)

// holdUpLimit returns for how long a member may hold up others. f.mu must be held.
func (f *Feed) holdUpLimit() time.Duration {
	pace, ok := f.o.Producer.Pace()
	if !ok {
		return minHoldUp
	}
	return min(max(time.Duration(holdUpSteps*pace*float64(time.Second)), minHoldUp), maxHoldUp)
}

// check detaches members that hold others up, and starts the group once the deadline for members
// that were announced is over.
func (f *Feed) check() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
}

// look is check with f.mu held.
func (f *Feed) look() {
	turn, head, _ := f.group.Producer()
	waiting, behind := f.group.Waiting()
	f.wait(waiting && !behind, head)
	stuck := waiting && behind && f.o.Producer.Stuck()
	detached := f.group.Check(time.Now(), stuck, f.holdUpLimit())
	for _, id := range detached {
		m := f.all[id]
		if m.lags++; m.lags > 1 {
			continue
		}
		f.o.Log.Warn("member detached: the others had to wait for it; it prepares its batches "+
			"itself until it meets the group again", "member", m.name)
	}
	if came, wanted := f.group.Started(); came > 0 && !f.began {
		f.began = true
		if came < wanted {
			f.o.Log.Warn("the group starts without all of its members, as their time is over: those "+
				"that come later share where they meet it; start all jobs within start_timeout",
				"came", came, "share_members", wanted, "start_timeout", f.o.Deadline)
		}
	}
	f.sweep()
	if now, _, _ := f.group.Producer(); now != turn || detached != nil {
		f.moved.Broadcast()
	}
	if waiting || f.group.Gathers() {
		f.timer.Reset(checkInterval)
	}
}

// wait notifies the producer that a member waits for what is not made, if one does.
//
// All memory of the window may be in use then, by members that have yet to process what they were
// sent. They free it within moments, where memory beyond the window takes as long to make as a
// batch. f.mu must be held.
func (f *Feed) wait(waits bool, head int64) {
	if !waits {
		f.waits = time.Time{}
		return
	}
	now := time.Now()
	if f.waits.IsZero() {
		f.waits = now
	}
	f.yield(head, stage.Stall{}) // what a member was given that has left since
	if f.group.Blocked() || now.Sub(f.waits) >= checkInterval {
		f.o.Producer.Wait()
	} else {
		f.o.Producer.WaitForSlots()
	}
}

// block records that a member's process waits, if the member is attached. It has taken, or leaves
// out, what comes before its next batch. f.mu must be held.
func (f *Feed) block(m *Member) {
	if f.group.State(m.id) == share.Attached {
		f.group.Block(m.id)
		f.yield(f.group.Next(m.id), stage.Stall{})
	}
	f.look()
}

// yield records that members have taken the stream up to a position, or that none will. What is not
// made yet is not counted. f.mu must be held.
func (f *Feed) yield(to int64, stall stage.Stall) {
	_, head, _ := f.group.Producer()
	if to = min(to, head); to <= f.taken {
		return
	}
	f.taken = to
	epoch, step := f.step(to - 1)
	f.o.Producer.Yielded(epoch, step, stall, f.sums[epoch])
}
