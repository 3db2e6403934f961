package cache

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// hanging is a store whose reads and writes wait while its gate is not nil, as a disk's that hangs.
type hanging struct {
	store.Store
	gate    atomic.Pointer[chan struct{}]
	waiting atomic.Int32 // reads that wait
}

// hang makes the store hang until resume is called.
func (h *hanging) hang() (resume func()) {
	gate := make(chan struct{})
	h.gate.Store(&gate)
	return func() {
		h.gate.Store(nil)
		close(gate)
	}
}

func (h *hanging) wait() {
	if gate := h.gate.Load(); gate != nil {
		h.waiting.Add(1)
		<-*gate
		h.waiting.Add(-1)
	}
}

func (h *hanging) Read(id int, dst []byte) error {
	h.wait()
	return h.Store.Read(id, dst)
}

func (h *hanging) Put(id int, data []byte, o store.Origin) error {
	h.wait()
	return h.Store.Put(id, data, o)
}

func (h *hanging) Drop(ids ...int) {
	h.wait()
	h.Store.Drop(ids...)
}

// newHanging returns a rig of 8 samples which a file class holds that can be made to hang.
func newHanging(t *testing.T, o rigOptions) (*rig, *hanging) {
	h := &hanging{}
	o.known = map[string]model.Known{"source": given(0.001, 0), "file": given(0.0001, 0)}
	o.file, o.dir = 800, t.TempDir()
	o.wrap = func(s store.Store) store.Store {
		h.Store = s
		return h
	}
	g := newRig(t, o)
	for id := range 8 {
		if _, _, err := g.fetched(t, &Request{}, id); err != nil {
			t.Fatal(err)
		}
	}
	g.cache.Flush()
	return g, h
}

// TestHungClassIsBypassed checks that while a class hangs, samples are read from the source after a
// tenth of a second at most, and all but the first at once; that they are counted as such; that the
// hung read does not write to the fetch's buffer; that this is reported once; and that the class is
// read again when it responds.
func TestHungClassIsBypassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan bool, 8)
		o := plain(8)
		o.responds = func(_ int, responds bool) { told <- responds }
		g, h := newHanging(t, o)
		defer g.close()
		r := &Request{Due: soon(1e6)}
		if s, err := g.cache.Fetch(t.Context(), r, 0, make([]byte, 100)); err != nil ||
			s.From != FirstClass {
			t.Fatalf("before it hangs a sample is from %v: %v", s.From, err)
		}
		hangs := func() store.Hangs { return g.cache.Reader(0).Hangs(time.Now()) }
		resume := h.hang()
		begin, buffers := time.Now(), [8][]byte{}
		for id := range 8 {
			buffers[id] = make([]byte, 100)
			s, err := g.cache.Fetch(t.Context(), r, id, buffers[id])
			if err != nil || s.From != Source || !s.Read || !s.Direct {
				t.Errorf("sample %d: %+v, %v; want it from the source, directly", id, s, err)
			}
			if took := time.Since(begin); took > 110*time.Millisecond {
				t.Errorf("sample %d came after %v", id, took)
			}
		}
		if n := h.waiting.Load(); n != 1 {
			t.Errorf("%d reads hang, want 1", n)
		}
		<-time.After(5 * time.Second)
		if at := hangs().Silent; at < 5*time.Second || at > 6*time.Second {
			t.Errorf("the class has not responded for %v", at)
		}
		if len(told) != 1 || <-told {
			t.Error("want to be told once, that it does not respond")
		}
		if n := hangs(); n.Reads != 1 || n.Times != 1 || n.Took < 5*time.Second ||
			n.Last != time.Now() {
			t.Errorf("while it hangs: %+v", n)
		}
		clear(buffers[0])
		resume()
		synctest.Wait()
		if !bytes.Equal(buffers[0], make([]byte, 100)) {
			t.Error("the hung read has written to the fetch's buffer")
		}
		if at := hangs().Silent; at != 0 || len(told) != 1 || !<-told {
			t.Errorf("after it responds: silent for %v, and not told, or not that", at)
		}
		<-time.After(time.Hour)
		if n := hangs(); n.Reads != 1 || n.Times != 1 || n.Took > 6*time.Second ||
			time.Since(n.Last) != time.Hour {
			t.Errorf("an hour later: %+v", n)
		}
		s, err := g.cache.Fetch(t.Context(), r, 1, buffers[1])
		if err != nil || s.From != FirstClass || !bytes.Equal(s.Data, cachetest.Content(1, 100)) {
			t.Errorf("after it responds a sample is from %v: %v", s.From, err)
		}
	})
}

// TestSlowSourceLeavesTimeForItself: however slow the source is thought to be, a class that hangs
// is given up in time to read the source before a read may take no longer.
func TestSlowSourceLeavesTimeForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, h := newHanging(t, plain(8))
		defer g.close()
		g.cache.timeout = 5 * time.Second
		g.cache.meters[Source].Know(model.GivenRate(1, 60))
		resume := h.hang()
		defer resume()
		begin := time.Now()
		s, err := g.cache.Fetch(t.Context(), &Request{Due: soon(1e6)}, 0, make([]byte, 100))
		if took := time.Since(begin); err != nil || s.From != Source || took > 5*time.Second/2 {
			t.Errorf("the sample is from %v after %v: %v", s.From, took, err)
		}
	})
}

// TestHungClassWhenTheCacheIsClosed checks that Close takes a bounded time if reads of a class, or
// writes to it, hang, and reports which class it is.
func TestHungClassWhenTheCacheIsClosed(t *testing.T) {
	for name, do := range map[string]func(g *rig){
		"read": func(g *rig) {
			_, _ = g.cache.Fetch(context.Background(), &Request{Due: soon(1e6)}, 0, make([]byte, 100))
		},
		"write": func(g *rig) {
			g.stores[0].Drop(0)
			_, _ = g.cache.Fetch(context.Background(), &Request{}, 0, make([]byte, 100))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, h := newHanging(t, plain(8))
				resume := h.hang()
				do(g)
				g.use.Close()
				begin := time.Now()
				if hung := g.cache.Close(); hung.Source || !slices.Equal(hung.Classes, []int{0}) {
					t.Errorf("%+v hangs, want the class", hung)
				}
				if took := time.Since(begin); took > writing+time.Second {
					t.Errorf("Close took %v", took)
				}
				resume()
				synctest.Wait()
				g.opened.Close(t)
			})
		})
	}
}

// TestSlowClassWithoutASource checks that a sample that was not waited for is read from its class
// after all if the source has failed.
func TestSlowClassWithoutASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := false
		o := plain(8)
		o.timeout = time.Minute
		o.hook = func(context.Context, int) error {
			if gone {
				<-time.After(50 * time.Second)
				return &source.SampleError{Kind: source.ErrUnavailable}
			}
			return nil
		}
		g, h := newHanging(t, o)
		defer g.close()
		gone = true
		resume := h.hang()
		time.AfterFunc(time.Second, resume)
		s, err := g.cache.Fetch(t.Context(), &Request{Due: soon(1e6)}, 0, make([]byte, 100))
		if err != nil || s.From != FirstClass || !bytes.Equal(s.Data, cachetest.Content(0, 100)) {
			t.Errorf("the sample is from %v: %v; want it from the class", s.From, err)
		}
		resume = h.hang()
		_, err = g.cache.Fetch(t.Context(), &Request{Due: soon(1e6)}, 1, make([]byte, 100))
		if !errors.Is(err, source.ErrUnavailable) {
			t.Errorf("with neither: %v", err)
		}
		resume()
	})
}

// TestUndroppedCopyIsNotDelivered checks that copies which are not valid any more, and which their
// class did not drop because it hung, are not delivered when it responds, although memory held the
// samples meanwhile.
func TestUndroppedCopyIsNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(8)
		o.file = 800
		o.dir = t.TempDir()
		o.timeout = time.Minute
		first := newRig(t, o)
		for id := range 8 {
			if _, _, err := first.fetched(t, &Request{}, id); err != nil {
				t.Fatal(err)
			}
		}
		first.close()
		h := &hanging{}
		o.memory = 800
		o.wrap = func(s store.Store) store.Store {
			h.Store = s
			return h
		}
		g := newRig(t, o)
		defer g.close()
		g.source.Changed = func(int) int64 { return 6 }
		g.source.Bytes = func(_ int, dst []byte) { dst[0] ^= 0xff }
		resume := h.hang()
		for id := range 8 {
			if _, _, err := g.fetched(t, &Request{}, id); err != nil {
				t.Fatal(err)
			}
		}
		resume()
		synctest.Wait()
		g.stores[0].Drop(0, 1, 2, 3, 4, 5, 6, 7) // as if memory was short
		for id := range 8 {
			want := cachetest.Content(id, 100)
			want[0] ^= 0xff
			got, tier, err := g.fetched(t, &Request{Due: soon(1e6)}, id)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("sample %d is from %v, with other bytes than its file: %v", id, tier, err)
			}
		}
	})
}

// TestHungDropDelaysOneSample checks that copies which are not valid any more are neither delivered
// nor waited for for long if their class hangs, and are dropped when it responds.
func TestHungDropDelaysOneSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(8)
		o.timeout = time.Minute
		g, h := newHanging(t, o)
		defer g.close()
		g.source.Changed = func(int) int64 { return 6 }
		g.cache.Doubt()
		time.AfterFunc(10*time.Minute, h.hang())
		begin := time.Now()
		for range 2 {
			for id := range 8 {
				s, err := g.cache.Fetch(t.Context(), &Request{}, id, make([]byte, 100))
				if err != nil || s.From == FirstClass {
					t.Errorf("sample %d is from %v: %v", id, s.From, err)
				}
			}
		}
		if took := time.Since(begin); took > 2*routing.MinTimeout {
			t.Errorf("the samples came after %v", took)
		}
		<-time.After(11 * time.Minute)
		for id := range 8 {
			if _, _, err := g.fetched(t, &Request{}, id); err != nil {
				t.Error(err)
			}
		}
		g.cache.Flush()
		for id := range 8 {
			s, err := g.cache.Fetch(t.Context(), &Request{Due: soon(1e6)}, id, make([]byte, 100))
			if err != nil || s.From != FirstClass {
				t.Errorf("when the class responds sample %d is from %v: %v", id, s.From, err)
			}
		}
	})
}
