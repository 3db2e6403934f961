package stage

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestVerifyFindsWrongCopies checks that every sample is compared with the source's bytes, whatever
// tier it came from, and is read from the source once for that.
func TestVerifyFindsWrongCopies(t *testing.T) {
	for name, c := range map[string]struct {
		memory, file int64
		confirmed    bool // the copies are confirmed beforehand
		preprocessor Preprocessor
	}{
		"memory": {memory: 400}, "confirmed memory": {memory: 400, confirmed: true},
		"memory, transformed":           {memory: 400, preprocessor: summary{}},
		"confirmed memory, transformed": {memory: 400, confirmed: true, preprocessor: summary{}},
		"file":                          {file: 400},
		"file, transformed":             {file: 400, preprocessor: summary{}},
		"not cached":                    {},
		"not cached, transformed":       {preprocessor: summary{}},
	} {
		t.Run(name, func(t *testing.T) {
			o := plain(4, 2)
			o.memory = c.memory
			o.file = c.file
			o.dir = t.TempDir()
			o.planAll = true
			o.preprocessor = c.preprocessor
			g := newRig(t, o)
			defer g.close()
			wrong := cachetest.Content(1, 100)
			wrong[0] ^= 1
			for id := range 4 {
				data := cachetest.Content(id, 100)
				if id == 1 {
					data = wrong
				}
				for _, opened := range g.stores {
					if err := opened.Put(id, data,
						store.Origin{Digest: digest.Of(data)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if c.confirmed {
				for id := range 4 {
					if err := g.serve(id); err != nil {
						t.Fatal(err)
					}
				}
			}
			g.ranks[0].stager.o.Verify = true
			_, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
			var found *cache.VerifyError
			if c.memory+c.file == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, &found) || found.Sample != 1 || found.Got != digest.Of(wrong) ||
				found.Want != digest.Of(cachetest.Content(1, 100)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestHungVerificationEndsTheStreamInTime checks that a batch fails in time if the read of the
// source hangs that a copy of an earlier job is compared with, transformed or not.
func TestHungVerificationEndsTheStreamInTime(t *testing.T) {
	for name, transforms := range map[string]Preprocessor{"not": nil, "transformed": summary{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				o := plain(4, 2)
				o.memory = 400
				o.planAll = true
				o.preprocessor = transforms
				o.timeout = time.Minute
				o.hook = cachetest.Hanging(gate, 2)
				g := newRig(t, o)
				for id := range 4 {
					data := cachetest.Content(id, 100)
					origin := store.Origin{Digest: digest.Of(data)}
					if err := g.stores[0].Put(id, data, origin); err != nil {
						t.Fatal(err)
					}
				}
				g.ranks[0].stager.o.Verify = true
				begin := time.Now()
				_, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
				var sample *source.SampleError
				if !errors.As(err, &sample) || sample.ID != 2 || time.Since(begin) > 75*time.Second {
					t.Errorf("error %v after %v, want that sample 2 is unavailable", err,
						time.Since(begin))
				}
				close(gate)
				synctest.Wait()
				if used, _ := g.ranks[0].buffer.Usage(); used != 0 {
					t.Errorf("%d bytes are in use after the read returned", used)
				}
				g.close()
			})
		})
	}
}
