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
	p.AddFill([]int32{1, 2, 3}, false, nil, run)
	p.AddFill([]int32{11, 12, 13}, false, nil, run)
	p.AddFill([]int32{21, 22, 23}, false, func() bool { return false }, run)
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
		p.AddFill([]int32{1, 2}, false, func() bool { return !full.Load() },
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

// TestSpareFillsYield checks that what is moved for later epochs takes one worker, and only while
// no other one does anything.
func TestSpareFillsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(4, 4)
		next := make(chan struct{})
		var filled []int
		p.AddFill([]int32{1, 2, 3}, true, nil, func(_ *Worker, id int) bool {
			filled = append(filled, id)
			<-next
			return false
		})
		synctest.Wait()
		if want := []int{1}; !slices.Equal(filled, want) {
			t.Fatalf("%v are moved at a time, want %v", filled, want)
		}
		slow := &slowTask{free: make(chan struct{})}
		p.Submit([]Task{{Consumer: slow}})
		synctest.Wait()
		next <- struct{}{}
		synctest.Wait()
		if len(filled) != 1 {
			t.Errorf("%v are moved while a batch waits for a sample", filled)
		}
		close(slow.free)
		synctest.Wait()
		if len(filled) != 2 {
			t.Errorf("%v are moved when nothing is read for batches", filled)
		}
		close(next)
		synctest.Wait()
		if len(filled) != 3 {
			t.Errorf("moved %v, want all", filled)
		}
		p.Close(time.Hour)
	})
}

// slowTask is a consumer whose sample arrives when free is closed.
type slowTask struct {
	brought
	free chan struct{}
}

func (s *slowTask) Bring(*Worker, int) bool { <-s.free; return false }

// brought is a consumer that notes that its sample was brought.
type brought struct{ done bool }

func (b *brought) Bring(*Worker, int) bool { b.done = true; return false }

func (b *brought) GivenUp(error) {}
