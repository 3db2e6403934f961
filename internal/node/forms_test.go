package node

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestPixelsLeaveMemoryThatWasNotGiven: pixels take all memory that the user gave, and half of what
// is left of memory whose size was derived.
func TestPixelsLeaveMemoryThatWasNotGiven(t *testing.T) {
	class := func(memory bool, capacity int64) config.StorageClass {
		return config.StorageClass{
			Memory: memory, Options: option.Values{store.CapacityKey: capacity},
		}
	}
	for name, c := range map[string]struct {
		source, entries string
		capacity, want  int64
	}{
		"given":            {"an argument", "", 1000, 1000},
		"a class's own":    {"", "some", 1000, 1000},
		"derived":          {"", "", 1000, 450},
		"a default":        {"default", "", 1000, 450},
		"measured":         {"measured", "", 1000, 450},
		"less than others": {"default", "", 90, 0},
	} {
		cfg := &config.Config{
			Entries:        c.entries,
			Origins:        map[string]config.Origin{"memory": {Source: c.source}},
			StorageClasses: []config.StorageClass{class(true, c.capacity), class(false, 1<<40)},
		}
		if got := besideForms(cfg, 100); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := besideForms(&config.Config{}, 100); got != 0 {
		t.Errorf("without memory: %d", got)
	}
}
