package runner

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform"
)

// idle is a worker that does nothing.
func idle() *worker { return &worker{fields: []*transform.Worker{{}}} }

// visit does one item as a goroutine that comes to a gate has to, and what waits with it.
func visit(g *gate, id int, do func(id int)) {
	it, inside := g.enter(work{key: transform.Key{Sample: id}})
	if !inside {
		g.forget(it)
		return
	}
	since, w := g.now(), it.worker
	if w == nil {
		w = idle()
	}
	var others []*item
	for other := it; other != nil; other = g.next(since, it, w) {
		do(other.key.Sample)
		if other != it {
			others = append(others, other)
		}
	}
	for _, other := range others {
		other.turn <- false
	}
}

// TestGate brings items: never more are done at a time than are allowed, in their order, and each
// once; whether each is done by the goroutine that brings it, or by others too.
func TestGate(t *testing.T) {
	for name, took := range map[string]time.Duration{
		"one in a turn":     time.Second,
		"several in a turn": turnTime / 5,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(Options{Threads: 3}, time.Now)
				var inside, most atomic.Int32
				var mu sync.Mutex
				var order []int
				var all sync.WaitGroup
				for i := range 50 {
					all.Go(func() {
						visit(g, i, func(i int) {
							now := inside.Add(1)
							mu.Lock()
							most.Store(max(most.Load(), now))
							order = append(order, i)
							mu.Unlock()
							time.Sleep(took)
							inside.Add(-1)
						})
					})
					synctest.Wait() // so that they come one after the other
				}
				all.Wait()
				if most.Load() != 3 {
					t.Errorf("%d inside, 3 are allowed and came", most.Load())
				}
				for i := range order {
					// the three that are inside together may note themselves in any order
					if d := order[i] - i; d < -2 || d > 2 {
						t.Fatalf("they were done as %v", order)
					}
				}
				slices.Sort(order)
				for i := range 50 {
					if len(order) != 50 || order[i] != i {
						t.Fatalf("of 50 were done %v", order)
					}
				}
				if g.in != 0 || len(g.line) != 0 {
					t.Errorf("%d inside and %d in line at the end", g.in, len(g.line))
				}
			})
		})
	}
}

// TestGateTurnIsLimited: no goroutine runs items of others for longer than turnTime.
func TestGateTurnIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = turnTime / 4
		g := newGate(Options{Threads: 1}, time.Now)
		stop := time.Now().Add(time.Second)
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for time.Now().Before(stop) {
					began := time.Now()
					visit(g, 0, func(int) { time.Sleep(took) })
					// All 16 are done in turn, by the one that is inside; then it goes on to the
					// end of its turn.
					if waited := time.Since(began); waited > 16*took+turnTime {
						t.Errorf("one took %v", waited)
					}
				}
			})
		}
		all.Wait()
	})
}

// TestGateMeasures: with a queue that never ends, on a machine of two cores, the gate ends at two
// of four.
func TestGateMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Options{Most: 4}, time.Now)
		var cores sync.Mutex // two, taken in turn: each is busy until
		until := [2]time.Time{time.Now(), time.Now()}
		compute := func() {
			cores.Lock()
			c := 0
			if until[1].Before(until[0]) {
				c = 1
			}
			begin := time.Now()
			if begin.Before(until[c]) {
				begin = until[c]
			}
			until[c] = begin.Add(time.Millisecond)
			wait := time.Until(until[c])
			cores.Unlock()
			time.Sleep(wait)
		}
		var all sync.WaitGroup
		stop := time.Now().Add(30 * time.Second)
		for range 16 {
			all.Go(func() {
				for time.Now().Before(stop) {
					visit(g, 0, func(int) { compute() })
				}
			})
		}
		all.Wait()
		if n := g.open; n < 2 || n > 3 {
			t.Errorf("%d threads on two cores", n)
		}
		var opened []int
		for _, n := range g.opened.All() {
			opened = append(opened, n)
		}
		if n := len(opened); n < 3 || opened[0] != 4 || opened[n-1] != g.open {
			t.Errorf("%d threads after %v", g.open, opened)
		}
	})
}

// TestGateDoesNotTuneWithoutWaiters: the tuner does not run while no goroutine waits.
func TestGateDoesNotTuneWithoutWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Options{Most: 4}, time.Now)
		var all sync.WaitGroup
		for range 6 { // some of which have to wait, once
			all.Go(func() { visit(g, 0, func(int) { time.Sleep(time.Millisecond) }) })
		}
		all.Wait()
		for range 10000 {
			visit(g, 0, func(int) { time.Sleep(time.Millisecond) })
		}
		if n := g.open; n != 4 {
			t.Errorf("%d threads, 4 are allowed and nothing says that fewer would do", n)
		}
	})
}

// TestGateAdmitsAsManyAsOpen: after the number is lowered, goroutines leave until it is reached;
// after it is raised, waiting ones are admitted.
func TestGateAdmitsAsManyAsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Options{Threads: 3}, time.Now)
		inside := make(chan *item, 9) // of those that were let in
		come := func() {
			go func() {
				it, in := g.enter(work{})
				if !in {
					t.Error("not done by any")
				}
				inside <- it
			}()
			synctest.Wait()
		}
		for range 7 {
			come()
		}
		let := func(want int) {
			t.Helper()
			synctest.Wait()
			if len(inside) != want {
				t.Fatalf("%d were let in, want %d", len(inside), want)
			}
		}
		let(3)
		began := g.now()
		g.open = 1
		for range 2 {
			if it := g.next(began, &item{}, idle()); it != nil {
				t.Fatal("one of three goes on, where one may be inside")
			}
		}
		let(3)
		other := g.next(began, &item{}, idle()) // the last one goes on, with the first that waits
		if other == nil {
			t.Fatal("none does what waits")
		}
		g.open = 3
		time.Sleep(turnTime)
		if it := g.next(began, &item{}, idle()); it != nil {
			t.Fatal("it goes on after its turn")
		}
		let(6)
		if g.in != 3 || len(g.line) != 0 {
			t.Errorf("%d inside, %d in line", g.in, len(g.line))
		}
		other.turn <- true // for the goroutine that brought it
		let(7)
	})
}

// TestTakes checks the estimate of how long items take on all threads together; nothing while none
// waits.
func TestTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 30 * time.Millisecond
		g := newGate(Options{Threads: 3}, time.Now)
		var all sync.WaitGroup
		for i := range 63 {
			all.Go(func() { visit(g, i, func(int) { time.Sleep(took) }) })
		}
		synctest.Wait()
		if got := g.takes(30); got != 0 {
			t.Errorf("nothing is known yet: %.3f s", got)
		}
		time.Sleep(10*took + took/2)
		if got, want := g.takes(30), 30*took.Seconds()/3; got < 0.8*want || got > 1.2*want {
			t.Errorf("30 items on 3 threads: %.3f s, want about %.3f s", got, want)
		}
		all.Wait()
		time.Sleep(2 * idleTime)
		if got := g.takes(30); got != 0 {
			t.Errorf("none waits: %.3f s", got)
		}
	})
}
