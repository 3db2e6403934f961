//go:build invariants

package staging

import (
	"strings"
	"testing"
)

// TestMisuseOfSlotsPanics checks that misuse of slots panics if invariants are checked.
func TestMisuseOfSlotsPanics(t *testing.T) {
	for _, c := range []struct {
		name, want string
		harm       func(b *Buffer, freed Slot)
	}{
		{"freed twice", "is freed, but is not in use", func(b *Buffer, freed Slot) {
			_, _ = b.Free(freed.ID)
		}},
		{"trimmed after it was freed", "trim of slot", func(b *Buffer, freed Slot) {
			b.Trim(freed.ID, 0)
		}},
		{
			"marked as sent after it was freed", "is marked as sent",
			func(b *Buffer, freed Slot) {
				b.MarkSent([]uint32{freed.ID})
			},
		},
		{
			"written after it was freed", "was written after its release: 0x7",
			func(b *Buffer, freed Slot) {
				freed.Data[100] = 7
				_, _ = b.TryAlloc(4096)
			},
		},
		{"extent freed twice", "free extents", func(b *Buffer, freed Slot) {
			b.insert(extent{freed.Offset, 64})
		}},
		{"extent lost", "neither free nor in a slot", func(b *Buffer, freed Slot) {
			s, _ := b.TryAlloc(64)
			delete(b.mu.slots, s.ID)
			other, _ := b.TryAlloc(64)
			_, _ = b.Free(other.ID)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := New(4096, 0)
			if err != nil {
				t.Fatal(err)
			}
			s, ok := b.TryAlloc(4096)
			if !ok {
				t.Fatal("an empty ring has no free memory")
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
					t.Errorf("panic with %q, want %q", said, c.want)
				}
			}()
			c.harm(b, s)
		})
	}
}
