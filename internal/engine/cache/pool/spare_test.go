package pool

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func always() bool { return true }

// TestFillsYieldWhileTheyAreSpare: whether samples wait for spare time is asked before each.
func TestFillsYieldWhileTheyAreSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(4, 4, 0)
		slow := &slowTask{free: make(chan struct{})}
		p.Submit([]Task{{Consumer: slow}})
		synctest.Wait()
		var filled atomic.Int64
		asked := 0 // guarded by the pool's lock
		p.AddFill([]int32{1, 2, 3, 4}, Filling{
			Spare: func() bool { asked++; return asked > 2 },
			Run:   func(*Worker, int) bool { filled.Add(1); return false },
		})
		synctest.Wait()
		if n := filled.Load(); n != 2 {
			t.Errorf("%d are brought while a batch waits for a sample, want 2", n)
		}
		close(slow.free)
		synctest.Wait()
		if n := filled.Load(); n != 4 {
			t.Errorf("%d are brought, want all", n)
		}
		p.Close(time.Hour)
	})
}

// TestSpareFillsYield checks that what is moved for later epochs takes one worker, and only while
// no other one does anything.
func TestSpareFillsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(4, 4, 0)
		next := make(chan struct{})
		var filled []int
		p.AddFill([]int32{1, 2, 3}, Filling{Spare: always, Run: func(_ *Worker, id int) bool {
			filled = append(filled, id)
			<-next
			return false
		}})
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
