package staging

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

// TestSlotIDsAreUnique checks that no slot gets the ID of one in use, even after IDs wrap around.
func TestSlotIDsAreUnique(t *testing.T) {
	b, err := New(4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	seen := map[uint32]bool{}
	take := func() {
		s, ok := b.TryAlloc(1)
		if !ok || seen[s.ID] || s.ID&extraSlot != 0 {
			t.Fatalf("slot %#x: %v, of %v", s.ID, ok, seen)
		}
		seen[s.ID] = true
		b.checkInvariants(t)
	}
	take()
	take()
	b.mu.lastSlot = windowBit - 2
	for range 4 {
		take()
	}
	if s, _, err := b.allocExtraNow(1); err != nil || s.ID&extraSlot == 0 {
		t.Errorf("slot %#x in an extra segment: %v", s.ID, err)
	}
}

// TestSegmentsAreSealed checks that neither the size of the ring and of extra segments nor their
// seals can be changed through their descriptors.
func TestSegmentsAreSealed(t *testing.T) {
	b, err := New(8192, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ring, size := b.Ring()
	_, extra, err := b.allocExtraNow(8192)
	if err != nil {
		t.Fatal(err)
	}
	if size != 8192 || extra.Size != 8192 {
		t.Fatalf("ring of %d bytes, extra segment of %d", size, extra.Size)
	}
	for _, f := range []*os.File{ring, extra.File} {
		for _, size := range []int64{0, 1 << 20} {
			if err := unix.Ftruncate(int(f.Fd()), size); !errors.Is(err, unix.EPERM) {
				t.Errorf("%s could be resized to %d bytes: %v", f.Name(), size, err)
			}
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err,
			unix.EPERM) {
			t.Errorf("%s could be sealed against writing: %v", f.Name(), err)
		}
	}
}

// extraSegments counts this process's descriptors and mappings of extra segments.
func extraSegments(t *testing.T) (open, mapped int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	const name = "hdmlp-staging-extra"
	return testkit.Descriptors(t, name), strings.Count(string(maps), name)
}

// TestExtraSegmentsAreReleased checks that an extra segment is closed and unmapped with its slot,
// or with the buffer.
func TestExtraSegmentsAreReleased(t *testing.T) {
	b, err := New(4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	var slots []Slot
	for range 4 {
		s, _, err := b.allocExtraNow(4096)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	are := func(when string, want int) {
		t.Helper()
		if open, mapped := extraSegments(t); open != want || mapped != want {
			t.Errorf("%s %d are open and %d mapped, want %d", when, open, mapped, want)
		}
	}
	are("at first", 4)
	b.MarkSent([]uint32{slots[0].ID, slots[1].ID})
	if retired, err := b.Return(slots[0].ID); err != nil || retired != slots[0].Segment {
		t.Errorf("segment %d ended: %v", retired, err)
	}
	if retired, err := b.Free(slots[2].ID); err != nil || retired != slots[2].Segment {
		t.Errorf("segment %d ended: %v", retired, err)
	}
	are("after two were freed", 2)
	b.Close()
	b.Close()
	are("after Close", 0)
	if fd := b.ring.file.Fd(); fd != ^uintptr(0) {
		t.Errorf("the ring is still open as descriptor %d", fd)
	}
}

// TestAllocAfterClose checks that Alloc returns os.ErrClosed once the buffer is closed, even if it
// was waiting then.
func TestAllocAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := New(4096, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := b.TryAlloc(4096); !ok {
			t.Fatal("no free memory")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waits := make(chan error)
		go func() {
			_, _, err := b.Alloc(ctx, 1)
			waits <- err
		}()
		synctest.Wait()
		begun := time.Now()
		b.Close()
		_, _, asks := b.AllocFirst(ctx, 1)
		if err := <-waits; !errors.Is(err, os.ErrClosed) || !errors.Is(asks, os.ErrClosed) {
			t.Errorf("the waiting Alloc returned %v, a later one %v", err, asks)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("the waiting Alloc was not woken, and looked again after %v", took)
		}
		if s, ok := b.TryAlloc(1); ok {
			t.Errorf("slot %d after Close", s.ID)
		}
	})
}

// TestUrgeReplacesEarlierCalls checks that each call of Urge or UrgeFirst replaces the previous
// one, for both kinds of allocations.
func TestUrgeReplacesEarlierCalls(t *testing.T) {
	for name, c := range map[string]struct {
		urge        func(b *Buffer)
		next, first bool // which allocations are urged
	}{
		"the next":            {func(b *Buffer) { b.Urge(true) }, true, false},
		"the first":           {func(b *Buffer) { b.UrgeFirst() }, false, true},
		"neither any more":    {func(b *Buffer) { b.Urge(true); b.Urge(false) }, false, false},
		"nor the first":       {func(b *Buffer) { b.UrgeFirst(); b.Urge(false) }, false, false},
		"the first, no other": {func(b *Buffer) { b.Urge(true); b.UrgeFirst() }, false, true},
		"the next, no first":  {func(b *Buffer) { b.UrgeFirst(); b.Urge(true) }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			for first, urged := range map[bool]bool{false: c.next, true: c.first} {
				synctest.Test(t, func(t *testing.T) {
					b, err := New(4096, 0)
					if err != nil {
						t.Fatal(err)
					}
					defer b.Close()
					if _, ok := b.TryAlloc(4096); !ok {
						t.Fatal("no free memory")
					}
					c.urge(b)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					alloc := b.Alloc
					if first {
						alloc = b.AllocFirst
					}
					if _, extra, err := alloc(ctx, 100); (extra != nil) != urged ||
						(err == nil) != urged {
						t.Errorf("first %v: got an extra segment: %v, %v", first, extra != nil,
							err)
					}
				})
			}
		})
	}
}

// TestResidentCountsUsedPages checks that pages of the ring count once they are used.
func TestResidentCountsUsedPages(t *testing.T) {
	b, err := New(64<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	before := b.Resident()
	b.Data(0, 1)[0] = 1
	if after := b.Resident(); before >= 32<<20 || after <= before || after >= 32<<20 {
		t.Errorf("%d bytes at first, %d after a page was used, of %d", before, after, b.size)
	}
}
