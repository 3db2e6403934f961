package cache

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/report"
)

// TestFillLeavesAQuarterOfTheWorkers checks that filling never takes all workers.
func TestFillLeavesAQuarterOfTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		under := make(chan int, 100)
		o := plain(40)
		o.threads = 4
		o.memory = 2000
		o.fill = true // samples 20 to 39 have no class
		o.hook = func(_ context.Context, id int) error {
			under <- id
			<-gate
			return nil
		}
		g := newRig(t, o)
		synctest.Wait()
		if n := len(under); n != 3 {
			t.Fatalf("%d of 4 workers fill, want 3", n)
		}
		b := &consumer{cache: g.cache, id: 30, done: make(chan error, 1)}
		g.cache.Submit([]Task{{Consumer: b}})
		synctest.Wait()
		if n := len(under); n != 4 {
			t.Errorf("%d reads are in progress, want also the task's", n)
		}
		close(gate)
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		g.close()
	})
}

// TestFillThatIsWaitedForIsUrgent checks that a sample that is to be read ahead, and then is needed
// for a batch, is read before others that are read ahead.
func TestFillThatIsWaitedForIsUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := make(chan struct{})
		var order []int // one read at a time
		o := plain(40)
		o.threads = 1
		o.mostThreads = 1
		o.memory = 2000
		o.fill = true
		o.hook = func(_ context.Context, id int) error {
			order = append(order, id)
			<-next
			return nil
		}
		g := newRig(t, o)
		synctest.Wait()
		first, ahead := order[0], 5
		b := &consumer{cache: g.cache, id: ahead, done: make(chan error, 1)}
		g.cache.Submit([]Task{{Consumer: b}})
		synctest.Wait()
		next <- struct{}{}
		synctest.Wait()
		if order[1] != ahead || first == ahead {
			t.Errorf("samples %v were read, want %d next", order, ahead)
		}
		close(next)
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		g.close()
	})
}

// TestWorkersAreNotHeldByOtherNodes checks that samples are read while other nodes keep more
// requests waiting than there are workers, unless the number of workers is given, or the others
// wait for the source as well.
func TestWorkersAreNotHeldByOtherNodes(t *testing.T) {
	for name, test := range map[string]struct{ given, relays, want bool }{
		"tuned":   {false, false, true},
		"given":   {true, false, false},
		"relayed": {false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := plain(80)
				if o.threads = routing.ExtraWorkers; !test.given {
					o.threads, o.mostThreads = 1, 1
				}
				g := newRig(t, o)
				p := newSlowPeer()
				p.relays = test.relays
				var waiting []*consumer
				for id := range routing.ExtraWorkers + 4 {
					b := &consumer{cache: g.cache, peers: p, id: id, done: make(chan error, 1)}
					g.cache.Submit([]Task{{Consumer: b}})
					waiting = append(waiting, b)
				}
				own := &consumer{cache: g.cache, id: 79, done: make(chan error, 1)}
				g.cache.Submit([]Task{{Consumer: own}})
				synctest.Wait()
				if read := g.source.Reads[79].Load() == 1; read != test.want {
					t.Errorf("read while the others wait: %v", read)
				}
				close(p.gate)
				for _, b := range append(waiting, own) {
					if err := <-b.done; err != nil {
						t.Error(err)
					}
				}
				g.close()
			})
		})
	}
}

// TestStreamsOfAnotherNode checks that a cache reads with as many streams as another one has found,
// as far as its own may, and that it reads with a fixed number whatever others find.
func TestStreamsOfAnotherNode(t *testing.T) {
	for _, c := range []struct{ threads, most, found, want int }{
		{2, 8, 5, 5}, {2, 8, 100, 8}, {2, 0, 5, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := plain(4)
			o.threads, o.mostThreads = c.threads, c.most
			g := newRig(t, o)
			defer g.close()
			g.cache.ExpectStreams()
			g.cache.FollowStreams(report.Streams{Number: c.found, Takes: 0.01})
			is, version, _ := g.cache.FoundStreams()
			if got := g.cache.Streams(); got != c.want || is.Number != got || version != 0 {
				t.Errorf("%+v: %d streams; found %+v, version %d", c, got, is, version)
			}
		})
	}
}

// consumer is a consumer with one sample.
type consumer struct {
	cache *Cache
	peers Peers
	id    int
	done  chan error // receives the result
	back  chan bool  // if not nil, receives Bring's result
}

func (b *consumer) Bring(*Worker, int) (abandoned bool) {
	dst := make([]byte, b.cache.index.Size(b.id))
	_, err := b.cache.Fetch(context.Background(), &Request{Peers: b.peers, Consumer: b}, b.id, dst)
	if abandoned = err == ErrAbandoned; !abandoned {
		b.done <- err
	}
	if b.back != nil {
		b.back <- abandoned
	}
	return abandoned
}

func (b *consumer) GivenUp(err error) { b.done <- err }
