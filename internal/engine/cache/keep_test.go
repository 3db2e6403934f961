package cache

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/report"
)

// takes has a meter measure many reads that take this long, in seconds.
func takes(m *meter.Meter, seconds float64) {
	now := time.Now().Add(-time.Hour)
	for range 2000 {
		read := m.Begin(now, 100)
		now = now.Add(time.Duration(seconds * float64(time.Second)))
		m.End(now, read, nil)
	}
	now = time.Now() // a moment ago: nothing has to be explored
	m.End(now, m.Begin(now.Add(-time.Duration(seconds*float64(time.Second))), 100), nil)
}

// TestMemoryThatTakesLongerThanItSaves: a sample that is late is only read, if memory for it takes
// longer than its later reads.
func TestMemoryThatTakesLongerThanItSaves(t *testing.T) {
	two := Request{Due: soon(0), Later: 2, Peers: farPeer(1)}
	for name, c := range map[string]struct {
		request      Request
		busy         bool
		supply, read float64 // seconds
		keeps        bool
	}{
		"it does not repay":       {Request{Due: soon(0), Later: 1}, false, 10e-3, 2e-3, false},
		"it repays":               {Request{Due: soon(0), Later: 5}, false, 10e-3, 2e-3, true},
		"it repays in the end":    {Request{Due: soon(0), Later: 150}, false, 0.3, 2e-3, true},
		"it comes in time":        {Request{Due: soon(1), Later: 1}, false, 10e-3, 2e-3, true},
		"in time, but busy":       {Request{Due: soon(1), Later: 1}, true, 10e-3, 2e-3, false},
		"for a node, that waits":  {Request{remote: true}, false, 10e-3, 2e-3, true},
		"for a node, while busy":  {Request{remote: true}, true, 10e-3, 2e-3, false},
		"two nodes read as much":  {two, false, 10e-3, 2e-3, false},
		"the source is slow":      {Request{Due: soon(0)}, true, 10e-3, 11e-3, true},
		"ahead of time":           {Request{}, true, 10e-3, 1e-3, true},
		"hardly any was supplied": {Request{Due: soon(0)}, true, 0.1e-3, 0.01e-3, true},
	} {
		o := plain(4)
		o.memory, o.busy = 400, c.busy
		g := newRig(t, o)
		memory := g.cache.classes[0].keeping
		takes(&memory.supply, c.supply)
		takes(&g.cache.reading, c.read)
		if r := &c.request; r.Due != nil {
			r.Consumer = unheard{}
		}
		if got := g.cache.Destined(&c.request, 1); got != c.keeps {
			t.Errorf("%s: destined for memory: %v", name, got)
		}
		if _, from, err := g.fetched(t, &c.request, 1); err != nil || from != Source {
			t.Fatalf("%s: from %v, %v", name, from, err)
		}
		var passed report.Amount
		if !c.keeps {
			passed = report.Amount{Samples: 1, Bytes: 100}
		}
		if got := g.cache.Has(1); got != c.keeps || g.cache.Passed(0) != passed {
			t.Errorf("%s: it is kept: %v; %+v were not", name, got, g.cache.Passed(0))
		}
		if lazy := !c.keeps || name == "ahead of time"; g.cache.passing() != lazy {
			t.Errorf("%s: what is read ahead of time waits: %v", name, !lazy)
		}
		g.close()
	}
}

// unheard is a consumer whose methods do nothing.
type unheard struct{}

func (unheard) Bring(*Worker, int) bool { return false }
func (unheard) GivenUp(error)           {}

// coldPeer is a farPeer that has to read what it is asked for.
type coldPeer struct{ farPeer }

func (coldPeer) Relays(int) bool { return true }

// TestOwnersAreNotAskedInVain: while memory does not repay, an owner that would have to read a
// sample is not asked for it: it would not keep it.
func TestOwnersAreNotAskedInVain(t *testing.T) {
	g := newRig(t, plain(4))
	defer g.close()
	for _, passing := range []bool{false, true} {
		if passing {
			g.cache.passes.Store(time.Now().Add(time.Hour).UnixNano())
		}
		r := &Request{Peers: coldPeer{farPeer(1e-6)}, Due: soon(0)}
		if got := g.cache.route(r, 0).peer; got == passing {
			t.Errorf("passing %v: the owner is asked: %v", passing, got)
		}
		if r.Peers = farPeer(1e-6); !g.cache.route(r, 0).peer {
			t.Errorf("passing %v: an owner that has samples is not asked", passing)
		}
	}
}

// TestFillsWaitForSpareTime: while memory does not repay, what is read ahead of time waits until
// nothing is read for batches, and until not all processors are busy.
func TestFillsWaitForSpareTime(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			o := plain(8)
			o.memory, o.busy = 800, busy
			o.hook = func(_ context.Context, id int) error {
				if id == 0 {
					<-gate
				}
				return nil
			}
			g := newRig(t, o)
			defer g.close()
			batch := make(chan error)
			fetch := func() { g.cache.Submit([]Task{{Consumer: one{g, batch}}}) }
			fetch()
			g.cache.passes.Store(time.Now().Add(time.Hour).UnixNano())
			g.use.Fill(g.opened.Plan, func(int64) {})
			synctest.Wait()
			if held := g.stores[0].Held(); len(held) > 0 {
				t.Errorf("%v were brought while a batch waits for a sample", held)
			}
			held := func(want int) {
				t.Helper()
				if err := <-batch; err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if held := g.stores[0].Held(); len(held) != want {
					t.Errorf("busy %v: %v are held, want %d", busy, held, want)
				}
			}
			close(gate)
			if busy {
				held(1)                   // the batch's own
				time.Sleep(2 * time.Hour) // whether memory repays is not known any more
				fetch()
			}
			held(8)
		})
	}
}

// TestFillsGoOnWithoutBatches: fills that wait because memory does not repay are tried again while
// no batch is read, as when a process pauses for long.
func TestFillsGoOnWithoutBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(8)
		o.memory, o.busy = 800, true
		g := newRig(t, o)
		defer g.close()
		takes(&g.cache.classes[0].keeping.supply, 10e-3)
		takes(&g.cache.reading, 1e-3)
		if g.cache.Destined(&Request{Consumer: unheard{}, Due: soon(0)}, 0) {
			t.Fatal("memory repays")
		}
		g.use.Fill(g.opened.Plan, func(int64) {})
		synctest.Wait()
		if held := g.stores[0].Held(); len(held) > 0 {
			t.Errorf("%v were brought while all processors are busy", held)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if held := g.stores[0].Held(); len(held) != 8 {
			t.Errorf("%v were brought in a minute, want all", held)
		}
	})
}

// one is a batch of sample 0.
type one struct {
	rig  *rig
	came chan<- error
}

func (o one) Bring(w *Worker, _ int) bool {
	s, err := o.rig.cache.FetchView(context.Background(), w, &Request{Consumer: o, Due: soon(0)}, 0)
	s.Release()
	o.came <- err
	return false
}

func (o one) GivenUp(error) {}
