package digest_test

import (
	"math/rand/v2"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
)

// TestKnown: digests are stored on disk and sent between nodes, so they must never change. The
// values are the lower halves of those that xxHash's own xxhsum -H3 prints.
func TestKnown(t *testing.T) {
	for text, want := range map[string]uint32{
		"":      0x38d394c2,
		"a":     0x1e964e1f,
		"hdmlp": 0xc1087d86,
	} {
		if got := digest.Of([]byte(text)); got != want {
			t.Errorf("of %q: %08x, want %08x", text, got, want)
		}
	}
}

func TestPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		data := make([]byte, rng.IntN(3000))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		var h digest.Hash
		for rest := data; len(rest) > 0; {
			n := 1 + rng.IntN(len(rest))
			h.Add(rest[:n])
			rest = rest[n:]
		}
		if h.Sum() != digest.Of(data) {
			t.Fatalf("%d bytes: %08x in pieces, %08x at once", len(data), h.Sum(), digest.Of(data))
		}
	}
}
