package store

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

// never is a limit that a test does not reach.
const never = 24 * time.Hour

// TestStoreIsNotSilentBecauseTheProcessWasStopped checks that reads in progress while the process
// was stopped have their whole time afterwards, and that the stop does not count as the store's.
// That nothing waits for the read, or handles the alarm, stands for the stop.
func TestStoreIsNotSilentBecauseTheProcessWasStopped(t *testing.T) {
	const limit = 500 * time.Millisecond
	t.Run("a read that returns", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := NewReader(slow{}, func(bool) { t.Error("the store is said to be silent") })
			a, dst := r.begin(time.Now(), 1, limit), make([]byte, 1)
			<-time.After(time.Hour)
			r.reads.Go(func() {
				<-time.After(limit / 2)
				a.buffer[0] = 7
				r.end(a, nil)
			})
			if err := r.wait(a, dst, limit); err != nil || dst[0] != 7 || !r.Responds() {
				t.Errorf("read %v: %v; responds: %v", dst, err, r.Responds())
			}
			if h := r.Hangs(time.Now()); h != (Hangs{}) {
				t.Errorf("%+v", h)
			}
			r.Close(never)
		})
	})
	t.Run("a read that hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			told, begun := make(chan time.Duration, 4), time.Now()
			r := NewReader(slow{}, func(bool) { told <- time.Since(begun) })
			a := r.begin(time.Now(), 1, limit)
			<-time.After(time.Hour)
			if err := r.wait(a, make([]byte, 1), limit); !errors.Is(err, ErrLate) ||
				time.Since(begun) != time.Hour+limit {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
			<-time.After(5*time.Second - limit)
			r.end(a, nil)
			first := <-told
			last := <-told
			h := r.Hangs(time.Now())
			if h.Times != 1 || h.Took != 5*time.Second || first != time.Hour+reportDelay ||
				last != time.Hour+5*time.Second {
				t.Errorf("%+v, told after %v and %v", h, first, last)
			}
		})
	})
	t.Run("a read that was given up before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			told := make(chan bool, 4)
			r := NewReader(slow{}, func(responds bool) { told <- responds })
			a := r.begin(time.Now(), 1, limit)
			if err := r.wait(a, make([]byte, 1), limit); !errors.Is(err, ErrLate) {
				t.Error(err)
			}
			r.mu.alarm.Stop()
			<-time.After(time.Hour)
			if r.alarmed(); len(told) > 0 {
				t.Error("the store is said to be silent at once")
			}
			<-time.After(reportDelay - 1)
			if h := r.Hangs(time.Now()); len(told) > 0 || h.Silent != reportDelay-1 {
				t.Errorf("%d times told; %+v", len(told), h)
			}
			<-time.After(2)
			r.end(a, nil)
			if h := r.Hangs(time.Now()); len(told) != 2 || h.Times != 1 || h.Took != reportDelay+1 {
				t.Errorf("%d times told; %+v", len(told), h)
			}
		})
	})
}

// TestLongLimitIsNotTakenForAStop checks that a read that was waited for longer than tellAfter is
// reported at once when it is given up.
func TestLongLimitIsNotTakenForAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, begun := make(chan time.Duration, 4), time.Now()
		r := NewReader(slow{}, func(bool) { told <- time.Since(begun) })
		err := r.Read(20, make([]byte, 1), func() time.Duration { return 15 * time.Second })
		if !errors.Is(err, ErrLate) || !r.Close(never) {
			t.Error(err)
		}
		first := <-told
		last := <-told
		h := r.Hangs(time.Now())
		if h.Times != 1 || h.Took != 20*time.Second || first != 15*time.Second ||
			last != 20*time.Second {
			t.Errorf("%+v, told after %v and %v", h, first, last)
		}
	})
}

// far is a store whose samples should be located for so long ahead of their use.
type far struct {
	Shrinker
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
