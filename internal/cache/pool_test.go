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

// TestFillQuarter: filling never takes all workers.
func TestFillQuarter(t *testing.T) {
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
			t.Errorf("%d reads are under way, want that of the task too", n)
		}
		close(gate)
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		g.close()
	})
}

// consumer is a batch of one sample.
type consumer struct {
	cache *Cache
	id    int
	done  chan error // has what came of it
	back  chan bool  // if not nil: has it when Bring returns, and whether it was abandoned
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

// TestTasksComeInTheOrderInWhichTheyAreNeeded: by the step that needs them, and of one step in the
// order in which they came.
func TestTasksComeInTheOrderInWhichTheyAreNeeded(t *testing.T) {
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
					t.Fatal("another task came")
				}
				want = want[1:]
				if h[:len(h)+1][len(h)] != (Task{}) {
					t.Fatal("the heap keeps a task that it has given away")
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

// TestFillsTakeTurns: where several jobs have samples to be read ahead, the workers alternate
// between them.
func TestFillsTakeTurns(t *testing.T) {
	p := &pool{threads: 1, maxFilling: 1}
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
		t.Errorf("of four reads these were the samples: %v", order)
	}
}
