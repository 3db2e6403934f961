package cache

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// TestWhichCopiesAreValid checks that a copy that an earlier cache has left, in memory or on disk,
// is served if its file is still the same instance, in whatever directory, or, if versions are
// trusted, if it was made from another directory's file. Otherwise the source is read, and the copy
// replaced.
func TestWhichCopiesAreValid(t *testing.T) {
	for _, class := range []string{"memory", "file"} {
		for name, c := range map[string]struct {
			change       func(s *cachetest.Source)
			trust, valid bool
		}{
			"nothing changed": {func(*cachetest.Source) {}, false, true},
			"the file was replaced": {func(s *cachetest.Source) {
				s.Changed = func(int) int64 { return 6 }
			}, true, false},
			"the dataset was copied": {func(s *cachetest.Source) {
				s.Inode, s.Changed = 8, func(int) int64 { return 6 }
			}, false, false},
			"the dataset was copied, and its version is trusted": {func(s *cachetest.Source) {
				s.Inode, s.Changed = 8, func(int) int64 { return 6 }
			}, true, true},
			"the dataset was moved": {func(s *cachetest.Source) { s.Inode = 8 }, false, true},
			"the stat fails":        {func(s *cachetest.Source) { s.Bad[2] = true }, false, false},
		} {
			t.Run(class+", "+name, func(t *testing.T) {
				o := plain(4)
				o.dir, o.planAll = t.TempDir(), true
				if class == "memory" {
					o.memory, o.memoryClass = 400, memory.New(memory.Options{})
				} else {
					o.file = 400
				}
				first := newRig(t, o)
				first.source.Inode, first.source.Changed = 7, func(int) int64 { return 5 }
				if _, tier, err := first.fetched(t, &Request{}, 2); err != nil || tier != Source {
					t.Fatalf("from %v, %v", tier, err)
				}
				first.close()
				o.trust = c.trust
				next := newRig(t, o)
				defer next.close()
				next.source.Inode, next.source.Changed = 7, func(int) int64 { return 5 }
				c.change(next.source)
				other := func(_ int, dst []byte) { dst[0] ^= 0xff }
				next.source.Bytes = other
				if _, ok := next.cache.Locate(2); ok || !next.stores[0].Has(2) {
					t.Error("a copy is delivered before it is confirmed")
				}
				got, tier, err := next.fetched(t, &Request{}, 2)
				want := content(2, 100)
				switch {
				case next.source.Bad[2]:
					if !errors.Is(err, source.ErrMissing) {
						t.Errorf("got %v", err)
					}
				case err != nil:
					t.Error(err)
				case !c.valid:
					other(2, want)
					fallthrough
				default:
					if !bytes.Equal(got, want) || (tier == Source) == c.valid {
						t.Errorf("different bytes: %v, or unexpected tier: %v",
							!bytes.Equal(got, want), tier)
					}
					before := next.source.Stats.Load()
					if again, tier, err := next.fetched(t, &Request{}, 2); err != nil ||
						tier == Source || !bytes.Equal(again, want) ||
						next.source.Stats.Load() != before {
						t.Errorf("the second fetch: from %v, %v; %d more stats", tier,
							err, next.source.Stats.Load()-before)
					}
				}
			})
		}
	}
}

// TestDoubtConfirmsCopiesOnceMore checks that Doubt makes every copy be confirmed again, once.
func TestDoubtConfirmsCopiesOnceMore(t *testing.T) {
	o := plain(4)
	o.memory, o.planAll = 400, true
	g := newRig(t, o)
	defer g.close()
	now := int64(5)
	g.source.Changed = func(int) int64 { return now }
	if _, _, err := g.fetched(t, &Request{}, 1); err != nil || g.source.Stats.Load() != 0 {
		t.Fatalf("%v; %d stats", err, g.source.Stats.Load())
	}
	g.cache.Doubt()
	if _, ok := g.cache.Held(1, routing.Want{}); ok {
		t.Error("a copy in doubt is served to other nodes")
	}
	for range 2 {
		if _, tier, err := g.fetched(t, &Request{}, 1); err != nil || tier == Source ||
			g.source.Stats.Load() != 1 {
			t.Errorf("from %v, %v; %d stats", tier, err, g.source.Stats.Load())
		}
	}
	g.cache.Doubt()
	now++ // the file was rewritten in place, and its times set back
	g.source.Bytes = func(_ int, dst []byte) { dst[0] ^= 0xff }
	if _, _, err := g.fetched(t, &Request{}, 1); !errors.Is(err, source.ErrChanged) {
		t.Errorf("a file that was rewritten while jobs read it: %v", err)
	}
}

// TestDoubtHoldsForCopiesThatWait checks that a copy which waits to be written when Doubt is called
// is confirmed as any other when it was written: its file has been rewritten since.
func TestDoubtHoldsForCopiesThatWait(t *testing.T) {
	until := make(chan struct{})
	o := plain(1)
	o.file, o.dir = 400, t.TempDir()
	o.wrap = func(s store.Store) store.Store { return heldUp{s, until} }
	g := newRig(t, o)
	defer g.close()
	now := int64(5)
	g.source.Changed = func(int) int64 { return now }
	if _, _, err := g.fetched(t, &Request{}, 0); err != nil {
		t.Fatal(err)
	}
	now++
	g.source.Bytes = func(_ int, dst []byte) { dst[0] ^= 0xff }
	g.cache.Doubt()
	close(until)
	g.cache.Flush()
	if _, tier, err := g.fetched(t, &Request{}, 0); !errors.Is(err, source.ErrChanged) {
		t.Errorf("from %v, %v; want an error, as other bytes were read before", tier, err)
	}
}

// TestConflictNamesBothRemoteNodes checks the error if two other nodes send different bytes.
func TestConflictNamesBothRemoteNodes(t *testing.T) {
	g := newRig(t, plain(4))
	defer g.close()
	if _, err := g.cache.remoteOrigin(2, 1, 7); err != nil {
		t.Fatal(err)
	}
	if _, err := g.cache.remoteOrigin(2, 1, 7); err != nil {
		t.Error(err)
	}
	_, err := g.cache.remoteOrigin(5, 1, 8)
	if err == nil || !strings.Contains(err.Error(),
		"node 5 has other bytes (digest 00000008) than node 2 (00000007)") {
		t.Error(err)
	}
}

// fakePeer owns every sample, and returns data or err.
type fakePeer struct {
	data    func(id int) []byte
	err     error
	arrival float64       // seconds
	waited  time.Duration // for its source
	relays  bool          // it probably has to read what it is asked for
}

func (p *fakePeer) Relays(int) bool { return p.relays }

func (p *fakePeer) Owner(int, int64, float64) (routing.Tier, bool) {
	return routing.Tier{Arrival: p.arrival}, true
}

func (p *fakePeer) Fetch(_ context.Context, id int, dst []byte, w routing.Want,
	_ func() time.Duration, _ time.Duration,
) (routing.Answer, error) {
	copy(dst[:w.Size], p.data(id))
	return routing.Answer{Node: 3, Digest: digest.Of(dst[:w.Size]), Waited: p.waited}, p.err
}

// TestConflictWithThisNode checks that a node that has read other bytes than this one is detected
// and named, whichever of them read first.
func TestConflictWithThisNode(t *testing.T) {
	other := func(id int) []byte {
		b := content(id, 100)
		b[9] ^= 1
		return b
	}
	for name, peerFirst := range map[string]bool{
		"the peer first":   true,
		"the source first": false,
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, plain(4))
			defer g.close()
			p := &fakePeer{data: other}
			if !peerFirst {
				p.err = errors.New("not now")
			}
			r := &Request{Peers: p}
			if _, tier, err := g.fetched(t, r, 1); err != nil || (tier == Peer) != peerFirst {
				t.Fatalf("from %v, %v", tier, err)
			}
			p.err = nil
			if peerFirst {
				p.err = errors.New("not now")
			}
			_, _, err := g.fetched(t, r, 1)
			var conflict *ConflictError
			if !errors.As(err, &conflict) || conflict.Node != 3 || conflict.Sample != 1 ||
				conflict.Path != g.source.Path(1) || conflict.Mine == conflict.Theirs {
				t.Fatalf("got %v", err)
			}
			mine, theirs := digest.Of(content(1, 100)), digest.Of(other(1))
			if conflict.Mine != mine || conflict.Theirs != theirs {
				t.Errorf("mine %08x, theirs %08x; want %08x and %08x", conflict.Mine,
					conflict.Theirs, mine, theirs)
			}
		})
	}
}

// TestCopyWithAnotherDigestIsDropped checks that a copy is dropped if its digest differs from the
// known one, even if its file is the same instance.
func TestCopyWithAnotherDigestIsDropped(t *testing.T) {
	o := plain(4)
	o.memory, o.planAll = 400, true
	g := newRig(t, o)
	defer g.close()
	want, other := content(2, 100), content(3, 100)
	if err := g.stores[0].Put(2, other, store.Origin{Digest: digest.Of(other)}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.cache.remoteOrigin(3, 2, digest.Of(want)); err != nil {
		t.Fatal(err)
	}
	for _, from := range []Tier{Source, FirstClass} {
		if got, tier, err := g.fetched(t, &Request{}, 2); err != nil || tier != from ||
			!bytes.Equal(got, want) {
			t.Errorf("the right bytes: %v, from %v, %v", bytes.Equal(got, want), tier, err)
		}
	}
}
