package cache

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestFillLeavesAQuarterOfTheWorkers checks that filling never takes all workers.
func TestFillLeavesAQuarterOfTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		under := make(chan int, 100)
		o := plain(40)
		o.threads, o.memory, o.fill = 4, 2000, true // samples 20 to 39 have no class
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

// consumer is a consumer with one sample.
type consumer struct {
	cache *Cache
	id    int
	done  chan error // receives the result
	back  chan bool  // if not nil, receives Bring's result
}

func (b *consumer) Bring(*Worker, int) (abandoned bool) {
	dst := make([]byte, b.cache.index.Size(b.id))
	_, err := b.cache.Fetch(context.Background(), &Request{Consumer: b}, b.id, dst)
	if abandoned = err == ErrAbandoned; !abandoned {
		b.done <- err
	}
	if b.back != nil {
		b.back <- abandoned
	}
	return abandoned
}

func (b *consumer) GivenUp(err error) { b.done <- err }

// TestTasksRunInTheOrderOfNeed checks that tasks are ordered by the step that needs them, and
// within a step by arrival.
func TestTasksRunInTheOrderOfNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h taskHeap
		var want []Task
		sorted := func() {
			slices.SortFunc(want, func(a, b Task) int {
				return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.seq, b.seq))
			})
		}
		for seq := range rapid.IntRange(0, 60).Draw(t, "tasks") {
			if len(want) > 0 && rapid.IntRange(0, 3).Draw(t, "pop") == 0 {
				if sorted(); h.pop() != want[0] {
					t.Fatal("pop returned another task")
				}
				want = want[1:]
				if h[:len(h)+1][len(h)] != (Task{}) {
					t.Fatal("the heap retains a popped task")
				}
				continue
			}
			task := Task{
				Order: int64(rapid.IntRange(0, 9).Draw(t, "order")),
				Index: seq,
				seq:   int64(seq),
			}
			h.push(task)
			want = append(want, task)
		}
		sorted()
		for _, task := range want {
			if got := h.pop(); got != task {
				t.Fatalf("got %+v, want %+v", got, task)
			}
		}
		if len(h) != 0 {
			t.Fatalf("%d tasks are left", len(h))
		}
	})
}

// TestFillsTakeTurns checks that the workers alternate between the fills of several jobs.
func TestFillsTakeTurns(t *testing.T) {
	p := &pool{limit: 1, alive: 1}
	p.changed = sync.NewCond(&p.mu)
	var order []int
	run := func(_ *Worker, id int) bool { order = append(order, id); return false }
	p.addFill([]int32{1, 2, 3}, run)
	p.addFill([]int32{11, 12, 13}, run)
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 4 {
		p.fillOne(&Worker{})
	}
	if slices.Sort(order); !slices.Equal(order, []int{1, 2, 11, 12}) {
		t.Errorf("the first 4 reads were of samples %v", order)
	}
}

// bringing is a consumer of which bringing a sample takes as long as a function.
type bringing func()

func (b bringing) Bring(*Worker, int) bool { b(); return false }

func (bringing) GivenUp(error) {}

// TestStreamsAreTuned checks that as many samples are read at the same time as gives the highest
// throughput: hundreds if the source takes long to open a file, few if more slow it down, and as
// many as before if the process does not keep them waiting.
func TestStreamsAreTuned(t *testing.T) {
	for name, c := range map[string]struct {
		takes  func(streams float64) float64 // seconds
		ahead  int                           // tasks that are queued at a time
		lo, hi int
	}{
		"50 ms per open, 3636 samples per second": {
			func(n float64) float64 { return max(0.05, n/3636) }, 600, 140, 512,
		},
		"2 % less per stream above 4": {
			func(n float64) float64 { return 0.001 * max(n/4, 1) / max(1-0.02*max(n-4, 0), 0.1) },
			600, 3, 8,
		},
		"the process takes one sample at a time": {
			func(float64) float64 { return 0.05 }, 1, 16, 16,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(Threads{Start: 16, Most: 512})
				var reading atomic.Int32
				done := make(chan struct{}, c.ahead)
				b := bringing(func() {
					n := float64(reading.Add(1))
					<-time.After(time.Duration(c.takes(n) * float64(time.Second)))
					reading.Add(-1)
					done <- struct{}{}
				})
				for range c.ahead {
					p.submit([]Task{{Consumer: b}})
				}
				for begun := time.Now(); time.Since(begun) < 10*time.Second; {
					<-done
					p.submit([]Task{{Consumer: b}})
				}
				if n := p.streams(); n < c.lo || n > c.hi {
					t.Errorf("%d samples are read at a time after 10 s, want %d to %d", n, c.lo, c.hi)
				}
				for range c.ahead {
					<-done
				}
				p.close(time.Hour)
			})
		})
	}
}
