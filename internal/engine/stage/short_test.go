package stage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// shortRig returns a rig whose batches of two samples are all laid out, with every sample to be
// delivered from the memory class, when memory for the class becomes short. The staging buffer
// holds one batch. end makes the source answer.
func shortRig(t *testing.T) (g *rig, end func()) {
	class, gate := memory.New(memory.Options{}), make(chan struct{})
	o := plain(16, 1)
	o.sizes = slices.Repeat([]int{2000}, 16)
	o.threads = 1
	o.buffer = 4096
	o.ahead = 8
	o.memory, o.memoryClass = 1<<20, class
	o.hook = func(_ context.Context, id int) error {
		<-gate
		return nil
	}
	return newRig(t, o), func() {
		class.Allow(0)
		close(gate)
	}
}

// TestSamplesThatTheirClassCannotTakeShareTheBuffer checks that batches that were to be delivered
// from a storage class get memory of the staging buffer, and no more, if memory becomes short once
// they are laid out; and that they are complete and in order, as the process gives memory back.
func TestSamplesThatTheirClassCannotTakeShareTheBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, short := shortRig(t)
		defer g.close()
		r := g.ranks[0]
		var ended sync.WaitGroup
		var out map[step][]seen
		var err error
		ended.Go(func() { out, err = g.run(r, step{}, 0, 0) })
		synctest.Wait()
		if n := r.stager.laidOut; n != 8 {
			t.Fatalf("%d batches are laid out", n)
		}
		short()
		ended.Wait()
		if err != nil || len(out) != 8 {
			t.Fatalf("%d batches: %v", len(out), err)
		}
		for at, got := range out {
			if !equal(got, g.want(0, at)) {
				t.Errorf("%+v: got %v", at, ids(got))
			}
		}
		if used, extra := r.buffer.Usage(); used != 0 || extra != 0 {
			t.Errorf("everything was returned, but %d and %d bytes are in use", used, extra)
		}
	})
}

// TestNoSegmentsBeyondTheBufferIfAClassIsShort checks that batches beyond what the staging buffer
// holds wait for memory, and that a process that keeps all of it gets one extra segment for the
// whole batch that it waits for.
func TestNoSegmentsBeyondTheBufferIfAClassIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, short := shortRig(t)
		defer g.close()
		r, got := g.ranks[0], make(chan *Batch, 8)
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		defer ended.Wait()
		defer cancel()
		ended.Go(func() {
			_ = r.stager.Run(ctx, 0, 0, func(b *Batch) error { got <- b; return nil })
		})
		synctest.Wait()
		short()
		synctest.Wait()
		if _, extra := r.buffer.Usage(); extra > 0 {
			t.Fatalf("%d bytes are in extra segments, and the process does not wait", extra)
		}
		if len(got) != 1 || !r.stager.Stuck() {
			t.Errorf("%d batches are sent, stuck: %v", len(got), r.stager.Stuck())
		}
		for n := range 8 {
			r.stager.Wait()
			synctest.Wait()
			if len(got) != 1 {
				t.Fatalf("the process waits for batch %d, and gets %d", n, len(got))
			}
			if b := <-got; b.Step != n || len(b.Extras) > 1 || (len(b.Extras) == 0) != (n == 0) {
				t.Errorf("batch %d in place of %d has segments %v", b.Step, n, b.Extras)
			}
			r.stager.Taken(0, n, Stall{})
		}
	})
}

// TestStreamIsRightWhileMemoryComesAndGoes checks that batches are complete and in order, however
// often memory for the class becomes short, however small the buffer is, and whatever the process
// keeps; and that the buffer is empty at the end.
func TestStreamIsRightWhileMemoryComesAndGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.IntRange(1, 60).Draw(t, "samples")
		o := plain(samples, 3)
		for i := range o.sizes {
			o.sizes[i] = 1 + i*rapid.SampledFrom([]int{0, 10, 90}).Draw(t, "size")
		}
		class, every := memory.New(memory.Options{}), rapid.IntRange(1, 9).Draw(t, "every")
		o.memory = 1 << 20
		o.memoryClass = class
		o.spec.Shuffle = access.Torch
		o.buffer = 4096 * int64(rapid.IntRange(1, 4).Draw(t, "pages"))
		o.spec.GlobalBatch = rapid.IntRange(1, 12).Draw(t, "batch")
		o.ahead = rapid.IntRange(1, 8).Draw(t, "ahead")
		var reads atomic.Int64
		o.hook = func(context.Context, int) error {
			class.Allow(reads.Add(1) / int64(every) % 2 << 20)
			return nil
		}
		g := newRig(t, o)
		defer g.close()
		got, err := g.run(g.ranks[0], step{}, 0, rapid.IntRange(0, 5).Draw(t, "kept"))
		if err != nil || len(got) != 3*g.stream.Steps() {
			t.Fatalf("%d batches, want %d: %v", len(got), 3*g.stream.Steps(), err)
		}
		for at, batch := range got {
			if want := g.want(0, at); !equal(batch, want) {
				t.Fatalf("batch %v is %v, want %v", at, ids(batch), ids(want))
			}
		}
		if used, extra := g.ranks[0].buffer.Usage(); used != 0 || extra != 0 {
			t.Fatalf("everything was returned, but %d and %d bytes are in use", used, extra)
		}
	})
}

// TestStandInsShareTheBuffer checks that a larger sample that is delivered for an unreadable one
// gets no memory beyond the staging buffer.
func TestStandInsShareTheBuffer(t *testing.T) {
	o := plain(8, 1)
	o.policy = Substitute
	o.buffer = 4096
	o.threads = 1
	o.sizes = []int{1000, 1000, 10, 2500, 10, 2500, 10, 2500}
	g := newRig(t, o)
	defer g.close()
	for _, id := range []int{2, 4, 6} {
		g.source.Bad[id] = true
	}
	out, err := g.run(g.ranks[0], step{}, 0, 0)
	if err != nil || !slices.Equal(stream(out), []int{0, 1, 3, 3, 5, 5, 7, 7}) {
		t.Errorf("%v, %v", stream(out), err)
	}
	for _, f := range g.faults.List() {
		if f.Count != 1 {
			t.Errorf("sample %d was left out once, and is counted %d times", f.Sample, f.Count)
		}
	}
}
