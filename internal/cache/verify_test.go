package cache

import (
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/cache/digests"
	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/storageclass"
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
	if err := g.stores[0].Put(2, copied, storageclass.Origin{
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
			var differs *digests.VerifyError
			err := g.cache.Verify(t.Context(), &Worker{}, id, data, FirstClass)
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
