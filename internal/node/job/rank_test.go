package job

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/lockstep"
	"github.com/hdmlp/hdmlp/internal/node/order"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/store"
)

// take returns a function that takes all batches of a Run, and reports the first ones as yielded.
func take(r *Rank, told int) func(b *stage.Batch) error {
	return func(b *stage.Batch) error {
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		if told--; told >= 0 {
			r.Yielded(b.Epoch, b.Step, stage.Stall{}, 0)
		}
		return nil
	}
}

// TestRunLastsUntilTheLastBatchIsTaken checks that a rank whose last batches were sent, and not yet
// taken, ends before the batch at which another rank stops.
func TestRunLastsUntilTheLastBatchIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(c *Config, _ *Parts) { c.Prefetch = 3 })
		r := w.join(t, 0)
		defer r.Close()
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context(), 3, 0, take(r, 2)) }()
		synctest.Wait()
		if last := r.stager.Staged(); last != 3 {
			t.Errorf("%d batches are staged", last)
		}
		w.p.Stops.Hear([]lockstep.Stop{{
			Rank: 1, Node: 1, Host: "b", At: 11, Error: failure.Error{Kind: failure.Sample},
		}})
		if err := <-ended; failure.Of(err).Kind != failure.Sample {
			t.Errorf("the rank is told %v", err)
		}
	})
}

// TestBatchThatWasTakenBeforeIsTakenAgain checks that a Run that goes back lasts until its last
// batch is taken in it, although the process took that batch in the Run before.
func TestBatchThatWasTakenBeforeIsTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		r := w.join(t, 0)
		defer r.Close()
		if err := r.Run(t.Context(), 3, 0, take(r, 3)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context(), 3, 2, take(r, 0)) }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("it ended before its batch was taken: %v", <-ended)
		}
		r.Yielded(3, 2, stage.Stall{}, 0)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestSegmentsEndAfterTheirBatches checks that a segment that is given back is settled after the
// batches in progress, and gone when the process reports it; at once if no process is to be
// notified.
func TestSegmentsEndAfterTheirBatches(t *testing.T) {
	w := start(t, nil)
	r := w.join(t, 0)
	defer r.Close()
	settled, gone := 0, 0
	vacate := func() { r.Vacate(0, 7, nil, func() { settled++ }, func() { gone++ }) }
	if vacate(); settled != 1 || gone != 1 {
		t.Errorf("before a run: settled %d times, gone %d times", settled, gone)
	}
	var dropped []uint32
	var end func()
	r.OnDrop(func(number uint32, gone func()) { dropped, end = append(dropped, number), gone })
	first := true
	takes := take(r, 3)
	err := r.Run(t.Context(), 3, 0, func(b *stage.Batch) error {
		if first {
			vacate()
		}
		if first = false; b.Step == 0 && settled != 1 {
			t.Error("the segment is settled before a batch that may name it is emitted")
		}
		return takes(b)
	})
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := stage.OfClass(dropped[0]); settled != 2 || len(dropped) != 1 || !ok ||
		at.Number != 7 || gone != 1 {
		t.Errorf("settled %d times, dropped %v, gone %d times", settled, dropped, gone)
	}
	if end(); gone != 2 {
		t.Error("the segment is not gone when the process has dropped it")
	}
}

// TestSegmentsOfClasses checks that a process is given a segment that a batch names of a storage
// class, and no other.
func TestSegmentsOfClasses(t *testing.T) {
	w := start(t, func(_ *Config, p *Parts) {
		source := cachetest.NewSource(t, slices.Repeat([]int{sampleSize}, samples))
		stores := cachetest.Open(t, source, cachetest.Options{Memory: 1 << 20})
		kept := cache.New(cache.Options{
			Index: source.Index, Source: source, Threads: cache.Threads{Start: 1},
			Classes: []cache.Class{{Name: stores.Names[0], Store: stores.Stores[0]}},
		})
		t.Cleanup(func() {
			kept.Close()
			stores.Close(t)
		})
		if err := stores.Stores[0].Put(3, make([]byte, sampleSize), store.Origin{}); err != nil {
			t.Fatal(err)
		}
		p.Cache, p.Use = kept, kept.Use(nil)
	})
	r := w.join(t, 0)
	defer r.Close()
	number := stage.ClassSegment(cache.Segment{})
	if s, ok := r.Segment(number); !ok || s.File == nil || s.Size < sampleSize ||
		s.Number != number || s.Writable {
		t.Errorf("segment %d is %+v, %v", number, s, ok)
	}
	if s, ok := r.Segment(number + 1); ok {
		t.Errorf("segment %d is %+v, but there is none", number+1, s)
	}
}

// TestSamplesThatWereLeftOutAreAudited checks that an epoch is complete without a sample that a
// process cannot decode, if such samples are left out.
func TestSamplesThatWereLeftOutAreAudited(t *testing.T) {
	w := start(t, func(_ *Config, p *Parts) { p.Unusable = NewUnusable("skip") })
	ranks := []*Rank{w.join(t, 0), w.join(t, 1)}
	if policy, err := ranks[0].Unusable(5, "it is no image"); policy != "skip" || err != nil {
		t.Fatal(policy, err)
	}
	for n, r := range ranks {
		defer r.Close()
		if got := epoch(t, r, 3); slices.Contains(got, 5) {
			t.Errorf("rank %d got %v", n, got)
		}
	}
	if a, err := ranks[0].Audit(t.Context(), 3); err != nil || !a.Complete || a.Samples != 11 {
		t.Errorf("audited as %+v, %v", a, err)
	}
	for _, e := range []int{-1, 4} {
		if _, err := ranks[0].Audit(t.Context(), e); err == nil ||
			!strings.Contains(err.Error(), "epoch out of range") {
			t.Errorf("epoch %d: %v", e, err)
		}
	}
}

// TestRankWaitsForItsNextEpoch checks that a run goes on when the process supplies the next epoch,
// and ends after the last one that it has supplied.
func TestRankWaitsForItsNextEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(c *Config, p *Parts) {
			o, err := order.New(&request.Open{WorldSize: 1, Stream: request.Stream{
				Epochs: 3, Shuffle: "given", Given: &request.Given{Entries: 4},
			}}, &request.Order{Batches: []int32{2, 2}, Epochs: [][]int32{{0, 1, 2, 3}}}, 1,
				p.Order.Index(), nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Ranks = []int{0}
			c.Prefetch = 4
			p.Order = o
		})
		r := w.join(t, 0)
		defer r.Close()
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context(), 0, 0, take(r, 1)) }()
		synctest.Wait()
		fd, err := unix.MemfdCreate("order", 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "order")
		defer f.Close()
		if _, err = f.Write(make([]byte, 16)); err == nil {
			err = r.Give(request.Give{Epoch: 1, Entries: 4}, f)
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := r.stager.Staged(); n != 4 {
			t.Errorf("%d batches are staged, want those of both epochs", n)
		}
		for e := range 2 {
			for step := range 2 {
				r.Yielded(e, step, stage.Stall{}, 0)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestFailedJobBeginsNoRun checks that a rank of a job that has failed gets no batch.
func TestFailedJobBeginsNoRun(t *testing.T) {
	w := start(t, nil)
	r := w.join(t, 0)
	defer r.Close()
	why := errors.New("out of memory")
	w.Fail(why)
	err := r.Run(context.Background(), 0, 0, func(*stage.Batch) error {
		t.Error("a batch of a job that has failed")
		return nil
	})
	if !errors.Is(err, why) {
		t.Error(err)
	}
	if now := w.epochNow.Load(); now != none {
		t.Errorf("epoch %d has begun", now)
	}
	if s, ok := r.Segment(1); ok {
		t.Errorf("segment 1 of the staging buffer is segment %+v of a class", s)
	}
}

// TestBuffersGrowIntoFreeMemory checks that a staging buffer grows only if several times as much
// memory is free.
func TestBuffersGrowIntoFreeMemory(t *testing.T) {
	var asked []int64
	refused := errors.New("too little memory")
	w := start(t, func(_ *Config, p *Parts) {
		p.Admit = func(bytes int64, what, _ string) error {
			if what != "staging buffer" {
				return nil
			}
			if asked = append(asked, bytes); len(asked) > 1 {
				return refused
			}
			return nil
		}
	})
	if !w.grow(1000) || w.grow(500) || !slices.Equal(asked, []int64{4000, 2000}) {
		t.Errorf("asked for %v", asked)
	}
	if all := w.buffers.changes(); len(all) != 1 || all[0].bytes != 1000 {
		t.Errorf("grown %+v", all)
	}
}

// TestRankThatComesBackHasOneBuffer checks that the reported size of the staging buffers does not
// grow when a rank leaves, and joins again.
func TestRankThatComesBackHasOneBuffer(t *testing.T) {
	w := start(t, func(config *Config, _ *Parts) { config.Staging = 0 })
	for range 3 {
		r := w.join(t, 0)
		if more := int64(1 << 20); w.grow(more) {
			r.buffer.Grow(more)
		}
		if all := w.Report().Buffers; all[len(all)-1].To != r.buffer.Limit() {
			t.Errorf("the buffer has %d bytes, reported are %+v", r.buffer.Limit(), all)
		}
		r.Close()
	}
}

// TestRanksAreWarnedOnce checks that each of several ranks that cause a warning gets it once.
func TestRanksAreWarnedOnce(t *testing.T) {
	w := start(t, func(config *Config, _ *Parts) { config.Staging = 1 })
	for rank := range 2 {
		r := w.join(t, rank)
		defer r.Close()
		w.Warn("alone")
		if all := r.Opened().Warnings; len(all) != 2 || !strings.Contains(all[0], "staging_buffer") {
			t.Errorf("rank %d is warned %q", rank, all)
		}
	}
}
