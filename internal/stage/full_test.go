package stage

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// roomFor is a rig whose staging buffer has room for so many batches, and whose rank's Run sends
// its batches to got once it is begun.
func roomFor(t *testing.T, batches int,
	hook func(ctx context.Context, id int) error,
) (g *rig, got chan *Batch, begin, end func()) {
	o := plain(8, 2)
	o.sizes, o.buffer, o.hook = slices.Repeat([]int{2000}, 8), 4096*int64(batches), hook
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

// TestStallForRoomIsTheConsumers: what next() waits for while the process keeps all of the staging
// buffer is charged to the consumer.
func TestStallForRoomIsTheConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, got, begin, end := roomFor(t, 1, nil)
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

// sized is a preprocessor whose results have the size that a sample's ID says, and which expects
// 1000 bytes.
type sized struct{ summary }

func (sized) Size() int            { return 0 }
func (sized) Expected(int64) int64 { return 1000 }

func (sized) Apply(room func(int) ([]byte, error), _ []byte, _, id int, _ []time.Duration) error {
	_, err := room(1000 * (1 + id/2))
	return err
}

// TestStallForRoomOfAParkedSampleIsTheConsumers: also where the room is found to lack when the
// batch is nearly complete.
func TestStallForRoomOfAParkedSampleIsTheConsumers(t *testing.T) {
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
			t.Fatal("there was room for both")
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

// TestSegmentForAProcessThatWaits: where the process keeps the whole buffer, the next batch lies in
// a segment of its own once the process waits for it, has taken all that was sent, and nothing is
// on its way; and not before.
func TestSegmentForAProcessThatWaits(t *testing.T) {
	extra := func(g *rig) int64 {
		<-time.After(time.Second)
		_, bytes := g.ranks[0].buffer.Usage()
		return bytes
	}
	t.Run("it waited for the batch before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, got, begin, end := roomFor(t, 1, nil)
			defer end()
			s := g.ranks[0].stager
			s.o.First = 1
			s.Wait()
			begin()
			first := <-got
			s.Taken(0, 0)
			if n := extra(g); n != 0 || len(got) > 0 {
				t.Errorf("it does not wait, and %d bytes are in a segment", n)
			}
			s.Wait()
			second := <-got
			if len(second.Extras) != 1 {
				t.Errorf("it waits, and gets a batch with the segments %v", second.Extras)
			}
			g.giveBack(g.ranks[0], first)
			g.giveBack(g.ranks[0], second)
		})
	})
	t.Run("a batch is on its way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			g, got, begin, end := roomFor(t, 2, func(_ context.Context, id int) error {
				if id == 2 { // of the second batch
					<-gate
				}
				return nil
			})
			defer end()
			s := g.ranks[0].stager
			begin()
			first := <-got
			s.Taken(0, 0)
			s.Wait()
			if n := extra(g); n != 0 {
				t.Errorf("while the batch that it waits for is read, %d bytes are in a segment", n)
			}
			close(gate)
			second := <-got
			if n := extra(g); n != 0 || len(second.Extras) > 0 || len(got) > 0 {
				t.Errorf("it got the batch that was read, and %d bytes are in a segment", n)
			}
			g.giveBack(g.ranks[0], first)
			g.giveBack(g.ranks[0], second)
		})
	})
}
