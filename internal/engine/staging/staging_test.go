package staging

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// allocExtraNow allocates a slot of n bytes in an extra segment.
func (b *Buffer) allocExtraNow(n int64) (Slot, *Extra, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.allocExtra(n)
}

// checkInvariants checks that free extents are sorted, not adjacent, not empty, and cover the ring
// together with the slots.
func (b *Buffer) checkInvariants(t interface{ Fatalf(string, ...any) }) {
	b.mu.Lock()
	defer b.mu.Unlock()
	total, end := int64(0), int64(-1)
	for _, e := range b.mu.free {
		if e.size <= 0 || e.off <= end || e.off%align != 0 {
			t.Fatalf("free list %v is out of order", b.mu.free)
		}
		total, end = total+e.size, e.off+e.size
	}
	for _, h := range b.mu.slots {
		if h.extra == nil {
			total += h.extent.size
		}
	}
	if total != b.size {
		t.Fatalf("free extents and slots make up %d of %d bytes", total, b.size)
	}
}

// TestSlotsNeverOverlap takes and frees slots in random order: no two ever overlap, and when all
// are freed the ring is whole again.
func TestSlotsNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := New(int64(rapid.IntRange(1, 1<<18).Draw(t, "size")), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		out := map[uint32]Slot{}
		mark := func(s Slot) {
			for i := range s.Data {
				s.Data[i] = byte(s.ID)
			}
		}
		free := func(id uint32) {
			for _, x := range out[id].Data {
				if x != byte(id) {
					t.Fatalf("slot %d was overwritten", id)
				}
			}
			if _, err := b.Free(id); err != nil {
				t.Fatal(err)
			}
			delete(out, id)
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := int64(rapid.IntRange(1, 1<<16).Draw(t, "n"))
				s, ok := b.TryAlloc(n)
				if !ok {
					t.Skip("full")
				}
				if int64(len(s.Data)) < n {
					t.Fatalf("slot of %d bytes for %d", len(s.Data), n)
				}
				mark(s)
				out[s.ID] = s
			},
			"take extra": func(t *rapid.T) {
				s, extra, err := b.allocExtraNow(int64(rapid.IntRange(1, 1<<16).Draw(t, "n")))
				if err != nil {
					t.Fatal(err)
				}
				if extra.Segment != s.Segment || s.Segment == 0 {
					t.Fatalf("extra segment %d for a slot in segment %d", extra.Segment, s.Segment)
				}
				mark(s)
				out[s.ID] = s
			},
			"trim": func(t *rapid.T) {
				for id, s := range out { // any
					n := int64(rapid.IntRange(0, len(s.Data)).Draw(t, "n"))
					b.Trim(id, n)
					s.Data = s.Data[:n]
					out[id] = s
					break
				}
			},
			"return": func(t *rapid.T) {
				if len(out) == 0 {
					t.Skip("none out")
				}
				ids := make([]uint32, 0, len(out))
				for id := range out {
					ids = append(ids, id)
				}
				free(rapid.SampledFrom(ids).Draw(t, "slot"))
			},
			"": func(t *rapid.T) { b.checkInvariants(t) },
		})
		for id := range out {
			free(id)
		}
		if len(b.mu.free) != 1 || b.mu.free[0] != (extent{0, b.size}) {
			t.Fatalf("everything was freed, but the free extents are %v", b.mu.free)
		}
		if ring, extra := b.Usage(); ring != 0 || extra != 0 {
			t.Fatalf("everything was freed, but %d and %d bytes are in use", ring, extra)
		}
	})
}

// TestKeptSlotBlocksOnlyItself keeps one slot for ever: the rest of the ring remains usable.
func TestKeptSlotBlocksOnlyItself(t *testing.T) {
	b, err := New(64<<10, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx := t.Context()
	if _, _, err := b.Alloc(ctx, 1000); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		s, extra, err := b.Alloc(ctx, 10<<10)
		if err != nil || extra != nil {
			t.Fatalf("extra %v, error %v", extra, err)
		}
		if _, err := b.Free(s.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAllocWaits checks that Alloc waits for free memory, for ctx, or until it is urged.
func TestAllocWaits(t *testing.T) {
	alloc := func(b *Buffer, ctx context.Context) chan any {
		done := make(chan any, 1)
		go func() {
			s, extra, err := b.Alloc(ctx, 3000)
			switch {
			case err != nil:
				done <- err
			case extra != nil:
				done <- extra
			default:
				done <- s
			}
		}()
		return done
	}
	full := func(t *testing.T) (*Buffer, uint32) {
		b, err := New(4096, 0)
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := b.Alloc(t.Context(), 4096)
		if err != nil {
			t.Fatal(err)
		}
		return b, s.ID
	}
	blocked := func(t *testing.T, done chan any) {
		synctest.Wait()
		select {
		case x := <-done:
			t.Fatalf("got %v from a full buffer", x)
		default:
		}
	}
	t.Run("for memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, slot := full(t)
			defer b.Close()
			done := alloc(b, t.Context())
			blocked(t, done)
			begun := time.Now()
			if _, err := b.Free(slot); err != nil {
				t.Fatal(err)
			}
			if s, ok := (<-done).(Slot); !ok || s.Segment != 0 {
				t.Fatalf("got %v", s)
			}
			if took := time.Since(begun); took > 0 {
				t.Errorf("it was not woken, and looked again after %v", took)
			}
		})
	})
	t.Run("for memory for two", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, err := New(8192, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			s, _, err := b.Alloc(t.Context(), 8192)
			if err != nil {
				t.Fatal(err)
			}
			first, second := alloc(b, t.Context()), alloc(b, t.Context())
			blocked(t, first)
			blocked(t, second)
			begun := time.Now()
			if _, err := b.Free(s.ID); err != nil {
				t.Fatal(err)
			}
			<-first
			<-second
			if took := time.Since(begun); took > 0 {
				t.Errorf("one was not woken, and looked again after %v", took)
			}
		})
	})
	t.Run("for the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, _ := full(t)
			defer b.Close()
			ctx, cancel := context.WithCancel(t.Context())
			done := alloc(b, ctx)
			blocked(t, done)
			cancel()
			if err, ok := (<-done).(error); !ok || !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		})
	})
	t.Run("until urged", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, _ := full(t)
			defer b.Close()
			done := alloc(b, t.Context())
			blocked(t, done)
			begun := time.Now()
			b.Urge(true)
			if extra, ok := (<-done).(*Extra); !ok || extra.Segment == 0 {
				t.Fatalf("got %v", extra)
			}
			if took := time.Since(begun); took > 0 {
				t.Errorf("it was not woken, and looked again after %v", took)
			}
			// One blocked next() is one extra batch, not a leak.
			blocked(t, alloc(b, t.Context()))
			b.Urge(true)
		})
	})
	t.Run("after the first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, _ := full(t)
			defer b.Close()
			second := alloc(b, t.Context())
			blocked(t, second)
			first := make(chan *Extra)
			go func() {
				_, extra, err := b.AllocFirst(t.Context(), 3000)
				if err != nil {
					t.Error(err)
				}
				first <- extra
			}()
			synctest.Wait()
			b.UrgeFirst()
			if extra := <-first; extra == nil {
				t.Error("the first got no extra segment")
			}
			blocked(t, second)
			b.Urge(true)
			if extra, ok := (<-second).(*Extra); !ok || extra == nil {
				t.Error("the second got no extra segment")
			}
		})
	})
}

// TestUnknownSlotsAreRefused checks that slots that are not in use are refused.
func TestUnknownSlotsAreRefused(t *testing.T) {
	b, err := New(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, _, err := b.Alloc(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Free(s.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint32{s.ID, 0, rand.Uint32() | 1<<31} {
		if _, err := b.Return(id); err == nil {
			t.Errorf("slot %d was returned, but is not in use", id)
		}
		if invariants.Enabled { // Free, which only the daemon calls, then panics
			continue
		}
		if _, err := b.Free(id); err == nil {
			t.Errorf("slot %d was freed, but is not in use", id)
		}
	}
}

// TestBufferGrows checks that slots lie in the part of the ring that is used, that this part grows
// by half up to the limit, and that a blocked allocation succeeds when it has grown.
func TestBufferGrows(t *testing.T) {
	b, err := New(8192, 30000)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, ok := b.TryAlloc(8193); ok {
		t.Error("a slot is larger than the part of the ring that is used")
	}
	if s, ok := b.TryAlloc(8192); !ok || s.Offset != 0 {
		t.Errorf("slot %+v, %v", s, ok)
	}
	allocated := make(chan Slot)
	go func() {
		s, extra, err := b.Alloc(t.Context(), 4096)
		if err != nil || extra != nil {
			t.Errorf("extra segment %v, error %v", extra, err)
		}
		allocated <- s
	}()
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		if l, g := b.Limit(), b.Growth(); l < 8192 || g == 0 {
			t.Errorf("limit %d, growth %d", l, g)
		}
	}()
	b.Grow(b.Growth())
	<-looked
	if s := <-allocated; s.Offset != 8192 || b.Limit() != 12288 {
		t.Errorf("after growth by half: offset %d, limit %d", s.Offset, b.Limit())
	}
	if more := b.Lacks(5*4096 - 1); more != 2*4096 || b.Lacks(4096) != 0 {
		t.Errorf("it lacks %d bytes", more)
	}
	for range 10 {
		b.Grow(b.Growth())
	}
	_, size := b.Ring()
	if b.Limit() != size || size != 32768 || b.Growth() != 0 || b.Lacks(2*size) != 0 {
		t.Errorf("limit %d of %d, growth %d", b.Limit(), size, b.Growth())
	}
}
