package cache

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/dataset"
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
					if !bytes.Equal(s.Data, content(3, 100)) || s.InPlace != (room > 0) || s.From != Source {
						t.Errorf("wrong bytes, or not where they should be: in place %v, from %v", s.InPlace, s.From)
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
				t.Errorf("room %d: the source was read %d times, by %d fetches as they say", room, n, read.Load())
			}
		})
	}
}

// TestCancelledLeader: a fetch that waits for a read that its leader cancels, because
// its job ended, reads by itself. The source says then that it did not answer, as
// a patient one does when it is told to stop trying.
func TestCancelledLeader(t *testing.T) {
	for _, room := range []int64{0, 400} {
		synctest.Test(t, func(t *testing.T) {
			first := true
			o := plain(4)
			o.memory = room
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
			ctx, cancel := context.WithCancel(t.Context())
			results := make(chan error, 2)
			go func() { results <- fetch(ctx) }()
			synctest.Wait()
			go func() { results <- fetch(t.Context()) }()
			synctest.Wait()
			cancel()
			a, b := <-results, <-results
			if (a == nil) == (b == nil) {
				t.Errorf("room %d: the leader got %v and the follower %v; want an error for the leader alone", room, a, b)
			}
			if n := g.source.Reads[1].Load(); n != 2 {
				t.Errorf("room %d: the source was read %d times, want 2", room, n)
			}
		})
	}
}
