package cache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestVerifyComparesWithTheSource checks that bytes which are about to be delivered are compared
// with the digest of this cache's own read, without another one, and if there was none, with a read
// that is made for that.
func TestVerifyComparesWithTheSource(t *testing.T) {
	o := plain(4)
	o.memory = 400
	g := newRig(t, o)
	defer g.close()
	if _, err := g.fetch(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	copied := content(2, 100)
	if err := g.stores[0].Put(2, copied, store.Origin{
		Digest: digest.Of(copied),
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []int{1, 2} {
		for _, changed := range []bool{false, true} {
			data := content(id, 100)
			if changed {
				data[99] ^= 1
			}
			var differs *VerifyError
			err := g.cache.Verify(t.Context(), &Worker{}, &Request{}, id, data, FirstClass)
			if errors.As(err, &differs) != changed || !changed && err != nil {
				t.Errorf("sample %d, changed %v: %v", id, changed, err)
			} else if changed && (differs.Sample != id || differs.Got != digest.Of(data) ||
				differs.Want != digest.Of(content(id, 100)) || differs.From != "memory") {
				t.Errorf("sample %d: %+v", id, differs)
			}
		}
		if id == 1 && g.source.Reads[1].Load() != 1 {
			t.Errorf("sample 1 was read %d times, want once", g.source.Reads[1].Load())
		}
		if id == 2 && g.source.Reads[2].Load() == 0 {
			t.Error("a copy of an earlier job was not compared with the source")
		}
	}
}

// TestVerificationThatHangsIsGivenUp checks that a read of the source that is made to compare a
// copy with is given up if it hangs, as any other.
func TestVerificationThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(4)
		o.memory = 400
		o.timeout = time.Minute
		o.hook = cachetest.Hanging(gate, 1)
		g := newRig(t, o)
		b := &verifier{consumer: consumer{
			cache: g.cache, id: 1, done: make(chan error, 1), back: make(chan bool, 1),
		}}
		g.cache.Submit([]Task{{Consumer: b}})
		select {
		case err := <-b.done:
			if !errors.Is(err, source.ErrUnavailable) {
				t.Errorf("it ends with %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("nothing has given it up")
		}
		close(gate)
		synctest.Wait()
		if len(b.back) == 0 || !<-b.back {
			t.Error("the worker was not told that it was replaced")
		}
		g.close()
	})
}

// verifier is a consumer that verifies what an earlier job has left of its sample.
type verifier struct{ consumer }

func (b *verifier) Bring(w *Worker, _ int) (abandoned bool) {
	err := b.cache.Verify(context.Background(), w, &Request{Consumer: b}, b.id,
		content(b.id, 100), FirstClass)
	if abandoned = err == ErrAbandoned; !abandoned {
		b.done <- err
	}
	b.back <- abandoned
	return abandoned
}

// TestVerificationsReadOnce checks that verifications of a sample at the same time, and fetches,
// read it from the source once.
func TestVerificationsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(4)
		o.hook = cachetest.Hanging(gate, 1)
		g := newRig(t, o)
		defer g.close()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				err := g.cache.Verify(t.Context(), &Worker{}, &Request{}, 1, content(1, 100), Peer)
				if err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				data, err := g.fetch(t.Context(), 1)
				if err != nil || !slices.Equal(data, content(1, 100)) {
					t.Errorf("%q, %v", data, err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		all.Wait()
		if n := g.source.Reads[1].Load(); n != 1 {
			t.Errorf("the source was read %d times", n)
		}
	})
}
