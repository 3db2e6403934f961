package pool

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestFillsTakeTurns checks that the workers alternate between the fills of several jobs whose
// classes can take samples.
func TestFillsTakeTurns(t *testing.T) {
	p := &Pool{limit: 1, alive: 1}
	p.changed = sync.NewCond(&p.mu)
	var order []int
	run := func(_ *Worker, id int) bool { order = append(order, id); return false }
	p.AddFill([]int32{1, 2, 3}, Filling{Run: run})
	p.AddFill([]int32{11, 12, 13}, Filling{Run: run})
	p.AddFill([]int32{21, 22, 23}, Filling{Run: run, Ready: func(int) bool { return false }})
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
		p := New(1, 1, 0)
		var full atomic.Bool
		full.Store(true)
		var filled []int
		p.AddFill([]int32{1, 2}, Filling{
			Ready: func(int) bool { return !full.Load() },
			Run:   func(_ *Worker, id int) bool { filled = append(filled, id); return false },
		})
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

// TestWorkersThatWaitForOthersAreReplaced checks that another worker takes tasks in the place of
// one that waits for another node, and that there is one too many only until it has ended.
func TestWorkersThatWaitForOthersAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 1, 0)
		answered := make(chan struct{})
		waits, other := &waiter{pool: p, until: answered}, &brought{}
		p.Submit([]Task{{Consumer: waits}, {Consumer: other}})
		synctest.Wait()
		if waits.done || !other.done || p.alive != 2 {
			t.Errorf("the first ended: %v, the second: %v; %d workers", waits.done, other.done,
				p.alive)
		}
		close(answered)
		synctest.Wait()
		p.Submit([]Task{{Consumer: &brought{}}})
		synctest.Wait()
		if !waits.done || p.alive != 1 {
			t.Errorf("the first ended: %v; %d workers", waits.done, p.alive)
		}
		if !p.Close(time.Hour) {
			t.Error("the workers have not ended")
		}
	})
}

// TestWorkersWithLargeBuffersAreNotReplaced checks that memory limits how many workers there are.
func TestWorkersWithLargeBuffersAreNotReplaced(t *testing.T) {
	for keep, want := range map[int]int{0: 64, 1 << 20: 64, 4 << 20: 16, 100 << 20: 0} {
		synctest.Test(t, func(t *testing.T) {
			p := New(2, 2, keep)
			answered := make(chan struct{})
			for range 100 {
				p.Submit([]Task{{Consumer: &waiter{pool: p, until: answered}}})
			}
			synctest.Wait()
			if p.alive != 2+want {
				t.Errorf("buffers of %d bytes: %d workers, want %d", keep, p.alive, 2+want)
			}
			close(answered)
			if !p.Close(time.Hour) {
				t.Error("the workers have not ended")
			}
		})
	}
}

// waiter is a consumer that waits for another node.
type waiter struct {
	brought
	pool  *Pool
	until chan struct{}
}

func (w *waiter) Bring(worker *Worker, i int) bool {
	back := w.pool.Away()
	<-w.until
	back()
	return w.brought.Bring(worker, i)
}

// TestHeldFillsReadNothing checks that fills go on when they are held no more, and after a time at
// the latest, and that tasks are not held.
func TestHeldFillsReadNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 1, 0)
		release := p.Hold(time.Hour)
		p.Hold(time.Minute)
		var filled atomic.Int32
		p.AddFill([]int32{1, 2}, Filling{
			Run: func(*Worker, int) bool { filled.Add(1); return false },
		})
		c := &brought{}
		p.Submit([]Task{{Consumer: c}})
		synctest.Wait()
		if !c.done || filled.Load() > 0 {
			t.Errorf("the task ran: %v; filled %d, want none", c.done, filled.Load())
		}
		release()
		release()
		synctest.Wait()
		if filled.Load() > 0 {
			t.Errorf("filled %d while another holds", filled.Load())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if filled.Load() != 2 {
			t.Errorf("filled %d, want 2", filled.Load())
		}
		if !p.Close(time.Hour) {
			t.Error("the workers have not ended")
		}
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

// hungTask is a consumer whose read was given up: it ends when free is closed.
type hungTask struct{ slowTask }

func (h *hungTask) Bring(*Worker, int) bool { <-h.free; return true }

// TestReplacedWorkerTakesNothingMore checks that another worker takes the place of one whose read
// hangs, which ends with that read and counts for nothing.
func TestReplacedWorkerTakesNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 1, 0)
		hung := &hungTask{slowTask{free: make(chan struct{})}}
		p.Submit([]Task{{Consumer: hung}})
		synctest.Wait()
		p.Replace(false)
		next := &brought{}
		p.Submit([]Task{{Consumer: next}})
		synctest.Wait()
		if !next.done {
			t.Error("no worker has replaced the one that hangs")
		}
		close(hung.free)
		synctest.Wait()
		tasks, running, free := counted(2)
		p.Submit(tasks)
		synctest.Wait()
		if n := running.Load(); n != 1 {
			t.Errorf("%d workers take tasks, of a pool of 1", n)
		}
		close(free)
		if !p.Close(time.Hour) {
			t.Error("the workers have not ended")
		}
	})
}

// countedTask is a consumer that counts how many of its kind are running, until free is closed.
type countedTask struct {
	slowTask
	running *atomic.Int32
}

func (c *countedTask) Bring(w *Worker, i int) bool {
	c.running.Add(1)
	return c.slowTask.Bring(w, i)
}

func counted(n int) (tasks []Task, running *atomic.Int32, free chan struct{}) {
	running, free = new(atomic.Int32), make(chan struct{})
	for range n {
		tasks = append(tasks, Task{Consumer: &countedTask{slowTask{free: free}, running}})
	}
	return tasks, running, free
}

// TestPoolRunsAsManyTasksAsItMay checks that tasks run on idle workers, and on more when there may
// be more, at once.
func TestPoolRunsAsManyTasksAsItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(2, 4, 0)
		p.RemoveFills() // has no effect
		runs := func(what string, tasks, want int) (free chan struct{}) {
			t.Helper()
			all, running, free := counted(tasks)
			p.Submit(all)
			synctest.Wait()
			if n := running.Load(); n != int32(want) {
				t.Errorf("%s: %d of %d tasks run, want %d", what, n, tasks, want)
			}
			return free
		}
		close(runs("new workers", 3, 2))
		synctest.Wait()
		close(runs("idle workers", 2, 2))
		synctest.Wait()
		all, running, free := counted(4)
		p.Submit(all)
		synctest.Wait()
		p.Resize(3)
		synctest.Wait()
		if n := running.Load(); n != 3 {
			t.Errorf("%d tasks run in a pool of 3 that had 2", n)
		}
		close(free)
		if !p.Close(time.Hour) {
			t.Error("the workers have not ended")
		}
	})
}

// keeper is a consumer that notes the buffers that the worker has kept, and makes others.
type keeper struct {
	kept []int
	make int
}

func (k *keeper) Bring(w *Worker, _ int) (abandoned bool) {
	k.kept = append(k.kept, cap(w.Buffer), cap(w.Again))
	w.Buffer, w.Again = make([]byte, k.make), make([]byte, k.make-1)
	return false
}

func (k *keeper) GivenUp(error) {}

// TestWorkersKeepSmallBuffers checks that a worker keeps a buffer for the next sample, unless it is
// larger than it should keep.
func TestWorkersKeepSmallBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 1, 100)
		k := &keeper{}
		for _, k.make = range []int{100, 101, 1000, 10} {
			p.Submit([]Task{{Consumer: k}})
			synctest.Wait()
		}
		p.AddFill([]int32{1, 2}, Filling{Run: k.Bring})
		synctest.Wait()
		p.Close(time.Hour)
		if want := []int{0, 0, 100, 99, 0, 100, 0, 0, 10, 9, 10, 9}; !slices.Equal(k.kept, want) {
			t.Errorf("kept are buffers of %v bytes, want %v", k.kept, want)
		}
	})
}
