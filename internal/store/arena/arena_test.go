package arena

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func (s *Space) check(t *rapid.T) {
	var holes int64
	for i, e := range s.free {
		holes += e.Length
		if e.Length <= 0 || e.end() >= s.end || (i > 0 && s.free[i-1].end() >= e.Offset) {
			t.Fatalf("free list is out of order: %v, end %d", s.free, s.end)
		}
	}
	if s.used+holes != s.end || s.used > s.capacity || (s.dense && s.end > s.capacity) {
		t.Fatalf("used %d + holes %d, end %d, capacity %d", s.used, holes, s.end, s.capacity)
	}
}

// TestSpaceAgainstBytes compares a space with an array that has the owner of every byte.
func TestSpaceAgainstBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 200
		dense := rapid.Bool().Draw(t, "dense")
		s := New(capacity, dense)
		owner := map[int64]bool{}
		var held []Extent
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n := rapid.Int64Range(0, 60).Draw(t, "n")
				offset, ok := s.Reserve(n)
				if !ok {
					_, used := s.Capacity()
					if used+n <= capacity && (!dense || len(s.free) == 0) {
						t.Fatalf("refused %d bytes with %d of %d in use", n, used, capacity)
					}
					return
				}
				for b := offset; b < offset+n; b++ {
					if owner[b] {
						t.Fatalf("byte %d allocated twice", b)
					}
					owner[b] = true
				}
				held = append(held, Extent{offset, n})
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is in use")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "i")
				e := held[i]
				held = slices.Delete(held, i, i+1)
				for b := e.Offset; b < e.end(); b++ {
					delete(owner, b)
				}
				s.Release(e.Offset, e.Length)
			},
			"release several": func(t *rapid.T) {
				held = rapid.Permutation(held).Draw(t, "order")
				n := rapid.IntRange(0, len(held)).Draw(t, "several")
				for _, e := range held[:n] {
					for b := e.Offset; b < e.end(); b++ {
						delete(owner, b)
					}
				}
				s.ReleaseAll(slices.Clone(held[:n]))
				held = held[n:]
			},
			"": func(t *rapid.T) {
				s.check(t)
				if _, used := s.Capacity(); used != int64(len(owner)) {
					t.Fatalf("used %d, want %d", used, len(owner))
				}
				inUse := slices.Clone(held)
				slices.SortFunc(inUse, func(a, b Extent) int { return int(a.Offset - b.Offset) })
				again := Restore(capacity, dense, slices.Values(inUse))
				if again.end != s.end || again.used != s.used || !slices.Equal(again.free, s.free) {
					t.Fatalf("restored %+v, want %+v", again, s)
				}
			},
		})
	})
}

func TestReleaseOfFreeBytesPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	s := New(100, true)
	s.Reserve(10)
	s.Release(5, 10)
}

// TestReserveKeepsToTheCapacity checks that no more bytes are in use than may be, and none beyond
// the capacity in a dense space.
func TestReserveKeepsToTheCapacity(t *testing.T) {
	for _, dense := range []bool{false, true} {
		s := New(10, dense)
		s.Reserve(4)
		s.Reserve(4)
		s.Release(0, 4) // a hole that is too small for 5
		if at, ok := s.Reserve(5); ok == dense || ok && at != 8 {
			t.Errorf("dense %v: 5 bytes at %d, %v", dense, at, ok)
		}
		_, used := s.Capacity()
		if at, ok := s.Reserve(10 - used + 1); ok {
			t.Errorf("dense %v: bytes beyond the capacity at %d", dense, at)
		}
		if s.Resize(100); s.capacity != 100 {
			t.Errorf("dense %v: the capacity is %d", dense, s.capacity)
		}
		if _, ok := s.Reserve(50); !ok {
			t.Errorf("dense %v: the space did not grow", dense)
		}
	}
}
