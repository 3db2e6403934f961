package stage

import (
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/cache/digests"
	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/storageclass"
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
			o.memory, o.file, o.dir, o.planAll, o.preprocessor = c.memory, c.file, t.TempDir(),
				true, c.preprocessor
			g := newRig(t, o)
			defer g.close()
			wrong := cachetest.Content(1, 100)
			wrong[0] ^= 1
			for id := range 4 {
				data := cachetest.Content(id, 100)
				if id == 1 {
					data = wrong
				}
				for _, store := range g.stores {
					if err := store.Put(id, data,
						storageclass.Origin{Digest: digest.Of(data)}); err != nil {
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
			var found *digests.VerifyError
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
