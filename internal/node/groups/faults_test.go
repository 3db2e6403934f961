package groups

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// deaf is a host on which a listen fails from some number on.
type deaf struct {
	cluster.Network
	fails int32
	seen  *atomic.Int32
}

func (d deaf) Listen(address string) (net.Listener, error) {
	if d.seen.Add(1) >= d.fails {
		return nil, &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}
	}
	return d.Network.Listen(address)
}

// TestMembersGoOnAloneIfTheProducerCannotBeOpened on one of the nodes, and are warned.
func TestMembersGoOnAloneIfTheProducerCannotBeOpened(t *testing.T) {
	for broken := range 2 {
		synctest.Test(t, func(t *testing.T) {
			var seen atomic.Int32
			w := newWorld(t, 2, func(k int, of cluster.Network) cluster.Network {
				if k != broken {
					return of
				}
				// A job listens for samples, for failure detection and, on node 0, for nodes.
				return deaf{Network: of, fails: int32(4 - broken), seen: &seen}
			})
			jobs := w.jobs(1, 1)
			for _, r := range jobs[0] {
				if all := strings.Join(r.Opened().Warnings, "\n"); !strings.Contains(all,
					"could not be opened") {
					t.Errorf("node %d broken: rank %d is warned of %q", broken, r.Number(), all)
				}
			}
			got := train(jobs, 0, all(2))
			closeAll(jobs)
			w.close()
			check(t, got, 0, all(2))
		})
	}
}

// TestANodeThatIsCutOffCostsTheOthersNothing but time.
func TestANodeThatIsCutOffCostsTheOthersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, nil)
		jobs := w.jobs(2, 1, announced(2))
		got := train(jobs, 0, 2)
		w.network.Cut("10.0.0.3")
		got[0], got[1] = got[0][:2], got[1][:2]
		goOn(got, 1, 8)
		w.network.Join("10.0.0.3")
		closeAll(jobs)
		w.close()
		for j, ranks := range got {
			for r, p := range ranks {
				if p.done != nil || len(p.kept) != 8 {
					t.Errorf("job %d, rank %d got %d batches: %v", j, r, len(p.kept), p.done)
				}
			}
		}
	})
}

// TestACutWhileJobsOpenEndsInTime: each rank opens its job or gets the reason why not, and what is
// open trains.
func TestACutWhileJobsOpenEndsInTime(t *testing.T) {
	for _, after := range []time.Duration{0, 1, 3, 10, 30, 100, 300} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, nil)
			began := time.Now()
			var cut sync.WaitGroup
			cut.Go(func() {
				time.Sleep(after * time.Millisecond)
				w.network.Cut("10.0.0.2")
			})
			jobs, failed := w.open(t.Context(), 2, 2)
			cut.Wait()
			if took := time.Since(began); took > 10*time.Minute {
				t.Errorf("cut after %d ms: opening took %v", after, took)
			}
			for j, ranks := range jobs {
				if err := errors.Join(failed[4*j : 4*j+4]...); err == nil {
					for r, p := range train([][]*node.Rank{ranks}, 0, 2)[0] {
						if p.done != nil || len(p.kept) != 2 {
							t.Errorf("cut after %d ms: rank %d got %d batches: %v", after, r,
								len(p.kept), p.done)
						}
					}
				}
			}
			w.network.Join("10.0.0.2")
			closeAll(jobs)
			w.close()
		})
	}
}

// TestAFirstMemberThatNeverComesHoldsUpNoOther: it opens on one node only, and gives up there
// later.
func TestAFirstMemberThatNeverComesHoldsUpNoOther(t *testing.T) {
	for here := range 2 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, nil)
			ctx, cancel := context.WithCancel(t.Context())
			var opening sync.WaitGroup
			opening.Go(func() {
				m := w.request(9, here, 1)
				_, err := w.nodes[here].Open(ctx, m, nil, func(request.Step) {})
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			synctest.Wait()
			jobs := w.jobs(2, 1, announced(2))
			cancel()
			opening.Wait()
			got := train(jobs, 0, all(2))
			if _, private := w.made(); private != 0 {
				t.Errorf("%d samples were transformed for members alone", private)
			}
			closeAll(jobs)
			w.close()
			check(t, got, 0, all(2))
		})
	}
}
