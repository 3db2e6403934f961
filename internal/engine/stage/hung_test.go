package stage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/source"
)

// TestHungReadEndsTheStreamInTime checks that when a read hangs, the stream ends in time, with an
// error that states what hangs; that the memory that the read may still write to is not reused;
// that the number of workers stays the same; that closing does not hang; and that everything is
// freed when the read returns.
func TestHungReadEndsTheStreamInTime(t *testing.T) {
	for _, capacity := range []int64{0, 800} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			o := plain(8, 2)
			o.threads = 1
			o.timeout = time.Minute
			o.memory = capacity
			o.hook = cachetest.Hanging(gate, 5)
			g := newRig(t, o)
			begin := time.Now()
			out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
			took := time.Since(begin)
			var sample *source.SampleError
			if !errors.As(err, &sample) || sample.ID != 5 ||
				!errors.Is(err, source.ErrUnavailable) {
				t.Fatalf("error %v, want that sample 5 is unavailable", err)
			}
			for _, want := range []string{
				"sample 5", g.source.Path(5), "no answer for 1m",
				"source_timeout (1m0s)",
			} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "check") { // that is Advice's
				t.Errorf("error %q has advice besides %q", err, sample.Advice())
			}
			if took < time.Minute || took > 75*time.Second {
				t.Errorf("it took %v, want a little more than source_timeout", took)
			}
			if got := stream(out); !slices.Equal(got, []int{0, 1, 2, 3}) {
				t.Errorf("delivered %v before", got)
			}
			if w, ok := g.cache.Waiting(); !ok || w.Sample != 5 ||
				w.Since.After(begin.Add(time.Second)) {
				t.Errorf("waiting %+v, %v; want the read that still hangs", w, ok)
			}
			b := g.ranks[0].buffer
			synctest.Wait()
			used, _ := b.Usage()
			if capacity == 0 && used == 0 {
				t.Error("the hung read's memory was freed")
			}
			// The source answers again, except for the hung read.
			out, err = g.run(g.ranks[0], step{0, 2}, 0, 0)
			if err != nil || !slices.Equal(stream(out), []int{4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}) {
				t.Errorf("after a hung read the stream is %v, %v", stream(out), err)
			}
			for at, got := range out {
				if !equal(got, g.want(0, at)) {
					t.Errorf("%+v: wrong content", at)
				}
			}
			begin = time.Now()
			g.ranks[0].stager.Close()
			if g.cache.Close().None() {
				t.Error("Close reports that all reads have ended")
			}
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("Close took %v", took)
			}
			if used, _ := b.Usage(); capacity == 0 && used == 0 {
				t.Error("the hung read's memory was freed")
			}
			close(gate)
			synctest.Wait()
			if used, _ := b.Usage(); used != 0 {
				t.Errorf("%d bytes are in use after the read returned", used)
			}
			if w, ok := g.cache.Waiting(); ok {
				t.Errorf("%+v is reported to hang after all reads returned", w)
			}
			var charged int64
			for _, e := range g.ranks[0].ledger.Epochs() {
				charged += e.Source.Samples
			}
			if read, _ := g.cache.SourceReads(); read != charged {
				t.Errorf("%d samples were read from the source, and %d are charged to epochs", read,
					charged)
			}
			for _, s := range g.stores {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestHungReadsAreBounded checks that a source that is gone does not block ever more threads.
func TestHungReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var under atomic.Int32
		o := plain(40, 1)
		o.threads, o.timeout = 5, time.Minute
		o.hook = func(context.Context, int) error { under.Add(1); <-gate; return nil }
		g := newRig(t, o)
		for range 5 {
			_, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
			if !errors.Is(err, source.ErrUnavailable) {
				t.Fatalf("error %v", err)
			}
		}
		if n := under.Load(); n < 5 || n > 10 {
			t.Errorf("%d reads were started, want 5 that hang, and at most 5 that were in "+
				"progress then", n)
		}
		_, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
		if err == nil || !strings.Contains(err.Error(), "not read, because ") {
			t.Errorf("error %v does not say why it was not tried", err)
		}
		close(gate)
		synctest.Wait()
		if out, err := g.run(g.ranks[0], step{0, 0}, 0, 0); err != nil || len(stream(out)) != 40 {
			t.Errorf("after the source came back: %d samples, %v", len(stream(out)), err)
		}
		g.close()
	})
}

// TestRunEndsWhileAReadHangs checks that cancelling a Run does not wait for a hung read.
func TestRunEndsWhileAReadHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(8, 1)
		o.threads = 1
		o.timeout = time.Hour
		o.hook = cachetest.Hanging(gate, 0)
		g := newRig(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- g.ranks[0].stager.Run(ctx, 0, 0, func(*Batch) error { return nil })
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		if used, _ := g.ranks[0].buffer.Usage(); used == 0 {
			t.Error("the memory of the read in progress was freed")
		}
		close(gate)
		synctest.Wait()
		if used, _ := g.ranks[0].buffer.Usage(); used != 0 {
			t.Errorf("%d bytes are in use at the end", used)
		}
		g.close()
	})
}
