package storageclass

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a store whose reads take as many seconds as the sample's number.
type slow struct{ Store }

func (slow) Read(id int, dst []byte) error {
	<-time.After(time.Duration(id) * time.Second)
	dst[0] = byte(id)
	return nil
}

// TestReadsThatWaitForMemory checks that the time for which a read waits for the memory of others
// is part of its own, and that memory is given back, also by reads that were given up.
func TestReadsThatWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(slow{}, func(bool) {})
		read := func(id int, limit time.Duration) error {
			dst := make([]byte, readMemory)
			err := r.Read(id, dst, func() time.Duration { return limit })
			if err == nil && dst[0] != byte(id) {
				t.Errorf("read %d for sample %d", dst[0], id)
			}
			return err
		}
		first := make(chan error)
		go func() { first <- read(3, time.Minute) }()
		synctest.Wait()
		if err := read(1, 2*time.Second); !errors.Is(err, ErrLate) {
			t.Errorf("without memory in its time: %v", err)
		}
		begun := time.Now() // 2 s after the first one
		if err := read(5, 4*time.Second); !errors.Is(err, ErrLate) ||
			time.Since(begun) != 4*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if err := <-first; err != nil || r.Responds() {
			t.Errorf("the first: %v; responds: %v", err, r.Responds())
		}
		<-time.After(10 * time.Second)
		if err := read(1, 2*time.Second); err != nil || !r.Responds() {
			t.Errorf("after all: %v; responds: %v", err, r.Responds())
		}
		if !r.Close(time.Second) {
			t.Error("a read hangs")
		}
	})
}

// far is a store whose samples should be located for so long ahead of their use.
type far struct {
	InPlace
	horizon time.Duration
}

func (f far) Horizon() time.Duration { return f.horizon }
func (far) Join(Tenant) func()       { return func() {} }

// TestHorizonIsTheShortest checks how long ahead of its use a sample is located if classes differ.
func TestHorizonIsTheShortest(t *testing.T) {
	var w Watchers
	for i, c := range []struct{ horizon, want time.Duration }{
		{0, 0}, {5, 5}, {7, 5}, {3, 3}, {0, 3},
	} {
		w.Join(nil, i, far{horizon: c.horizon})
		if got := w.Horizon(); got != c.want {
			t.Errorf("with %d classes: %d, want %d", i+1, got, c.want)
		}
	}
	if w.Leave(); w.Horizon() != 0 {
		t.Error("there is a horizon without classes")
	}
}
