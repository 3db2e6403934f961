package cache

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

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
