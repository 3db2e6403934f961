//go:build invariants

package arena

import (
	"strings"
	"testing"
)

func TestReleaseOfPartlyFreeBytesPanics(t *testing.T) {
	s := New(100, true)
	for range 4 {
		s.Reserve(10)
	}
	s.Release(10, 10)
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said,
			"release of [0, 11), of which {10 10} is free") {
			t.Errorf("panic %q", said)
		}
	}()
	s.Release(0, 11)
}
