package staging

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checkInvariants: free extents are sorted, apart, not empty, and make up the
// ring together with the slots.
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

// TestSlots takes and returns slots in random order: no two ever overlap, and
// when all are back the ring is whole again.
func TestSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := New(int64(rapid.IntRange(1, 1<<18).Draw(t, "size")))
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
				s, extra, err := b.AllocExtra(int64(rapid.IntRange(1, 1<<16).Draw(t, "n")))
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
			t.Fatalf("everything was returned, and free is %v", b.mu.free)
		}
		if ring, extra := b.Usage(); ring != 0 || extra != 0 {
			t.Fatalf("everything was returned, and %d and %d bytes are in use", ring, extra)
		}
	})
}

// TestKeptSlot keeps one slot for ever: the rest of the ring stays usable.
func TestKeptSlot(t *testing.T) {
	b, err := New(64 << 10)
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

// TestWaiting: Alloc waits for room, for ctx, or until it is urged.
func TestWaiting(t *testing.T) {
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
		b, err := New(4096)
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
	t.Run("for room", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, slot := full(t)
			defer b.Close()
			done := alloc(b, t.Context())
			blocked(t, done)
			if _, err := b.Free(slot); err != nil {
				t.Fatal(err)
			}
			if s, ok := (<-done).(Slot); !ok || s.Segment != 0 {
				t.Fatalf("got %v", s)
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
			b.Urge(true)
			if extra, ok := (<-done).(*Extra); !ok || extra.Segment == 0 {
				t.Fatalf("got %v", extra)
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
				t.Error("the first got no segment of its own")
			}
			blocked(t, second)
			b.Urge(true)
			if extra, ok := (<-second).(*Extra); !ok || extra == nil {
				t.Error("the second got no segment of its own")
			}
		})
	})
}

// TestUnknownSlot: slots that are not out are refused.
func TestUnknownSlot(t *testing.T) {
	b, err := New(1)
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
		if _, err := b.Free(id); err == nil {
			t.Errorf("slot %d was taken back twice or never given", id)
		}
	}
}

// TestNumbersOfSlots: no slot gets the number of one that the process keeps, also after the numbers wrap around.
func TestNumbersOfSlots(t *testing.T) {
	b, err := New(4096)
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
	b.mu.lastSlot = extraSlot - 2
	for range 4 {
		take()
	}
	if s, _, err := b.AllocExtra(1); err != nil || s.ID&extraSlot == 0 {
		t.Errorf("slot %#x in a segment of its own: %v", s.ID, err)
	}
}

// TestSealed: the size of the ring and of extra segments cannot be changed through their descriptors, nor can their seals.
func TestSealed(t *testing.T) {
	b, err := New(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ring, size := b.Ring()
	_, extra, err := b.AllocExtra(8192)
	if err != nil {
		t.Fatal(err)
	}
	if size != 8192 || extra.Size != 8192 {
		t.Fatalf("ring of %d bytes, extra segment of %d", size, extra.Size)
	}
	for _, f := range []*os.File{ring, extra.File} {
		for _, size := range []int64{0, 1 << 20} {
			if err := unix.Ftruncate(int(f.Fd()), size); !errors.Is(err, unix.EPERM) {
				t.Errorf("%s is made %d bytes: %v", f.Name(), size, err)
			}
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s is sealed against writing: %v", f.Name(), err)
		}
	}
}

// extraSegments counts the descriptors and the mappings that this process has of extra segments.
func extraSegments(t *testing.T) (open, mapped int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "hdmlp-staging-extra") {
			open++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return open, strings.Count(string(maps), "hdmlp-staging-extra")
}

// TestExtraSegmentsAreGivenBack: an extra segment is closed and unmapped with its slot, or with the buffer.
func TestExtraSegmentsAreGivenBack(t *testing.T) {
	b, err := New(4096)
	if err != nil {
		t.Fatal(err)
	}
	var slots []Slot
	for range 4 {
		s, _, err := b.AllocExtra(4096)
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
	b.Hand([]uint32{slots[0].ID, slots[1].ID})
	if retired, err := b.Return(slots[0].ID); err != nil || retired != slots[0].Segment {
		t.Errorf("segment %d ended: %v", retired, err)
	}
	if retired, err := b.Free(slots[2].ID); err != nil || retired != slots[2].Segment {
		t.Errorf("segment %d ended: %v", retired, err)
	}
	are("two were given back:", 2)
	b.Close()
	b.Close()
	are("the buffer is closed:", 0)
}

// TestNothingAfterClose: Alloc returns os.ErrClosed once the buffer is closed, also where it was waiting then.
func TestNothingAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := New(4096)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := b.TryAlloc(4096); !ok {
			t.Fatal("no room")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waits := make(chan error)
		go func() {
			_, _, err := b.Alloc(ctx, 1)
			waits <- err
		}()
		synctest.Wait()
		b.Close()
		_, _, asks := b.AllocFirst(ctx, 1)
		if err := <-waits; !errors.Is(err, os.ErrClosed) || !errors.Is(asks, os.ErrClosed) {
			t.Errorf("who waits is told %v, who asks %v", err, asks)
		}
		if s, ok := b.TryAlloc(1); ok {
			t.Errorf("slot %d after the end", s.ID)
		}
	})
}

// TestUrgeIsWithdrawn: each call of Urge or UrgeFirst replaces the one before it, for both kinds of callers.
func TestUrgeIsWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		urge        func(b *Buffer)
		next, first bool // which callers are urged
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
					b, err := New(4096)
					if err != nil {
						t.Fatal(err)
					}
					defer b.Close()
					if _, ok := b.TryAlloc(4096); !ok {
						t.Fatal("no room")
					}
					c.urge(b)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					alloc := b.Alloc
					if first {
						alloc = b.AllocFirst
					}
					if _, extra, err := alloc(ctx, 100); (extra != nil) != urged || (err == nil) != urged {
						t.Errorf("first %v: got a segment of its own: %v, %v", first, extra != nil, err)
					}
				})
			}
		})
	}
}

// TestResident: pages of the ring count once they are used.
func TestResident(t *testing.T) {
	b, err := New(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	before := b.Resident()
	b.Data(0, 1)[0] = 1
	if after := b.Resident(); before >= 32<<20 || after <= before || after >= 32<<20 {
		t.Errorf("%d bytes at first, %d when a page was used, of %d", before, after, b.size)
	}
}
