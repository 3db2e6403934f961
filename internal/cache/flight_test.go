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

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// TestReadOnce: however many ask at the same time, the source is read once, and
// everybody gets the bytes, with and without a class to put them in.
func TestReadOnce(t *testing.T) {
	for _, room := range []int64{0, 400} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			o := plain(4)
			o.memory = room
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
					if !bytes.Equal(s.Data, content(3, 100)) || s.InPlace != (room > 0) ||
						s.From != Source {
						t.Errorf("wrong bytes, or not where they should be: in place %v, from %v",
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
				t.Errorf("room %d: the source was read %d times, by %d fetches as they say", room,
					n, read.Load())
			}
		})
	}
}

// TestCancelledLeader: a fetch that waits for a read that its leader cancels, because
// its job ended, reads by itself. The source says then that it did not answer, as
// a patient one does when it is told to stop trying.
func TestCancelledLeader(t *testing.T) {
	for name, c := range map[string]struct {
		room int64
		late bool // the leader's time is up; else it is cancelled
	}{
		"into a buffer":         {},
		"in place":              {room: 400},
		"out of time":           {late: true},
		"in place, out of time": {400, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				o := plain(4)
				o.memory = c.room
				o.hook = func(ctx context.Context, id int) error {
					if !first {
						return nil
					}
					first = false
					<-ctx.Done()
					return &dataset.SampleError{ID: id, Path: "p", Kind: dataset.ErrUnavailable}
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

// forgets is a store that has a sample, but not where it lies.
type forgets struct{ storageclass.InPlace }

func (forgets) Locate(int) (int64, bool) { return 0, false }

// TestASampleThatItsClassDoesNotShowGoesToTheBuffer: as where it is put in doubt as soon as it is
// there.
func TestASampleThatItsClassDoesNotShowGoesToTheBuffer(t *testing.T) {
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
	if _, err := g.cache.Fetch(t.Context(), &Request{}, 2, nil); !errors.Is(err, ErrNoRoom) {
		t.Errorf("without a buffer: %v", err)
	}
}
