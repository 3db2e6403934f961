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

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// served is what Serve delivers to another node.
type served struct {
	data   []byte
	digest uint32
	source int64 // bytes read from the source for it
	err    error
}

// serve makes the cache serve a sample to another node.
func (g *rig) serve(ctx context.Context, id int) (got served) {
	got.source, got.err = g.cache.Serve(ctx, id, routing.Want{}, func(c Copy, _ bool) error {
		got.data, got.digest = bytes.Clone(c.Data), c.Digest
		return nil
	})
	return got
}

// TestServeSendsBytesAndDigest checks that another node gets a sample's bytes and digest, and that
// Serve reports what it read from the source.
func TestServeSendsBytesAndDigest(t *testing.T) {
	for name, c := range map[string]struct {
		capacity, again int64 // of the class; bytes read from the source the second time
	}{"kept": {400, 0}, "not kept": {0, 100}} {
		t.Run(name, func(t *testing.T) {
			o := plain(4)
			o.memory = c.capacity
			g := newRig(t, o)
			defer g.close()
			for _, source := range []int64{100, c.again} {
				got := g.serve(t.Context(), 3)
				if got.err != nil || got.source != source ||
					!bytes.Equal(got.data, content(3, 100)) || got.digest != digest.Of(got.data) {
					t.Errorf("served %+v, want the sample and %d bytes from the source", got,
						source)
				}
			}
			held, ok := g.cache.Held(3, routing.Want{})
			if ok != (c.capacity > 0) || ok && (!bytes.Equal(held.Data, content(3, 100)) ||
				held.Digest != digest.Of(held.Data)) {
				t.Errorf("held: %v, with digest %08x", ok, held.Digest)
			}
			if ok {
				held.Hold.Release()
			}
		})
	}
}

// TestServeSendsDigestOfWarmCopy checks that the digest of a copy that an earlier cache has left is
// known once the copy is confirmed.
func TestServeSendsDigestOfWarmCopy(t *testing.T) {
	o := plain(4)
	o.memory = 400
	g := newRig(t, o)
	defer g.close()
	want := content(2, 100)
	if err := g.stores[0].Put(2, want, store.Origin{Digest: digest.Of(want)}); err != nil {
		t.Fatal(err)
	}
	if got := g.serve(t.Context(), 2); got.err != nil || got.source != 0 ||
		got.digest != digest.Of(want) || !bytes.Equal(got.data, want) {
		t.Errorf("served %+v", got)
	}
	held, ok := g.cache.Held(2, routing.Want{})
	if !ok || held.Digest != digest.Of(want) {
		t.Fatalf("held: %v, with digest %08x", ok, held.Digest)
	}
	held.Hold.Release()
}

// TestServeRefusesInvalidIDs checks that a request for a number that is no sample's is refused.
func TestServeRefusesInvalidIDs(t *testing.T) {
	o := plain(4)
	o.memory = 400
	g := newRig(t, o)
	defer g.close()
	for _, id := range []int{-1, -64, math.MinInt32, 4, math.MaxInt32} {
		if got := g.serve(t.Context(), id); !errors.Is(got.err, source.ErrNoSample) ||
			got.data != nil {
			t.Errorf("sample %d: served %+v", id, got)
		}
		if _, ok := g.cache.Held(id, routing.Want{}); ok || g.cache.Has(id) {
			t.Errorf("sample %d is held", id)
		}
	}
}

// slowPeer owns every sample, and answers once gate is closed.
type slowPeer struct {
	fakePeer
	gate chan struct{}
}

func (p *slowPeer) Fetch(ctx context.Context, id int, dst []byte, w routing.Want,
	source func() time.Duration, due time.Duration,
) (routing.Answer, error) {
	<-p.gate
	return p.fakePeer.Fetch(ctx, id, dst, w, source, due)
}

func newSlowPeer() *slowPeer {
	return &slowPeer{
		fakePeer{data: func(id int) []byte { return content(id, 100) }},
		make(chan struct{}),
	}
}

// slowerSource is another node. While it answers, the source turns out to be slow.
type slowerSource struct {
	fakePeer
	measure       func()
	before, after time.Duration
}

func (p *slowerSource) Fetch(ctx context.Context, id int, dst []byte, w routing.Want,
	source func() time.Duration, due time.Duration,
) (routing.Answer, error) {
	p.before = source()
	p.measure()
	p.after = source()
	return p.fakePeer.Fetch(ctx, id, dst, w, source, due)
}

// TestRequestsKnowTheSourceAsItIs checks that a request to another node gets the estimate of how
// long the source takes that is current when it asks for it.
func TestRequestsKnowTheSourceAsItIs(t *testing.T) {
	o := plain(4)
	o.known = map[string]model.Known{"source": given(0.001, 0)}
	g := newRig(t, o)
	defer g.close()
	p := &slowerSource{measure: func() { g.cache.meters[Source].Know(given(3, 0)) }}
	p.data = func(id int) []byte { return content(id, 100) }
	s, err := g.cache.Fetch(t.Context(), &Request{Peers: p}, 1, make([]byte, 100))
	if err != nil || s.From != Peer || p.before != time.Millisecond || p.after != 3*time.Second {
		t.Errorf("from %v, told %v and then %v: %v", s.From, p.before, p.after, err)
	}
}

// TestRemoteReadsDoNotWaitForAnotherNode checks that a sample that this node is fetching from
// another one is refused to a third at once, and that the third's buffer is not written to when the
// sample arrives.
func TestRemoteReadsDoNotWaitForAnotherNode(t *testing.T) {
	for name, capacity := range map[string]int64{"into a buffer": 0, "in place": 400} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := plain(4)
				o.memory = capacity
				g := newRig(t, o)
				defer g.close()
				p := newSlowPeer()
				own := make(chan error)
				go func() {
					_, tier, err := g.fetched(t, &Request{Peers: p}, 1)
					if tier != Peer {
						t.Errorf("the node's own read came from %v", tier)
					}
					own <- err
				}()
				synctest.Wait()
				if got := g.serve(t.Context(), 1); !errors.Is(got.err, source.ErrNoSample) ||
					got.data != nil {
					t.Errorf("served %+v", got)
				}
				dst := make([]byte, 100)
				if _, err := g.cache.Fetch(t.Context(), &Request{remote: true}, 1,
					dst); !errors.Is(err, errElsewhere) {
					t.Errorf("Fetch returned %v", err)
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

// TestPeerFetchIsNotASourceRead checks that a sample from another node counts as read from the
// source neither in the result of Fetch nor in the cache's totals.
func TestPeerFetchIsNotASourceRead(t *testing.T) {
	for _, capacity := range []int64{0, 400} {
		o := plain(4)
		o.memory = capacity
		g := newRig(t, o)
		p := &fakePeer{data: func(id int) []byte { return content(id, 100) }}
		s, err := g.cache.Fetch(t.Context(), &Request{Peers: p}, 1, make([]byte, 100))
		if err != nil || s.From != Peer || s.Read || !bytes.Equal(s.Data, content(1, 100)) {
			t.Errorf("capacity %d: from %v, read %v, %v", capacity, s.From, s.Read, err)
		}
		if samples, bytes := g.cache.SourceReads(); samples != 0 || bytes != 0 {
			t.Errorf("capacity %d: %d samples and %d bytes count as read from the source", capacity,
				samples, bytes)
		}
		g.close()
	}
}

// TestFetchTellsWhatItWaitedFor checks that a fetch that waits for a sample which another node has
// to read from the source waits for the source, if that takes most of the time, and so do fetches
// that follow it.
func TestFetchTellsWhatItWaitedFor(t *testing.T) {
	for name, capacity := range map[string]int64{"into a buffer": 0, "in place": 400} {
		for waited, want := range map[time.Duration]Tier{
			0: Peer, 4 * time.Second: Peer, 6 * time.Second: Source,
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := plain(4)
					o.memory = capacity
					g := newRig(t, o)
					defer g.close()
					p := newSlowPeer()
					p.waited = waited
					var fetches sync.WaitGroup
					for range 2 {
						fetches.Go(func() {
							s, err := g.cache.Fetch(t.Context(), &Request{Peers: p}, 1, make([]byte, 100))
							if err != nil || s.From != Peer || s.Awaited() != want {
								t.Errorf("from %v, awaited %v, want %v; %v", s.From, s.Awaited(), want, err)
							}
							s.Release()
						})
					}
					time.Sleep(10 * time.Second)
					close(p.gate)
					fetches.Wait()
				})
			})
		}
	}
}

// TestRemoteReadsAreBounded checks that at most as many reads are in progress for other nodes as
// the node has threads.
func TestRemoteReadsAreBounded(t *testing.T) {
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
					t.Errorf("sample %d: served %+v", id, got)
				}
			})
		}
		synctest.Wait()
		if n := under.Load(); n != 3 {
			t.Errorf("%d reads are in progress, want 3", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got := g.serve(ctx, 0); !errors.Is(got.err, context.Canceled) {
			t.Errorf("a cancelled request was served %+v", got)
		}
		close(gate)
		all.Wait()
	})
}

// TestHungRemoteReadsLeaveNothingBehind checks that reads for other nodes that were given up, and
// return later with an error, take no worker from the node, and that later reads succeed.
func TestHungRemoteReadsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reads = 8
		gate := make(chan struct{})
		var back atomic.Bool
		o := plain(reads)
		o.threads, o.timeout = reads, time.Minute
		o.hook = func(_ context.Context, id int) error {
			if back.Load() {
				return nil
			}
			<-gate
			return &source.SampleError{ID: id, Path: "p", Kind: source.ErrUnavailable}
		}
		g := newRig(t, o)
		defer g.close()
		var all sync.WaitGroup
		for id := range reads {
			all.Go(func() {
				if got := g.serve(t.Context(), id); got.err == nil {
					t.Errorf("sample %d: served %+v", id, got)
				}
			})
		}
		<-time.After(2 * time.Minute)
		if n := g.cache.pool.Filling(); n != 0 {
			t.Errorf("%d of the node's workers count as filling", n)
		}
		back.Store(true)
		close(gate)
		all.Wait()
		for id := range reads {
			if got := g.serve(t.Context(), id); got.err != nil ||
				!bytes.Equal(got.data, content(id, 100)) {
				t.Errorf("sample %d: served %+v afterwards", id, got)
			}
		}
	})
}
