package staging

import (
	"os"
	"testing"
)

// TestSlotsOfWindowsArePages checks that no page of a window has parts of two slots, also after one
// was trimmed.
func TestSlotsOfWindowsArePages(t *testing.T) {
	page := int64(os.Getpagesize())
	b, err := NewWindow(16*page, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, size := range []int64{1, page, page + 1, 3 * page} {
		s, ok := b.TryAlloc(size)
		if !ok || s.Offset%page != 0 {
			t.Fatalf("slot of %d bytes at %d: %v", size, s.Offset, ok)
		}
		b.Trim(s.ID, 1)
	}
	if used, _ := b.Usage(); used != 4*page {
		t.Errorf("%d bytes are in use, for 4 slots of a page of %d", used, page)
	}
}

// TestNumbersOfWindowSlots checks that the numbers of a window's slots are none of a buffer's own.
func TestNumbersOfWindowSlots(t *testing.T) {
	b, err := New(8192, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.mu.lastSlot = windowBit - 2
	for range 3 {
		s, _ := b.TryAlloc(1)
		x, _, err := b.allocExtraNow(1)
		if err != nil || InWindow(s.ID) || InWindow(x.ID) {
			t.Errorf("slots %#x and %#x: %v", s.ID, x.ID, err)
		}
	}
	for _, n := range []uint32{0, 1, 1<<32 - 1} {
		if !InWindow(WindowSlot(n)) {
			t.Errorf("slot %#x is not in a window", WindowSlot(n))
		}
	}
}
