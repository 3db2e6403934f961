package pool

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestSpareFillsYield checks that what is moved for later epochs takes one worker, and only while
// no other one does anything.
func TestSpareFillsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(4, 4, 0)
		next := make(chan struct{})
		var filled []int
		p.AddFill([]int32{1, 2, 3}, Filling{Spare: true, Run: func(_ *Worker, id int) bool {
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
