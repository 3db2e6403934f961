package stage

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fullRig returns a rig whose staging buffer holds this number of batches. begin starts a Run that
// sends its batches to got.
func fullRig(t *testing.T, batches int,
	hook func(ctx context.Context, id int) error,
) (g *rig, got chan *Batch, begin, end func()) {
	o := plain(8, 2)
	o.sizes = slices.Repeat([]int{2000}, 8)
	o.buffer = 4096 * int64(batches)
	o.hook = hook
	g = newRig(t, o)
	got = make(chan *Batch, 8)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	begin = func() {
		ended.Go(func() {
			_ = g.ranks[0].stager.Run(ctx, 0, 0, func(b *Batch) error { got <- b; return nil })
		})
	}
	return g, got, begin, func() {
		cancel()
		ended.Wait()
		g.close()
	}
}

// TestStallForMemoryIsTheConsumers checks that a stall is charged to the consumer while the process
// keeps the whole staging buffer.
func TestStallForMemoryIsTheConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, got, begin, end := fullRig(t, 1, nil)
		defer end()
		r := g.ranks[0]
		begin()
		first := <-got
		r.ledger.Yielded(0, 0, Stall{})
		<-time.After(5 * time.Second)
		g.giveBack(r, first)
		second := <-got
		r.ledger.Yielded(0, 1, Stall{All: time.Second})
		if stall := r.ledger.Epochs()[0].Stall; stall[causeConsumer] != 1 {
			t.Errorf("stall %v, want 1 s for the consumer", stall)
		}
		g.giveBack(r, second)
	})
}

// sized is a preprocessor whose results grow with the sample's ID, and which expects 1000 bytes.
type sized struct{ summary }

func (sized) Size(int) int         { return 0 }
func (sized) Expected(int64) int64 { return 1000 }

func (sized) Apply(alloc func(int, int) ([]byte, error), _ [][]byte, _ uint8, _, id, _ int,
	_ bool, _ []time.Duration,
) error {
	_, err := alloc(0, 1000*(1+id/2))
	return err
}

// TestStallOfAParkedSampleIsTheConsumers checks that a stall is charged to the consumer also if
// memory turns out to be lacking when the batch is nearly complete.
func TestStallOfAParkedSampleIsTheConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(4, 1)
		o.buffer, o.preprocessor = 4096, sized{}
		g := newRig(t, o)
		defer g.close()
		r, got := g.ranks[0], make(chan *Batch, 2)
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
				got <- b
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		first := <-got
		r.ledger.Yielded(0, 0, Stall{})
		<-time.After(5 * time.Second)
		if len(got) > 0 {
			t.Fatal("both batches fit")
		}
		g.giveBack(r, first)
		second := <-got
		r.ledger.Yielded(0, 1, Stall{All: time.Second})
		if stall := r.ledger.Epochs()[0].Stall; stall[causeConsumer] != 1 {
			t.Errorf("stall %v, want 1 s for the consumer", stall)
		}
		g.giveBack(r, second)
		ended.Wait()
	})
}

// TestExtraSegmentForAWaitingProcess checks that if the process keeps the whole buffer, the next
// batch gets an extra segment once the process waits for it, has taken all batches that were sent,
// and none is on its way; and not before.
func TestExtraSegmentForAWaitingProcess(t *testing.T) {
	extra := func(g *rig) int64 {
		<-time.After(time.Second)
		_, bytes := g.ranks[0].buffer.Usage()
		return bytes
	}
	t.Run("no batch is on its way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, got, begin, end := fullRig(t, 1, nil)
			defer end()
			s := g.ranks[0].stager
			s.o.First = 1
			s.Wait()
			begin()
			first := <-got
			s.Taken(0, 0, Stall{})
			if n := extra(g); n != 0 || len(got) > 0 {
				t.Errorf("the process does not wait, but %d bytes are in an extra segment", n)
			}
			s.Wait()
			second := <-got
			if len(second.Extras) != 1 {
				t.Errorf("the process waits, and gets a batch with segments %v", second.Extras)
			}
			g.giveBack(g.ranks[0], first)
			g.giveBack(g.ranks[0], second)
		})
	})
	t.Run("the process waited before the first batch was on its way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			g, got, begin, end := fullRig(t, 1, func(context.Context, int) error {
				<-gate
				return nil
			})
			defer end()
			s := g.ranks[0].stager
			s.Wait()
			begin()
			if n := extra(g); n != 0 {
				t.Errorf("%d bytes are in an extra segment while the first batch is read", n)
			}
			close(gate)
			g.giveBack(g.ranks[0], <-got)
		})
	})
	t.Run("a batch is on its way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			g, got, begin, end := fullRig(t, 2, func(_ context.Context, id int) error {
				if id == 2 { // of the second batch
					<-gate
				}
				return nil
			})
			defer end()
			s := g.ranks[0].stager
			begin()
			first := <-got
			s.Taken(0, 0, Stall{})
			s.Wait()
			if n := extra(g); n != 0 {
				t.Errorf("%d bytes are in an extra segment while the awaited batch is read", n)
			}
			close(gate)
			second := <-got
			if n := extra(g); n != 0 || len(second.Extras) > 0 || len(got) > 0 {
				t.Errorf("%d bytes are in an extra segment after the awaited batch was read", n)
			}
			g.giveBack(g.ranks[0], first)
			g.giveBack(g.ranks[0], second)
		})
	})
}
