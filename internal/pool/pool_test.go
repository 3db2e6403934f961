package pool

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

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

// TestFillsTakeTurns checks that the workers alternate between the fills of several jobs whose
// classes can take samples.
func TestFillsTakeTurns(t *testing.T) {
	p := &Pool{limit: 1, alive: 1}
	p.changed = sync.NewCond(&p.mu)
	var order []int
	run := func(_ *Worker, id int) bool { order = append(order, id); return false }
	p.AddFill([]int32{1, 2, 3}, nil, run)
	p.AddFill([]int32{11, 12, 13}, nil, run)
	p.AddFill([]int32{21, 22, 23}, func() bool { return false }, run)
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 4 {
		p.fillOne(&Worker{}, p.nextFill())
	}
	if slices.Sort(order); !slices.Equal(order, []int{1, 2, 11, 12}) {
		t.Errorf("the first 4 reads were of samples %v", order)
	}
}

// TestFillsWaitWithoutAWorker checks that a fill whose class cannot take samples occupies no
// worker, and continues when it can.
func TestFillsWaitWithoutAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 1)
		var full atomic.Bool
		full.Store(true)
		var filled []int
		p.AddFill([]int32{1, 2}, func() bool { return !full.Load() },
			func(_ *Worker, id int) bool { filled = append(filled, id); return false })
		synctest.Wait()
		c := &brought{}
		p.Submit([]Task{{Consumer: c}})
		synctest.Wait()
		if !c.done || len(filled) > 0 {
			t.Errorf("the task ran: %v; filled %v, want none", c.done, filled)
		}
		full.Store(false)
		p.Continue()
		synctest.Wait()
		if !slices.Equal(filled, []int{1, 2}) {
			t.Errorf("filled %v", filled)
		}
		if !p.Close(time.Hour) {
			t.Error("the workers have not ended")
		}
	})
}

// brought is a consumer that notes that its sample was brought.
type brought struct{ done bool }

func (b *brought) Bring(*Worker, int) bool { b.done = true; return false }

func (b *brought) GivenUp(error) {}
