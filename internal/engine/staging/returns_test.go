package staging

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// process plays the process that reads a buffer, with its own mapping.
type process struct {
	words []uint64
	noted uint64
}

func newProcess(t interface {
	Helper()
	Fatal(...any)
}, b *Buffer,
) (p *process, end func()) {
	t.Helper()
	if !b.HasReturnRing() {
		t.Fatal("the buffer has no return ring")
	}
	f, size := b.Ring()
	page, err := unix.Mmap(int(f.Fd()), size, returnsSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return &process{words: newReturnRing(page).words}, func() { _ = unix.Munmap(page) }
}

// note adds a slot to the return ring; ok reports whether there was space.
func (p *process) note(slot uint32) (ok bool) {
	if p.noted-atomic.LoadUint64(&p.words[0]) == entries {
		return false
	}
	p.noted++
	atomic.StoreUint64(&p.words[1+p.noted%entries], p.noted<<32|uint64(slot))
	return true
}

func skipUnordered(t *testing.T) {
	if !ordered {
		t.Skip("slots are returned by frames on this processor")
	}
}

// TestReturnedSlotsBecomeFree takes slots and returns them in random order, many more than there
// are entries: exactly the slots that are returned become free.
func TestReturnedSlotsBecomeFree(t *testing.T) {
	skipUnordered(t)
	rapid.Check(t, func(t *rapid.T) {
		b, err := New(1<<16, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		p, end := newProcess(t, b)
		defer end()
		// Let the 32-bit part of the count wrap around.
		start := rapid.SampledFrom([]uint64{0, entries - 1, 1<<32 - 3, 1<<33 - entries}).Draw(t,
			"start")
		p.noted = start
		b.mu.returns.taken = start
		p.words[0] = start
		for n := start; n > 0 && n+entries > start; n-- {
			p.words[1+n%entries] = n<<32 | 77
		}
		var out []uint32
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				for range rapid.IntRange(1, 700).Draw(t, "slots") {
					b.mu.Lock()
					b.collect()
					s, ok := b.fit(align)
					b.mu.Unlock()
					if !ok {
						return
					}
					b.MarkSent([]uint32{s.ID})
					out = append(out, s.ID)
				}
			},
			"note": func(t *rapid.T) {
				for n := rapid.IntRange(0, len(out)).Draw(t, "slots"); n > 0; n-- {
					i := rand.IntN(len(out))
					if !p.note(out[i]) {
						if p.noted-b.mu.returns.taken != entries {
							t.Fatalf("no space after %d entries, of which %d were taken", p.noted,
								b.mu.returns.taken)
						}
						return
					}
					out = append(out[:i], out[i+1:]...)
				}
			},
			"": func(t *rapid.T) {
				if used, _ := b.Usage(); used != int64(align*len(out)) {
					t.Fatalf("%d bytes are in use, for %d slots of %d", used, len(out), align)
				}
				b.checkInvariants(t)
				if b.mu.returnsErr != nil {
					t.Fatal(b.mu.returnsErr)
				}
			},
		})
	})
}

// TestAllocPollsTheReturnRing checks that a waiting allocation finds slots that are returned
// meanwhile, by itself and after Poll.
func TestAllocPollsTheReturnRing(t *testing.T) {
	skipUnordered(t)
	for name, tell := range map[string]bool{"by itself": false, "told": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := New(4096, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				p, end := newProcess(t, b)
				defer end()
				s, _, err := b.Alloc(t.Context(), 4096)
				if err != nil {
					t.Fatal(err)
				}
				b.MarkSent([]uint32{s.ID})
				got := make(chan error)
				go func() {
					s, extra, err := b.Alloc(t.Context(), 3000)
					if err == nil && (extra != nil || s.Segment != 0) {
						t.Errorf("got a slot in segment %d", s.Segment)
					}
					got <- err
				}()
				synctest.Wait()
				p.note(s.ID)
				if tell {
					b.Poll()
				}
				if err := <-got; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestReturnRingIsBounded checks that the process may write an entry only once the previous one in
// the same place was taken.
func TestReturnRingIsBounded(t *testing.T) {
	skipUnordered(t)
	b, err := New(2*entries*align, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p, end := newProcess(t, b)
	defer end()
	for round := range 2 {
		noted := 0
		for {
			s, ok := b.TryAlloc(1) // TryAlloc takes the entries
			if !ok {
				break
			}
			b.MarkSent([]uint32{s.ID})
		}
		for id := range b.mu.slots {
			if !p.note(id) {
				break
			}
			noted++
		}
		if noted != entries {
			t.Errorf("round %d: %d entries were written, want %d", round, noted, entries)
		}
		if used, _ := b.Usage(); used != b.size-entries*align {
			t.Errorf("round %d: %d bytes are in use after %d of %d slots were returned", round,
				used,
				entries, b.size/align)
		}
	}
}

// TestPollsAreFrequent checks that an entry is seen soon, however long the buffer has waited.
func TestPollsAreFrequent(t *testing.T) {
	skipUnordered(t)
	synctest.Test(t, func(t *testing.T) {
		b, err := New(4096, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		p, end := newProcess(t, b)
		defer end()
		s, _, err := b.Alloc(t.Context(), 4096)
		if err != nil {
			t.Fatal(err)
		}
		b.MarkSent([]uint32{s.ID})
		got := make(chan time.Time)
		go func() {
			if _, _, err := b.Alloc(t.Context(), 4096); err != nil {
				t.Error(err)
			}
			got <- time.Now()
		}()
		<-time.After(time.Second)
		p.note(s.ID)
		noted := time.Now()
		if late := (<-got).Sub(noted); late > maxPollInterval {
			t.Errorf("seen %v late, want %v at most", late, maxPollInterval)
		}
	})
}

// TestEndIsPublished checks that the word after the return ring holds the batch before which the
// stream ends, counted from 1; 0: it does not end.
func TestEndIsPublished(t *testing.T) {
	b, err := New(4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	word := b.mu.returns.end()
	if want := &newReturnRing(b.ring.data[b.size:]).words[returnsSize/8-1]; word != want ||
		*word != 0 {
		t.Error("the word is not the last one of the page, or not 0 at first")
	}
	for n, want := range map[int]uint64{-1: 0, 0: 1, 41: 42} {
		if b.End(n); *word != want {
			t.Errorf("batch %d: %d, want %d", n, *word, want)
		}
	}
}

// TestInvalidReturnsEndTheStream checks that invalid entries in the return ring make allocations
// fail without corrupting the buffer.
func TestInvalidReturnsEndTheStream(t *testing.T) {
	skipUnordered(t)
	for name, slot := range map[string]func(b *Buffer) uint32{
		"unknown": func(*Buffer) uint32 { return 77 },
		"not sent": func(b *Buffer) uint32 {
			s, _, _ := b.Alloc(t.Context(), 100)
			return s.ID
		},
		"twice": func(b *Buffer) uint32 {
			s, _, _ := b.Alloc(t.Context(), 100)
			b.MarkSent([]uint32{s.ID})
			_, _ = b.Return(s.ID)
			return s.ID
		},
		"in an extra segment": func(b *Buffer) uint32 {
			s, _, _ := b.allocExtraNow(100)
			b.MarkSent([]uint32{s.ID})
			return s.ID
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := New(4096, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			p, end := newProcess(t, b)
			defer end()
			p.note(slot(b))
			if s, _, err := b.Alloc(t.Context(), 64); err == nil {
				t.Fatalf("got slot %d", s.ID)
			}
			b.checkInvariants(t)
		})
	}
}

// FuzzReturns checks that the buffer remains valid whatever the process writes to the return ring.
func FuzzReturns(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, page []byte) {
		b, err := New(4096, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for range 3 {
			s, _, err := b.Alloc(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			b.MarkSent([]uint32{s.ID})
		}
		copy(b.ring.data[b.size:], page)
		_, _, _ = b.Alloc(t.Context(), 100)
		b.checkInvariants(t)
	})
}

// TestTryAllocTakesReturns checks that TryAlloc polls the return ring.
func TestTryAllocTakesReturns(t *testing.T) {
	skipUnordered(t)
	b, err := New(4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p, end := newProcess(t, b)
	defer end()
	for range 3 {
		s, ok := b.TryAlloc(4096)
		if !ok {
			t.Fatal("no free memory, although all slots were returned")
		}
		b.MarkSent([]uint32{s.ID})
		p.note(s.ID)
	}
	p.note(77)
	if s, ok := b.TryAlloc(1); ok {
		t.Errorf("got slot %d after an invalid return", s.ID)
	}
}
