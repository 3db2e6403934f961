package catalog

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/memory"
)

// TestRoomIsWithoutMemoryThatWasGivenBack: while memory is short, a class in memory can hold no
// more than it does.
func TestRoomIsWithoutMemoryThatWasGivenBack(t *testing.T) {
	ram := memory.New(memory.Options{})
	defer ram.Close()
	store, err := ram.Open(storageclass.Dataset{
		Samples: 4, Size: func(int) int64 { return 100 },
	}, 400)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c := Class{Store: store, Capacity: 400}
	if err := store.Put(1, make([]byte, 100), storageclass.Origin{}); err != nil {
		t.Fatal(err)
	}
	if got := c.Room(); got != 400 {
		t.Errorf("room for %d bytes", got)
	}
	ram.Allow(0)
	if got := c.Room(); got != 100 {
		t.Errorf("memory is short, and there is room for %d bytes", got)
	}
}
