package memory

import (
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
)

// small opens a store of 1 KiB samples, of which four are in a segment.
func small(t *testing.T, capacity int64) (*Class, *classStore) {
	t.Helper()
	c := New(Options{Segment: 4096})
	s, err := c.Open(store.Dataset{
		Samples: 200, Size: func(int) int64 { return 1024 },
	}, capacity*1024)
	if err != nil {
		t.Fatal(err)
	}
	return c, s.(*classStore)
}

func put(t *testing.T, s *classStore, ids ...int) {
	t.Helper()
	for _, id := range ids {
		if err := s.Put(id, make([]byte, 1024), store.Origin{}); err != nil {
			t.Error(err)
		}
	}
}

// fill begins to add a sample, and returns once it has a location. finish ends it.
func fill(s *classStore, id int, err error) (finish func() error) {
	begun := make(chan bool)
	goOn := make(chan bool)
	done := make(chan error)
	go func() {
		done <- s.Fill(id, func([]byte) (store.Origin, error) {
			close(begun)
			<-goOn
			return store.Origin{}, err
		})
	}()
	<-begun
	return func() error {
		close(goOn)
		return <-done
	}
}

// TestSegmentsThatAreFilledAreNotListed checks that nothing gives them back.
func TestSegmentsThatAreFilledAreNotListed(t *testing.T) {
	_, s := small(t, 12)
	defer s.Close()
	put(t, s, 0)
	finish := fill(s, 1, nil)
	if list := s.Segments(); len(list) != 0 {
		t.Errorf("listed while a sample is added: %+v", list)
	}
	if err := finish(); err != nil {
		t.Error(err)
	}
	if list := s.Segments(); len(list) != 1 || len(list[0].Held) != 2 {
		t.Errorf("listed: %+v", list)
	}
}

// lender is a tenant whose processes keep what is given back for a time.
type lender struct{ keeps time.Duration }

func (l lender) Vacate(_ uint32, _ []int32, settled, gone func()) {
	settled()
	time.AfterFunc(l.keeps, gone)
}
func (lender) Refill()                      {}
func (lender) Delay() time.Duration         { return 0 }
func (lender) Rank() func(id int32) float64 { return func(int32) float64 { return 0 } }

// TestDelayIsMeasured checks that the class remembers how long it took until a segment was free,
// the longest of the last times, of which half is forgotten in half a minute.
func TestDelayIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := small(t, 12)
		defer s.Close()
		put(t, s, 0, 1, 2, 3, 4, 5, 6, 7)
		if got := c.Delay(); got != 0 {
			t.Errorf("before anything was given back: %v", got)
		}
		for g, keeps := range []time.Duration{8 * time.Second, time.Second} {
			leave := s.Join(lender{keeps})
			if !s.GiveBack(uint32(g), "a test") {
				t.Fatal("not given back")
			}
			leave()
			time.Sleep(keeps)
			synctest.Wait()
			if left := c.Leaving(time.Time{}); left != 0 {
				t.Errorf("%d bytes are still leaving", left)
			}
			if n := len(s.mu.leaving); n != 0 {
				t.Errorf("%d segments are still leaving", n)
			}
		}
		if got := c.Delay(); got > 8*time.Second || got < 7*time.Second {
			t.Errorf("after 8 s and 1 s: %v, want 8 s, less what is forgotten", got)
		}
		before := c.Delay()
		time.Sleep(returnsHalve)
		if got := c.Delay(); got != before/2 {
			t.Errorf("half a minute later: %v, want %v", got, before/2)
		}
	})
}

// TestOtherErrorsAreNoLimits checks that only limits of the system are called so.
func TestOtherErrorsAreNoLimits(t *testing.T) {
	if err := limited(1<<20, io.EOF); err != io.EOF {
		t.Errorf("%v", err)
	}
}

// TestConcurrentUse has the race detector check that each method takes the lock.
func TestConcurrentUse(t *testing.T) {
	for name, call := range map[string]func(s *classStore){
		"Fill":     func(s *classStore) { fill(s, 1, io.EOF)() },
		"Drop":     func(s *classStore) { s.Drop(0) },
		"release":  func(s *classStore) { s.release() },
		"Segments": func(s *classStore) { s.Segments() },
		"Held":     func(s *classStore) { s.Held() },
		"Capacity": func(s *classStore) { s.Capacity() },
		"Returned": func(s *classStore) { s.Returned() },
		"Join":     func(s *classStore) { s.Join(lender{})() },
		"GiveBack": func(s *classStore) { s.GiveBack(0, "a test") },
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				_, s := small(t, 12)
				put(t, s, 0)
				var both sync.WaitGroup // nothing else orders the two
				both.Go(func() { call(s) })
				both.Go(func() {
					s.Segments()
					if name != "release" { // when no job has the store open
						s.Drop(3)
						_ = s.Put(2, make([]byte, 1024), store.Origin{})
					}
				})
				both.Wait()
				s.Close()
			}
		})
	}
}

// TestCopiesMoveWhileMemoryMayNotGrow checks that a sample as read can be put into another segment,
// and becomes a form only if there is room.
func TestCopiesMoveWhileMemoryMayNotGrow(t *testing.T) {
	c, s := small(t, 8)
	defer s.Close()
	put(t, s, 0, 1, 2, 3, 4, 5, 6, 7)
	c.Allow(0)
	for id := range 4 {
		if err := s.Replace(id, 0, make([]byte, 1024)); err != nil {
			t.Errorf("sample %d is not moved: %v", id, err)
		}
	}
	if err := s.Replace(4, 1, make([]byte, 500)); !errors.Is(err, store.ErrFull) {
		t.Errorf("a form is made: %v", err)
	}
	if _, used := s.Capacity(); used != 8*1024 || c.Taken() != 8*1024 {
		t.Errorf("%d bytes are used, and %d taken", used, c.Taken())
	}
}
