//go:build invariants

package staging

import (
	"strings"
	"testing"
)

// TestWhatMustNotHappenToASlotPanics: with the tag invariants.
func TestWhatMustNotHappenToASlotPanics(t *testing.T) {
	for _, c := range []struct {
		name, want string
		harm       func(b *Buffer, freed Slot)
	}{
		{"it is freed twice", "is freed, and is not in use", func(b *Buffer, freed Slot) {
			_, _ = b.Free(freed.ID)
		}},
		{"it is trimmed after it was freed", "trim of slot", func(b *Buffer, freed Slot) {
			b.Trim(freed.ID, 0)
		}},
		{
			"it is handed over after it was freed", "is described to the process",
			func(b *Buffer, freed Slot) {
				b.Hand([]uint32{freed.ID})
			},
		},
		{
			"it is written after it was freed", "was written after its release: 0x7",
			func(b *Buffer, freed Slot) {
				freed.Data[100] = 7
				_, _ = b.TryAlloc(4096)
			},
		},
		{"its extent is free twice", "free extents", func(b *Buffer, freed Slot) {
			b.insert(extent{freed.Offset, 64})
		}},
		{"its extent is lost", "neither free nor in a slot", func(b *Buffer, freed Slot) {
			s, _ := b.TryAlloc(64)
			delete(b.mu.slots, s.ID)
			other, _ := b.TryAlloc(64)
			_, _ = b.Free(other.ID)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := New(4096)
			if err != nil {
				t.Fatal(err)
			}
			s, ok := b.TryAlloc(4096)
			if !ok {
				t.Fatal("an empty ring has no room")
			}
			clear(s.Data)
			if _, err := b.Free(s.ID); err != nil {
				t.Fatal(err)
			}
			if s.Data[0] == 0 || s.Data[4095] == 0 {
				t.Error("a slot keeps its bytes after it was freed")
			}
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, c.want) {
					t.Errorf("it panics with %q, not %q", said, c.want)
				}
			}()
			c.harm(b, s)
		})
	}
}
