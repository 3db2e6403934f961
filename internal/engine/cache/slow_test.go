package cache

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/writeback"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/store"
)

// large is an eighth of the memory for copies that wait to be written.
const large = writeback.Memory / 8

// newStuck returns a rig of 20 large samples, whose file class hangs, and what makes it go on.
func newStuck(t *testing.T, o rigOptions) (g *rig, resume func()) {
	h := &hanging{}
	o.sizes = slices.Repeat([]int{large}, 20)
	o.known = map[string]model.Known{"source": given(0.001, 0), "file": given(0.0001, 0)}
	o.file = 20 * large
	o.dir = t.TempDir()
	o.timeout = time.Minute
	o.wrap = func(s store.Store) store.Store {
		h.Store = s
		return h
	}
	resume = h.hang()
	return newRig(t, o), resume
}

// TestHungWritesAreNotTheSources checks that while writes to a class hang, batches get their
// samples from the source, whatever is read ahead for that class or another one; that no read
// counts as hung; that nothing is read ahead that cannot be kept; and that the class has all when
// it responds.
func TestHungWritesAreNotTheSources(t *testing.T) {
	for name, memory := range map[string]int64{"file": 0, "memory, and all to the file": 10 * large} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reads atomic.Int32
				o := rigOptions{threads: 16, memory: memory, keepAll: memory > 0, fill: true}
				o.hook = func(context.Context, int) error {
					reads.Add(1)
					<-time.After(time.Second)
					return nil
				}
				g, resume := newStuck(t, o)
				defer g.close()
				<-time.After(3 * time.Minute)
				if n := reads.Load(); n > 4 {
					t.Errorf("%d samples were read ahead, for 4 of which there is memory", n)
				}
				for id := range 20 {
					b := &consumer{cache: g.cache, id: id, done: make(chan error, 1)}
					g.cache.Submit([]Task{{Consumer: b}})
					if err := <-b.done; err != nil {
						t.Fatalf("sample %d: %v", id, err)
					}
				}
				if w, ok := g.cache.Waiting(); ok {
					t.Errorf("%+v counts as a read in progress", w)
				}
				resume()
				<-time.After(time.Hour)
				if held := len(g.stores[len(g.stores)-1].Held()); memory == 0 && held != 20 {
					t.Errorf("the class holds %d samples in the end, want all", held)
				}
			})
		})
	}
}

// TestFillsReadEachSampleOnce checks that reading ahead reads no sample that its class then misses,
// however slow the class is and however many reads there may be at the same time.
func TestFillsReadEachSampleOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := rigOptions{threads: 16, fill: true, sizes: slices.Repeat([]int{large}, 20)}
		o.file, o.dir = 20*large, t.TempDir()
		o.wrap = func(s store.Store) store.Store { return slow{s} }
		g := newRig(t, o)
		defer g.close()
		<-time.After(time.Hour)
		samples, _ := g.cache.SourceReads()
		if held := len(g.stores[0].Held()); held != 20 || samples != 20 {
			t.Errorf("%d samples are held, and %d were read, want 20", held, samples)
		}
	})
}

// slow is a store that takes a second for each write.
type slow struct{ store.Store }

func (s slow) Put(id int, data []byte, origin store.Origin) error {
	<-time.After(time.Second)
	return s.Store.Put(id, data, origin)
}

// TestCloseBlamesTheClassThatHangs checks that Close does not say that the source hangs if a class
// does for which samples are read ahead.
func TestCloseBlamesTheClassThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, resume := newStuck(t, rigOptions{threads: 16, fill: true})
		<-time.After(30 * time.Second)
		g.use.Close()
		if hung := g.cache.Close(); hung.Source || !slices.Equal(hung.Classes, []int{0}) {
			t.Errorf("%+v hangs, want the class", hung)
		}
		resume()
		synctest.Wait()
		g.opened.Close(t)
	})
}
