package cache

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestFailedReadsLeaveTheGate checks that reads that fail do not keep later ones from the source.
func TestFailedReadsLeaveTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := true
		o := plain(4)
		o.threads, o.mostThreads = 1, 2
		o.hook = func(_ context.Context, id int) error {
			if fails {
				return &source.SampleError{ID: id, Path: "p", Kind: source.ErrUnreadable}
			}
			return nil
		}
		g := newRig(t, o)
		defer g.close()
		for range 10 {
			if _, err := g.fetch(t.Context(), 1); !errors.Is(err, source.ErrUnreadable) {
				t.Fatalf("got %v", err)
			}
		}
		fails = false
		if _, err := g.fetch(t.Context(), 1); err != nil {
			t.Error(err)
		}
	})
}

// TestFollowerOutlastsItsContext checks that a fetch which waits for another's read returns its
// context's error, but not before the read has ended, which may write to its buffer until then.
func TestFollowerOutlastsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan bool)
		o := plain(4)
		o.hook = func(context.Context, int) error {
			<-goOn
			return nil
		}
		g := newRig(t, o)
		defer g.close()
		leader, follower := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := g.fetch(t.Context(), 1)
			leader <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := g.fetch(ctx, 1)
			follower <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-follower:
			t.Errorf("ended with %v before the read", err)
		default:
		}
		close(goOn)
		if err := <-leader; err != nil {
			t.Error(err)
		}
		if err := <-follower; !errors.Is(err, context.Canceled) {
			t.Errorf("the follower got %v", err)
		}
	})
}

// TestServedSampleStaysUntilItIsSent checks that memory which is given back while a sample is sent
// from it stays until that has ended, and no longer.
func TestServedSampleStaysUntilItIsSent(t *testing.T) {
	o := plain(4)
	o.memory = 400
	g := newRig(t, o)
	defer g.close()
	inPlace, store := g.stores[0].(store.InPlace), g.stores[0].(store.Shrinker)
	sent := false
	_, err := g.cache.Serve(t.Context(), 3, routing.Want{}, func(c Copy, _ bool) error {
		at, ok := inPlace.Locate(3)
		if !ok || !store.GiveBack(at.Segment, "a test") {
			t.Fatal("not given back")
		}
		if used := store.Returned().Used; used == 0 {
			t.Error("the memory of a sample that is being sent is free")
		} else if sent = bytes.Equal(c.Data, content(3, 100)); !sent {
			t.Error("another sample is sent")
		}
		return nil
	})
	if err != nil || !sent {
		t.Errorf("sent %v, %v", sent, err)
	}
	if used := store.Returned().Used; used != 0 {
		t.Errorf("%d bytes are in use after it was sent", used)
	}
}
