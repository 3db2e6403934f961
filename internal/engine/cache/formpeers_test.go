package cache

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// linkedPeer is another node, whose cache serves all samples.
type linkedPeer struct {
	fakePeer
	cache *Cache
	// alter, if not nil, changes what is sent.
	alter func(c *Copy)
	// gate, if not nil, is received from before an answer.
	gate chan struct{}

	mu    sync.Mutex // guards the following
	wants []routing.Want
}

func (p *linkedPeer) Fetch(ctx context.Context, id int, dst []byte, w routing.Want,
	_ func() time.Duration, _ time.Duration,
) (a routing.Answer, err error) {
	p.mu.Lock()
	p.wants = append(p.wants, w)
	p.mu.Unlock()
	if p.gate != nil {
		<-p.gate
	}
	answer := func(c Copy, _ bool) error {
		if p.alter != nil {
			p.alter(&c)
		}
		if c.Kind == 0 && len(c.Data) != w.Size || c.Kind != 0 && len(c.Data) > w.Most {
			return errors.New("more than is wanted")
		}
		copy(dst, c.Data)
		a = routing.Answer{Node: 1, Kind: c.Kind, Size: len(c.Data), Digest: c.Digest}
		return nil
	}
	if c, ok := p.cache.Held(id, w); ok {
		err = answer(c, false)
		c.Hold.Release()
		return a, err
	}
	_, err = p.cache.Serve(ctx, id, w, answer)
	return a, err
}

// formingOwner returns a rig that holds samples as forms, and a peer that is its node.
func formingOwner(t *testing.T, samples int, f fakeForms) (*rig, *linkedPeer) {
	g, _ := forming(t, samples, 1400, f)
	g.use.TakeForms(true)
	settle()
	if f, _ := g.cache.Forms(0); f.Samples != int64(samples) {
		t.Fatalf("%+v", f)
	}
	return g, &linkedPeer{cache: g.cache}
}

// asker returns a rig for samples of 1000 bytes that holds none, and takes forms of others.
func asker(t *testing.T, samples int, change func(o *rigOptions)) *rig {
	o := plain(samples)
	o.sizes = slices.Repeat([]int{1000}, samples)
	o.converter = fakeForms{}
	if change != nil {
		change(&o)
	}
	return newRig(t, o)
}

// lossy reports whether the form of a sample does not give the sample, with fakeForms{lossy: 5}.
func lossy(id int) bool { return int(content(id, 1000)[0])%5 == 0 }

// TestNodesSendFormsTheyHold checks that a request that takes forms gets them from another node
// without a restored sample, a read of the source, or a buffer of less than a form may have; and
// that one that takes none gets the sample.
func TestNodesSendFormsTheyHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 200
		owner, peer := formingOwner(t, samples, fakeForms{})
		defer owner.close()
		g := asker(t, samples, nil)
		defer g.close()
		w := &Worker{}
		for id := range samples {
			s, err := g.cache.FetchView(t.Context(), w, &Request{Peers: peer, Forms: true}, id)
			if err != nil || s.Kind != fakeExact || s.From != Peer || s.InPlace || s.Read ||
				!bytes.Equal(s.Data[100:], content(id, 1000)) {
				t.Fatalf("sample %d: kind %d, from %v: %v", id, s.Kind, s.From, err)
			}
			s.Release()
			if want := (routing.Want{Size: 1000, Most: 1500}); peer.wants[id] != want {
				t.Fatalf("sample %d: %+v is wanted", id, peer.wants[id])
			}
		}
		f, _ := owner.cache.Forms(0)
		if f.Sent != samples || f.Unpacked != 0 || g.cache.formCounts.received.Load() != samples {
			t.Errorf("%+v", f)
		}
		if got := g.cache.Speeds()[Peer]; got.Bytes != 1100*samples || got.Samples != samples {
			t.Errorf("measured: %+v", got)
		}
		for id := range samples {
			data, from, err := g.fetched(t, &Request{Peers: peer}, id)
			if err != nil || from != Peer || !bytes.Equal(data, content(id, 1000)) {
				t.Fatalf("sample %d as read: from %v: %v", id, from, err)
			}
		}
		f, _ = owner.cache.Forms(0)
		if f.Sent != samples || f.Unpacked != samples || f.Samples != samples {
			t.Errorf("%+v", f)
		}
		if n := g.reads() + owner.reads(); n != samples {
			t.Errorf("%d reads of the source for %d samples", n, samples)
		}
	})
}

// TestFormsThatDoNotSuffice checks that a form which did not suffice becomes its sample where it is
// held, and that no form of the sample is made or asked for again.
func TestFormsThatDoNotSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples, id = 200, 3
		owner, peer := formingOwner(t, samples, fakeForms{})
		defer owner.close()
		owner.cache.AsRead(id)
		settle()
		if f, _ := owner.cache.Forms(0); f.Samples != samples-1 || f.Restored != 1 {
			t.Errorf("%+v", f)
		}
		g := asker(t, samples, nil)
		defer g.close()
		g.cache.AsRead(id + 1)
		for i, kind := range []uint8{0, 0, fakeExact} {
			r := &Request{Peers: peer, Forms: true}
			s, err := g.cache.FetchView(t.Context(), &Worker{}, r, id+i)
			if err != nil || s.Kind != kind || s.From != Peer {
				t.Errorf("sample %d: kind %d, from %v: %v", id+i, s.Kind, s.From, err)
			}
			s.Release()
		}
		if peer.wants[1] != (routing.Want{Size: 1000}) {
			t.Errorf("a form is asked for: %+v", peer.wants[1])
		}
	})
}

// TestFormsThatAreTooLarge checks that another node is sent the sample instead of a form that has
// more bytes than its request takes.
func TestFormsThatAreTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, _ := formingOwner(t, 200, fakeForms{})
		defer owner.close()
		for most, kind := range map[int]uint8{0: 0, 1: 0, 1099: 0, 1100: fakeExact} {
			w := routing.Want{Size: 1000, Most: most}
			held, ok := owner.cache.Held(3, w)
			if ok != (kind != 0) || held.Kind != kind {
				t.Errorf("%d bytes: held: %v, kind %d", most, ok, held.Kind)
			}
			if ok {
				held.Hold.Release()
			}
			if _, err := owner.cache.Serve(t.Context(), 3, w, func(c Copy, read bool) error {
				if c.Kind != kind || read || c.Digest != digest.Of(c.Data) ||
					!bytes.HasSuffix(c.Data, content(3, 1000)) {
					t.Errorf("%d bytes: sent %d of kind %d", most, len(c.Data), c.Kind)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestClassesGetSamplesOfForms checks that a class that is to keep a sample gets it from another
// node's form if that gives it, and that the form is delivered if it does not: the source is read
// for neither.
func TestClassesGetSamplesOfForms(t *testing.T) {
	for name, change := range map[string]func(o *rigOptions){
		"memory": func(o *rigOptions) {
			o.memory, o.memoryClass = 220_000, memory.New(memory.Options{Segment: 40 << 10})
		},
		"a file": func(o *rigOptions) { o.file, o.dir = 400_000, t.TempDir() },
		"all in a file": func(o *rigOptions) {
			o.file, o.dir = 400_000, t.TempDir()
			o.keepAll = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const samples = 200
				owner, peer := formingOwner(t, samples, fakeForms{lossy: 5})
				defer owner.close()
				g := asker(t, samples, change)
				defer g.close()
				for range 2 {
					for id := range samples {
						s, err := g.cache.FetchView(t.Context(), &Worker{},
							&Request{Peers: peer, Forms: true, CacheFirst: true}, id)
						if err != nil || (s.Kind != 0) != lossy(id) ||
							!bytes.HasSuffix(s.Data, content(id, 1000)) {
							t.Fatalf("sample %d: kind %d, from %v: %v", id, s.Kind, s.From, err)
						}
						s.Release()
					}
					g.cache.Flush()
				}
				for id := range samples {
					if g.stores[0].Has(id) == lossy(id) {
						t.Errorf("sample %d is held: %v", id, !lossy(id))
					}
				}
				if n := g.reads() + owner.reads(); n != samples {
					t.Errorf("%d reads of the source for %d samples", n, samples)
				}
				f, _ := owner.cache.Forms(0)
				if f.Samples != samples || f.Reread != 0 || f.Sent+f.Unpacked < samples {
					t.Errorf("%+v", f)
				}
			})
		})
	}
}

// TestFillsGetSamplesOfForms checks that what is brought ahead of time comes from another node's
// forms as well, and that what these do not give stays there.
func TestFillsGetSamplesOfForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 200
		owner, peer := formingOwner(t, samples, fakeForms{lossy: 5})
		defer owner.close()
		g := asker(t, samples, func(o *rigOptions) {
			o.memory, o.memoryClass = 220_000, memory.New(memory.Options{Segment: 40 << 10})
		})
		defer g.close()
		u := g.cache.UseForms(peer, false, nil)
		defer u.Close()
		u.Keep(g.opened.Plan)
		u.Fill(g.opened.Plan, func(int64) {})
		synctest.Wait()
		for id := range samples {
			if g.stores[0].Has(id) == lossy(id) {
				t.Errorf("sample %d is held: %v", id, !lossy(id))
			}
		}
		f, _ := owner.cache.Forms(0)
		if n := g.reads() + owner.reads(); n != samples || f.Samples != samples {
			t.Errorf("%d reads of the source for %d samples; %+v", n, samples, f)
		}
	})
}

// TestFollowersOfAForm checks that fetches that follow one that gets a form get what they take: the
// sample, or, if they take forms, either.
func TestFollowersOfAForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, peer := formingOwner(t, 200, fakeForms{})
		defer owner.close()
		g := asker(t, 200, nil)
		defer g.close()
		peer.gate = make(chan struct{})
		results := make(chan error, 4)
		var forms atomic.Int32
		for i := range 4 {
			r := &Request{Peers: peer, Forms: i%2 == 0}
			go func() {
				s, err := g.cache.FetchView(t.Context(), &Worker{}, r, 7)
				switch {
				case err != nil:
				case s.Kind != 0 && !r.Forms, !bytes.HasSuffix(s.Data, content(7, 1000)):
					err = errors.New("other bytes")
				case s.Kind != 0:
					forms.Add(1)
				}
				results <- err
			}()
			synctest.Wait() // the first one leads
		}
		close(peer.gate)
		for range 4 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if g.reads() != 0 || forms.Load() == 0 {
			t.Errorf("%d reads of the source; %d forms", g.reads(), forms.Load())
		}
	})
}

// TestFormsThatAreNone checks that what another node sends as a form, and is none of the sample, is
// counted, and the sample read from the source; and that a form of other bytes than are known of
// the sample is a conflict.
func TestFormsThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, peer := formingOwner(t, 200, fakeForms{})
		defer owner.close()
		g := asker(t, 200, nil)
		defer g.close()
		damaged := int64(0)
		for id, alter := range []func(c *Copy){
			func(c *Copy) { c.Kind = 99 },
			func(c *Copy) { c.Data = c.Data[:len(c.Data)-11] },
			func(c *Copy) { c.Data = append(bytes.Clone(c.Data), make([]byte, 11)...) },
			func(c *Copy) { c.Data = c.Data[:1] },
		} {
			peer.alter, damaged = alter, damaged+1
			s, err := g.cache.FetchView(t.Context(), &Worker{}, &Request{Peers: peer, Forms: true}, id)
			if err != nil || s.Kind != 0 || !s.Read || !bytes.Equal(s.Data, content(id, 1000)) ||
				g.cache.formCounts.damaged.Load() != damaged {
				t.Errorf("%d: kind %d, read: %v, %v", id, s.Kind, s.Read, err)
			}
			s.Release()
		}
		peer.alter = nil
		if _, err := g.cache.remoteOrigin(2, 9, 7); err != nil {
			t.Fatal(err)
		}
		conflict := (*ConflictError)(nil)
		if s, err := g.cache.FetchView(t.Context(), &Worker{}, &Request{Peers: peer, Forms: true},
			9); !errors.As(err, &conflict) || conflict.Node != 1 || conflict.Than != 2 {
			t.Errorf("kind %d: %v", s.Kind, err)
		}
	})
}

// TestAlteredFormIsNotSent checks that a form that was altered in memory is not sent to another
// node, which gets the sample, read again.
func TestAlteredFormIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, peer := formingOwner(t, 200, fakeForms{})
		defer owner.close()
		g := asker(t, 200, nil)
		defer g.close()
		form, err := owner.stores[0].(store.Forms).Form(7)
		if err != nil {
			t.Fatal(err)
		}
		form.Data[500] ^= 1
		form.Release()
		s, err := g.cache.FetchView(t.Context(), &Worker{}, &Request{Peers: peer, Forms: true}, 7)
		if err != nil || s.Kind != 0 || s.From != Peer || !bytes.Equal(s.Data, content(7, 1000)) {
			t.Errorf("kind %d, from %v: %v", s.Kind, s.From, err)
		}
		if f, _ := owner.cache.Forms(0); f.Damaged != 1 || owner.source.Reads[7].Load() != 2 {
			t.Errorf("%+v; %d reads", f, owner.source.Reads[7].Load())
		}
	})
}
