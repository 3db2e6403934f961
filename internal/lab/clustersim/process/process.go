// Package process plays a training process of a simulated job: it opens the job as one rank, takes
// batches as the Python package does, reads the bytes of each twice, when it is taken and before it
// is returned, and begins again after errors.
//
// A Process is used by one goroutine, except where a method's comment states otherwise.
package process

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

var (
	// ErrEnd reports that the last batch was taken.
	ErrEnd = errors.New("the stream has ended")
	// ErrWrong reports a batch that differs from its description.
	ErrWrong = errors.New("wrong batch")
)

// Options describe a process.
type Options struct {
	Node    *node.Node
	Request request.Open
	// Content returns the bytes that are due for a sample.
	Content func(id int) []byte
	Label   func(id int) int
	// Decodes reports whether the process can decode a sample. It reports those that it cannot, and
	// takes their batches again.
	Decodes func(id int) bool
	Hold    int // batches that are kept before they are returned
	// Keeps has these kept also while the process waits for a batch. What it has of them outside of
	// the staging buffer is then compared with what the job reports of that.
	Keeps bool
	// Part returns the process's part of an epoch, which it gives before it begins the epoch; nil:
	// the job draws its orders. Stream.Given of the request has all but the number of samples.
	Part func(epoch int) []int
	// Lies has the process say in this epoch that it got other samples than it did; negative: never.
	Lies int
	// Told, if not nil, is called with what opening the job waits for, as reported to the process.
	Told func(what string)
	// Calm is set if nothing goes wrong. The process then gets memory outside of the staging buffer
	// only because of batches that it keeps.
	Calm bool
	// Notes has the process return slots in the return ring, not by calls.
	Notes bool
}

// Process is a training process that has the job open.
type Process struct {
	o        Options
	rank     *node.Rank
	given    int // the last epoch that it gave
	steps    int
	position int // of the next batch, counted over all epochs
	audit    uint64
	held     []*batch
	ring     segment
	asked    time.Time // when it asked for the last batch
	noted    uint64    // slots in the return ring
	begun    int       // how often it has begun a stream

	run  context.CancelFunc // ends the stream; nil: there is none
	over chan struct{}      // closed when the stream has ended

	mu     sync.Mutex // guards the following
	queue  []item
	news   chan struct{} // receives a token when something is added
	mapped map[uint32]segment
	gone   map[uint32]func() // segments to drop, with what is to be called then
	closed bool
}

// item is a batch, or the end of the stream.
type item struct {
	batch *batch
	err   error // of the stream; nil with a nil batch: the last batch was taken
}

// batch is a copy of a stage.Batch, with what it maps.
type batch struct {
	stage.Batch
	at       []segment // by sample
	extras   []segment
	position int
}

// Open opens the job. It waits for the other ranks, and gives up when ctx ends.
func Open(ctx context.Context, o Options) (*Process, error) {
	if o.Part != nil {
		list, err := first(&o)
		if err != nil {
			return nil, err
		}
		defer list.Close() //nolint:errcheck // it is memory
	}
	rank, err := o.Node.Open(ctx, o.Request, nil, func(s request.Step) {
		if o.Told != nil && !s.Warning {
			o.Told(s.What)
		}
	})
	if err != nil {
		return nil, err
	}
	p := &Process{
		o: o, rank: rank, steps: rank.Opened().Steps, news: make(chan struct{}, 1),
		mapped: map[uint32]segment{}, gone: map[uint32]func(){},
	}
	if o.Part != nil {
		p.given = o.Request.Stream.Given.First
	}
	for _, s := range rank.Segments() {
		if p.ring, err = mapFile(s.File, s.Size+returns, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			rank.Close()
			return nil, err
		}
		if unix.Ftruncate(int(s.File.Fd()), 0) == nil {
			rank.Close()
			return nil, fmt.Errorf("%w: a process can take the daemon its memory", ErrWrong)
		}
	}
	rank.OnDrop(p.drop)
	return p, nil
}

// Steps returns the number of batches in an epoch.
func (p *Process) Steps() int { return p.steps }

// Begin begins a stream at a batch, after ending the one before.
func (p *Process) Begin(position int) error {
	p.stop()
	for epoch := p.given + 1; p.o.Part != nil && epoch < position/p.steps; epoch++ {
		if p.o.Part(epoch) != nil { // it is given up before its first batch
			if err := p.begin(epoch * p.steps); err != nil {
				return err
			}
			p.stop()
		}
	}
	return p.begin(position)
}

func (p *Process) begin(position int) error {
	if err := p.give(position / p.steps); err != nil {
		return err
	}
	if err := p.rank.Check(position/p.steps, position%p.steps); err != nil {
		return err
	}
	p.begun++
	ctx, cancel := context.WithCancel(context.Background())
	p.run = cancel
	p.over = make(chan struct{})
	p.position = position
	p.audit = 0
	go func() {
		defer close(p.over)
		err := p.rank.Run(ctx, position/p.steps, position%p.steps, func(b *stage.Batch) error {
			copied, err := p.receive(b)
			if err == nil {
				p.add(item{batch: copied})
			}
			return err
		})
		if ctx.Err() == nil {
			p.add(item{err: err})
		}
	}()
	return nil
}

// stop ends the stream, and returns what was not taken.
func (p *Process) stop() {
	if p.run == nil {
		return
	}
	p.run()
	<-p.over
	p.run = nil
	p.mu.Lock()
	queue := p.queue
	p.queue = nil
	p.mu.Unlock()
	for _, i := range queue {
		if i.batch != nil {
			_ = p.release(i.batch)
		}
	}
}

func (p *Process) add(i item) {
	p.mu.Lock()
	said := p.o.Request.Arguments // others in a group may have what is ahead of this process
	if most, ok := said["prefetch_batches"].(int); ok && i.batch != nil && said["share"] == nil &&
		len(p.queue) >= most {
		i = item{err: fmt.Errorf("%w: %d batches are ahead", ErrWrong, len(p.queue)+1)}
	}
	p.queue = append(p.queue, i)
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// Next takes the next batch, and checks it. It waits until ctx ends. Its errors are ctx's, ErrEnd,
// ErrWrong, and the stream's.
func (p *Process) Next(ctx context.Context) (*stage.Batch, error) {
	waiting := false
	p.asked = time.Now()
	for {
		p.mu.Lock()
		p.letGo()
		var next item
		some := len(p.queue) > 0
		if some {
			next, p.queue = p.queue[0], p.queue[1:]
		}
		p.mu.Unlock()
		switch {
		case some && next.batch != nil && p.ends(next.batch.position):
			if err := p.release(next.batch); err != nil {
				return nil, err
			}
		case some && next.batch != nil:
			again, err := p.reject(next.batch)
			if err != nil {
				return nil, err
			}
			if !again {
				return p.take(next.batch)
			}
			waiting = false
		case some && next.err == nil && p.o.Part != nil &&
			p.position < p.o.Request.Stream.Epochs*p.steps: // of the epochs given so far
			if err := p.Begin(p.position); err != nil {
				return nil, err
			}
			waiting = false
		case some && next.err == nil:
			return nil, ErrEnd
		case some:
			p.rank.Raised()
			return nil, detailed(next.err)
		default:
			if !waiting {
				if err := p.giveBack(); err != nil {
					return nil, err
				}
				p.rank.Wait()
				waiting = true
			}
			select {
			case <-p.news:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// reject reports the samples of a batch that the process cannot decode. again reports whether there
// are any: then the stream begins again with the batch.
func (p *Process) reject(b *batch) (again bool, err error) {
	for _, id := range b.IDs {
		if !p.o.Decodes(int(id)) {
			again = true
			if _, err := p.rank.Unusable(int(id), "it cannot be decoded"); err != nil {
				return true, err
			}
		}
	}
	if !again {
		return false, nil
	}
	if err := p.release(b); err != nil {
		return true, err
	}
	audit := p.audit
	err = p.Begin(p.position)
	p.audit = audit
	return true, err
}

// take checks a batch, and holds it.
func (p *Process) take(b *batch) (*stage.Batch, error) {
	p.held = append(p.held, b)
	if b.position != p.position {
		return nil, fmt.Errorf("%w: batch %d of the stream instead of %d", ErrWrong, b.position,
			p.position)
	}
	p.position++
	if err := cmp.Or(p.check(b), p.array(b)); err != nil {
		return nil, err
	}
	if b.Step == 0 {
		p.audit = 0
	}
	p.audit += b.Audit
	if sum := sum(b.Epoch, b.IDs); b.Audit != sum {
		return nil, fmt.Errorf("%w: its samples sum to %#x, not to %#x", ErrWrong, sum, b.Audit)
	}
	hash := p.audit
	if b.Epoch == p.o.Lies {
		hash++
	}
	p.rank.Yielded(b.Epoch, b.Step, stage.Stall{All: time.Since(p.asked)}, hash)
	return &b.Batch, p.overflows(b)
}

// ends reports whether another rank's stream ended before a batch, as the daemon records in shared
// memory.
func (p *Process) ends(position int) bool {
	word := binary.LittleEndian.Uint64(p.ring.data[len(p.ring.data)-8:])
	return word > 0 && uint64(position) >= word-1
}

// Close ends the process. Batches in its hands are not returned.
func (p *Process) Close() {
	p.stop()
	p.mu.Lock()
	p.closed = true
	gone := p.gone
	p.gone = nil
	p.mu.Unlock()
	for _, f := range gone {
		f()
	}
	p.rank.Close()
	for _, s := range p.mapped {
		s.unmap()
	}
	for _, b := range p.held {
		for _, s := range b.extras {
			s.unmap()
		}
	}
	p.ring.unmap()
}
