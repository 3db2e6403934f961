package cache

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestConcurrentFetchesReadOnce checks that concurrent fetches of a sample read it from the source
// once, and all get its bytes, with and without a class to put it in.
func TestConcurrentFetchesReadOnce(t *testing.T) {
	for _, capacity := range []int64{0, 400} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			o := plain(4)
			o.memory = capacity
			o.hook = func(context.Context, int) error { <-gate; return nil }
			g := newRig(t, o)
			defer g.close()
			var all sync.WaitGroup
			var read atomic.Int32
			for range 8 {
				all.Go(func() {
					dst := make([]byte, 100)
					s, err := g.cache.Fetch(t.Context(), &Request{}, 3, dst)
					if err != nil {
						t.Error(err)
						return
					}
					if !bytes.Equal(s.Data, content(3, 100)) || s.InPlace != (capacity > 0) ||
						s.From != Source {
						t.Errorf("wrong bytes or wrong location: in place %v, from %v",
							s.InPlace, s.From)
					}
					if !s.InPlace && &s.Data[0] != &dst[0] {
						t.Error("the bytes are in another buffer")
					}
					if s.Read {
						read.Add(1)
					}
				})
			}
			synctest.Wait() // one reads, seven wait for it
			close(gate)
			all.Wait()
			if n := g.source.Reads[3].Load(); n != 1 || read.Load() != 1 {
				t.Errorf("capacity %d: the source was read %d times, and %d fetches report it",
					capacity,
					n, read.Load())
			}
		})
	}
}

// TestFollowerReadsAfterLeaderIsCancelled checks that a fetch reads by itself if the read that it
// waits for is cancelled because its leader's job ended. The cancelled source reports that it did
// not answer, as a retrying one does when its context is cancelled.
func TestFollowerReadsAfterLeaderIsCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		capacity int64
		late     bool // the leader's deadline passes; else it is cancelled
	}{
		"into a buffer":         {},
		"in place":              {capacity: 400},
		"out of time":           {late: true},
		"in place, out of time": {400, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				o := plain(4)
				o.memory = c.capacity
				o.hook = func(ctx context.Context, id int) error {
					if !first {
						return nil
					}
					first = false
					<-ctx.Done()
					return &source.SampleError{ID: id, Path: "p", Kind: source.ErrUnavailable}
				}
				g := newRig(t, o)
				defer g.close()
				fetch := func(ctx context.Context) error {
					_, err := g.fetch(ctx, 1)
					return err
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				results := make(chan error, 2)
				go func() { results <- fetch(ctx) }()
				synctest.Wait()
				go func() { results <- fetch(t.Context()) }()
				synctest.Wait()
				if !c.late {
					cancel()
				}
				a, b := <-results, <-results
				if (a == nil) == (b == nil) {
					t.Errorf("the leader got %v and the follower %v; want an error for the "+
						"leader alone", a, b)
				}
				if n := g.source.Reads[1].Load(); n != 2 {
					t.Errorf("the source was read %d times, want 2", n)
				}
			})
		})
	}
}

// forgets is a store that holds samples without saying where.
type forgets struct{ store.InPlace }

func (forgets) Locate(int) (at store.Position, ok bool) { return at, false }

func (forgets) View(int) (v store.View, ok bool) { return v, false }

// TestUnlocatedSampleGoesToTheBuffer checks that a sample goes to the buffer if its class holds it
// but cannot locate it, for example because it was put in doubt just then.
func TestUnlocatedSampleGoesToTheBuffer(t *testing.T) {
	o := plain(4)
	o.memory = 400
	g := newRig(t, o)
	defer g.close()
	g.cache.classes[0].inPlace = forgets{g.cache.classes[0].inPlace}
	dst := make([]byte, 100)
	s, err := g.cache.Fetch(t.Context(), &Request{}, 1, dst)
	if err != nil || s.InPlace || s.From != FirstClass || !bytes.Equal(s.Data, content(1, 100)) ||
		&s.Data[0] != &dst[0] {
		t.Errorf("in place %v, from %v, %v", s.InPlace, s.From, err)
	}
	if _, err := g.cache.Fetch(t.Context(), &Request{}, 2, nil); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("without a buffer: %v", err)
	}
}
