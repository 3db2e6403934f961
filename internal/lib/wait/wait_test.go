package wait

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		begin := time.Now()
		if Within(3*time.Second, func() { <-hangs }) {
			t.Error("a wait that has not returned counts as one that has")
		}
		if waited := time.Since(begin); waited != 3*time.Second {
			t.Errorf("it waited %v, want 3 s", waited)
		}
		close(hangs)
		begin = time.Now()
		if !Within(time.Minute, func() { time.Sleep(time.Second) }) {
			t.Error("a wait that returned in time counts as one that has not")
		}
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("it waited %v, want 1 s", waited)
		}
	})
}
