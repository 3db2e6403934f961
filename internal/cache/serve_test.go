package cache

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// given is what another node is given that asks for a sample.
type given struct {
	data   []byte
	digest uint32
	source int64 // bytes that were read from the source for it
	err    error
}

// serve has the cache serve a sample to another node.
func (g *rig) serve(ctx context.Context, id int) (got given) {
	got.source, got.err = g.cache.Serve(ctx, id, func(data []byte, digest uint32) error {
		got.data, got.digest = bytes.Clone(data), digest
		return nil
	})
	return got
}

// TestOtherNodesAreGivenBytesAndDigest: another node is given a sample's bytes and digest, and
// Serve reports what it read from the source for that.
func TestOtherNodesAreGivenBytesAndDigest(t *testing.T) {
	for name, c := range map[string]struct {
		room, again int64 // what is kept, and what the source gives the second time
	}{"kept": {400, 0}, "not kept": {0, 100}} {
		t.Run(name, func(t *testing.T) {
			o := plain(4)
			o.memory = c.room
			g := newRig(t, o)
			defer g.close()
			for _, source := range []int64{100, c.again} {
				got := g.serve(t.Context(), 3)
				if got.err != nil || got.source != source ||
					!bytes.Equal(got.data, content(3, 100)) || got.digest != digest.Of(got.data) {
					t.Errorf("given %+v, want the sample and %d bytes from the source", got, source)
				}
			}
			if data, sum, ok := g.cache.Held(3); ok != (c.room > 0) ||
				ok && (!bytes.Equal(data, content(3, 100)) || sum != digest.Of(data)) {
				t.Errorf("held: %v, with digest %08x", ok, sum)
			}
		})
	}
}

// TestOtherNodesAreGivenWarmCopiesWithTheirDigest: the digest of a copy that an earlier cache has
// left is known once the copy is confirmed.
func TestOtherNodesAreGivenWarmCopiesWithTheirDigest(t *testing.T) {
	o := plain(4)
	o.memory = 400
	g := newRig(t, o)
	defer g.close()
	want := content(2, 100)
	if err := g.stores[0].Put(2, want, storageclass.Origin{Digest: digest.Of(want)}); err != nil {
		t.Fatal(err)
	}
	if got := g.serve(t.Context(), 2); got.err != nil || got.source != 0 ||
		got.digest != digest.Of(want) || !bytes.Equal(got.data, want) {
		t.Errorf("given %+v", got)
	}
	if _, sum, ok := g.cache.Held(2); !ok || sum != digest.Of(want) {
		t.Errorf("held: %v, with digest %08x", ok, sum)
	}
}

// TestNumbersThatAreNoSampleAreRefused: another node may ask for any number; one that is no sample
// is refused.
func TestNumbersThatAreNoSampleAreRefused(t *testing.T) {
	o := plain(4)
	o.memory = 400
	g := newRig(t, o)
	defer g.close()
	for _, id := range []int{-1, -64, math.MinInt32, 4, math.MaxInt32} {
		if got := g.serve(t.Context(), id); !errors.Is(got.err, dataset.ErrNoSample) ||
			got.data != nil {
			t.Errorf("sample %d: given %+v", id, got)
		}
		if _, _, ok := g.cache.Held(id); ok || g.cache.Has(id) {
			t.Errorf("sample %d is held", id)
		}
	}
}

// waits is a node that owns every sample, and answers once gate is closed.
type waits struct {
	gives
	gate chan struct{}
}

func (p *waits) Fetch(ctx context.Context, id int, dst []byte) (int, uint32, error) {
	<-p.gate
	return p.gives.Fetch(ctx, id, dst)
}

// TestGuestsDoNotWaitForAnotherNode: a sample that this node is asking another node for is refused
// to a third at once, and the third's buffer is not written to when the sample arrives.
func TestGuestsDoNotWaitForAnotherNode(t *testing.T) {
	for name, room := range map[string]int64{"into a buffer": 0, "in place": 400} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := plain(4)
				o.memory = room
				g := newRig(t, o)
				defer g.close()
				p := &waits{
					gives{data: func(id int) []byte { return content(id, 100) }},
					make(chan struct{}),
				}
				own := make(chan error)
				go func() {
					_, place, err := g.fetched(t, &Request{Peers: p}, 1)
					if place != Peer {
						t.Errorf("the node's own read came from %v", place)
					}
					own <- err
				}()
				synctest.Wait()
				if got := g.serve(t.Context(), 1); !errors.Is(got.err, dataset.ErrNoSample) ||
					got.data != nil {
					t.Errorf("given %+v", got)
				}
				dst := make([]byte, 100)
				if _, err := g.cache.Fetch(t.Context(), &Request{remote: true}, 1,
					dst); !errors.Is(err, errElsewhere) {
					t.Errorf("told %v", err)
				}
				close(p.gate)
				if err := <-own; err != nil {
					t.Error(err)
				}
				if !bytes.Equal(dst, make([]byte, 100)) {
					t.Error("the buffer was written to after its owner was told that the sample " +
						"is elsewhere")
				}
				if n := g.source.Reads[1].Load(); n != 0 {
					t.Errorf("the source was read %d times", n)
				}
			})
		})
	}
}

// TestWhatAnotherNodeGivesIsNotReadFromTheSource: neither by the fetch that asked, nor in what the
// cache counts.
func TestWhatAnotherNodeGivesIsNotReadFromTheSource(t *testing.T) {
	for _, room := range []int64{0, 400} {
		o := plain(4)
		o.memory = room
		g := newRig(t, o)
		p := &gives{data: func(id int) []byte { return content(id, 100) }}
		s, err := g.cache.Fetch(t.Context(), &Request{Peers: p}, 1, make([]byte, 100))
		if err != nil || s.From != Peer || s.Read || !bytes.Equal(s.Data, content(1, 100)) {
			t.Errorf("room %d: from %v, read %v, %v", room, s.From, s.Read, err)
		}
		if samples, bytes := g.cache.SourceReads(); samples != 0 || bytes != 0 {
			t.Errorf("room %d: %d samples and %d bytes count as read from the source", room,
				samples, bytes)
		}
		g.close()
	}
}

// TestGuestsAreBounded: no more reads are under way for other nodes than the node has threads for
// itself.
func TestGuestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var under atomic.Int32
		o := plain(16) // with 3 threads
		o.hook = func(context.Context, int) error { under.Add(1); <-gate; return nil }
		g := newRig(t, o)
		defer g.close()
		var all sync.WaitGroup
		for id := range 16 {
			all.Go(func() {
				if got := g.serve(t.Context(), id); got.err != nil ||
					!bytes.Equal(got.data, content(id, 100)) {
					t.Errorf("sample %d: given %+v", id, got)
				}
			})
		}
		synctest.Wait()
		if n := under.Load(); n != 3 {
			t.Errorf("%d reads are under way, want 3", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got := g.serve(ctx, 0); !errors.Is(got.err, context.Canceled) {
			t.Errorf("a node whose request was cancelled is given %+v", got)
		}
		close(gate)
		all.Wait()
	})
}

// TestHungGuestsLeaveNothingBehind: reads for other nodes that were given up, and return later with
// an error, take no worker from the node, and later reads succeed.
func TestHungGuestsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const guests = 8
		gate := make(chan struct{})
		var back atomic.Bool
		o := plain(guests)
		o.threads, o.timeout = guests, time.Minute
		o.hook = func(_ context.Context, id int) error {
			if back.Load() {
				return nil
			}
			<-gate
			return &dataset.SampleError{ID: id, Path: "p", Kind: dataset.ErrUnavailable}
		}
		g := newRig(t, o)
		defer g.close()
		var all sync.WaitGroup
		for id := range guests {
			all.Go(func() {
				if got := g.serve(t.Context(), id); got.err == nil {
					t.Errorf("sample %d: given %+v", id, got)
				}
			})
		}
		<-time.After(2 * time.Minute)
		g.cache.pool.mu.Lock()
		if n := g.cache.pool.filling; n != 0 {
			t.Errorf("%d of the node's workers count as filling", n)
		}
		g.cache.pool.mu.Unlock()
		back.Store(true)
		close(gate)
		all.Wait()
		for id := range guests {
			if got := g.serve(t.Context(), id); got.err != nil ||
				!bytes.Equal(got.data, content(id, 100)) {
				t.Errorf("sample %d: afterwards it is given %+v", id, got)
			}
		}
	})
}
