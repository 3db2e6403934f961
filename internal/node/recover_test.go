package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// recovery is a job on two nodes. Their link is slow in some epochs, of one second each, and the
// source is fast.
type recovery struct {
	rate     int64 // of the slow link, bytes per second
	ahead    int   // batches
	from, to int   // epochs in which the link is slow
	epochs   int
}

// epoch is what node 0 has done by the beginning of an epoch.
type epoch struct {
	source, peer int64 // samples
	begun        time.Time
}

// run returns what was done by the beginning of each epoch.
func (y recovery) run(t *testing.T) (epochs []epoch) {
	c := newVirtualNodes(t, 2, false)
	link := func(rate int64) {
		l := networktest.Link{Delay: 50 * time.Microsecond, Rate: rate}
		c.network.Set("10.0.0.1", "10.0.0.2", l)
		c.network.Set("10.0.0.2", "10.0.0.1", l)
	}
	link(100e6)
	sizes, all := comparedSizes()
	for k := range sizes { // more than what nodes send each other besides
		sizes[k] *= 10
	}
	for _, w := range c.worlds {
		w.sizes = sizes
		w.read = func(ctx context.Context, _ int) error {
			<-time.After(time.Millisecond)
			return ctx.Err()
		}
	}
	ranks, errs := c.openUntil(t.Context(), func() {}, 1, func(int) []func(*request.Open) {
		return []func(*request.Open){
			set("policy", "cooperative"), set("memory", fmt.Sprintf("%dB", all*55/10)),
			set("staging_buffer", "10MB"), set("prefetch_batches", y.ahead),
			func(m *request.Open) {
				m.ConfigFile = ""
				m.Stream.Epochs, m.Stream.GlobalBatch = y.epochs, 2*comparedBatch
			},
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	barrier := &steps{ranks: 2, next: make(chan struct{})}
	together(ranks, func(r *Rank) {
		r.Wait()
		sum, since := uint64(0), time.Now()
		err := r.Run(t.Context(), 0, 0, func(b *stage.Batch) error {
			if b.Step == 0 {
				sum = 0
			}
			if b.Step == 0 && r == ranks[0] {
				switch b.Epoch {
				case y.from:
					link(y.rate)
				case y.to:
					link(100e6)
				}
				e := epoch{begun: time.Now()}
				for _, tier := range r.Report().Tiers {
					switch tier.Tier {
					case "source":
						e.source = tier.Samples
					case "peer":
						e.peer = tier.Samples
					}
				}
				epochs = append(epochs, e)
			}
			sum += b.Audit
			r.Yielded(b.Epoch, b.Step, stage.Stall{All: time.Since(since)}, sum)
			time.Sleep(comparedStep)
			for _, slot := range b.Slots {
				if _, err := r.Return(slot); err != nil {
					return err
				}
			}
			barrier.wait()
			r.Wait()
			since = time.Now()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	closeAll(ranks)
	c.close()
	return epochs
}

// TestRecoveredLinkIsUsed has a link be slow for 20 epochs and then fast again, while the source is
// fast all the time. After 5 s, samples come from the other node again, and not from the source;
// that the link is tried while it is slow takes few requests, and hardly any time.
func TestRecoveredLinkIsUsed(t *testing.T) {
	for _, rate := range []int64{1e4, 1e5} { // a sample takes 1 s, and 0.1 s
		for _, ahead := range []int{4, 40} {
			t.Run(fmt.Sprintf("%d_bytes_per_second/%d_batches", rate, ahead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					y := recovery{rate: rate, ahead: ahead, from: 2, to: 22, epochs: 30}
					y.check(t, y.run(t))
				})
			})
		}
	}
}

func (y recovery) check(t *testing.T, e []epoch) {
	tried, slow := e[y.from+4], e[y.to]
	last := e[y.epochs-1]
	// A sample that takes 0.1 s may come in time.
	few := 1 + (slow.source-tried.source)/100
	if got := slow.peer - tried.peer; y.rate == 1e4 && got > few {
		t.Errorf("%d samples have come over the slow link; want %d at most", got, few)
	}
	took, most := slow.begun.Sub(tried.begun), time.Duration(y.to-y.from-4)*1060*time.Millisecond
	if took > most {
		t.Errorf("the epochs with a slow link took %v; want %v at most", took, most)
	}
	at := slices.IndexFunc(e, func(e epoch) bool {
		return e.begun.Sub(slow.begun) > 5*time.Second
	})
	read, all := last.source-e[at].source, last.peer-e[at].peer
	if read > all/100 || all == 0 {
		t.Errorf("later than 5 s after the link is fast again, %d samples have come from the source "+
			"and %d over the link", read, all)
	}
}
