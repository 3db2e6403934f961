package writeback

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/store"
)

// slowStore is a class that takes a second for each sample.
type slowStore struct {
	store.Store
	mu  sync.Mutex
	put []int // guarded by mu
}

func (s *slowStore) Has(id int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.put, id)
}

func (s *slowStore) Put(id int, data []byte, _ store.Origin) error {
	<-time.After(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put = append(s.put, id)
	return nil
}

func newSlow(t *testing.T) (*Writer, *slowStore) {
	s := &slowStore{}
	w := New(s, 1, new(meter.Meter), func(int, store.Origin) {}, func() {})
	t.Cleanup(func() {
		if !w.Close(time.Hour) {
			t.Error("the writer has not ended")
		}
	})
	return w, s
}

// TestWriterNeverDelaysARead checks that a class which cannot keep up misses samples, but not those
// that are read ahead of time, and that no more memory is taken than allowed.
func TestWriterNeverDelaysARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newSlow(t)
		begun := time.Now()
		data := make([]byte, Memory/4)
		if !w.Reserve(6, Memory/4) {
			t.Error("there is no memory at the beginning")
		}
		for id := range 7 {
			w.Put(id, data, store.Origin{})
		}
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("the reads waited %v", waited)
		}
		w.Flush(t.Context())
		if want := []int{0, 1, 2, 6}; !slices.Equal(s.put, want) {
			t.Errorf("written are %v, want %v", s.put, want)
		}
	})
}

// TestMemoryIsLeftForBatches checks that memory is reserved for what is read ahead of time until
// a half is taken, also by what does not come; that a notification comes once when there is some
// again; and that none is needed for what the class has or is to be written.
func TestMemoryIsLeftForBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newSlow(t)
		told := 0
		w.room = func() { told++ }
		data := make([]byte, Memory/4)
		for id := range 4 {
			if got, want := w.Reserve(id, Memory/4), id < 2; got != want {
				t.Errorf("with %d of 4 quarters taken: reserved %v", id, got)
			}
			if id < 1 {
				w.Put(id, data, store.Origin{})
			}
		}
		if !w.Reserve(0, Memory/4) || !w.Reserve(1, Memory/4) {
			t.Error("memory is lacking for what has some")
		}
		w.Unreserve(1)
		w.Unreserve(1)
		if !w.Reserve(3, Memory/4) {
			t.Error("what was not needed is not returned")
		}
		w.Unreserve(3)
		w.Flush(t.Context())
		if w.promised != 0 || told != 1 || !w.Reserve(1, 1<<40) {
			t.Errorf("when all is written %d bytes are reserved, told %d times", w.promised, told)
		}
	})
}

// TestAllWritersReserveOrNone checks that what one class has no memory for takes none of another's,
// and that a notification comes when a sample larger than the memory can come alone.
func TestAllWritersReserveOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newSlow(t)
		b, _ := newSlow(t)
		told := 0
		b.room = func() { told++ }
		b.Put(0, []byte{1}, store.Origin{})
		all := Writers{a, b}
		if all.Reserve(1, 2*Memory) || a.promised > 0 {
			t.Errorf("reserved, or %d bytes of one writer were", a.promised)
		}
		b.Flush(t.Context())
		synctest.Wait()
		if told != 1 || !all.Reserve(1, 2*Memory) {
			t.Errorf("told %d times, and not reserved", told)
		}
		all.Unreserve(1)
		if a.promised+b.promised > 0 {
			t.Error("memory remains reserved")
		}
	})
}

// TestCopyIsReadBeforeItIsWritten checks that a sample that waits to be written is as good as a
// written one, unless its file may have changed: then it does not count as kept either.
func TestCopyIsReadBeforeItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newSlow(t)
		var kept []int
		w.kept = func(id int, _ store.Origin) { kept = append(kept, id) }
		w.Put(2, []byte("other"), store.Origin{Digest: 6})
		w.Flush(t.Context())
		w.Put(3, []byte("bytes"), store.Origin{Digest: 7})
		got := make([]byte, 5)
		if origin, ok := w.Read(3, got); !ok || origin.Digest != 7 ||
			!bytes.Equal(got, []byte("bytes")) {
			t.Errorf("%q of %+v, %v", got, origin, ok)
		}
		if _, ok := w.Read(4, got); ok {
			t.Error("another sample is there")
		}
		w.Doubt()
		if _, ok := w.Read(3, got); ok {
			t.Error("a copy in doubt was read")
		}
		w.Flush(t.Context())
		if _, ok := w.Read(3, got); ok {
			t.Error("a copy is kept after it was written")
		}
		if !slices.Equal(kept, []int{2}) {
			t.Errorf("samples %v count as kept, want 2 alone", kept)
		}
	})
}

// TestCloseWritesWhatWasRead checks that nothing that a job has read is lost when it ends, unless
// the class takes too long: then what is being written is written, and the rest is not.
func TestCloseWritesWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newSlow(t)
		for id := range 5 {
			w.Put(id, []byte{1}, store.Origin{})
		}
		if !w.Close(time.Minute) || len(s.put) != 5 {
			t.Errorf("%d of 5 samples are written", len(s.put))
		}
		w, s = newSlow(t)
		for id := range 5 {
			w.Put(id, []byte{1}, store.Origin{})
		}
		if w.Close(2500 * time.Millisecond) {
			t.Error("5 s of writes have ended within 2.5 s")
		}
		begun := time.Now()
		w.Wait()
		if took := time.Since(begun); took != 500*time.Millisecond || len(s.put) != 3 {
			t.Errorf("after %v, %d samples are written, want 3 after 0.5 s", took, len(s.put))
		}
	})
}

// TestLongestWriteIsKnown checks that it is known how long the oldest write in progress has taken,
// and the longest of all.
func TestLongestWriteIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newSlow(t)
		know := func(when string, present, ever time.Duration) {
			t.Helper()
			if p, e := w.Longest(time.Now()); p != present || e != ever {
				t.Errorf("%s: %v now, %v at most", when, p, e)
			}
		}
		know("before any", 0, 0)
		w.Put(1, []byte{1}, store.Origin{})
		w.Put(2, []byte{2}, store.Origin{})
		synctest.Wait()
		time.Sleep(time.Second / 2)
		know("during the first", time.Second/2, time.Second/2)
		time.Sleep(3 * time.Second / 4)
		synctest.Wait()
		know("during the second", time.Second/4, time.Second)
		w.Flush(t.Context())
		know("after both", 0, time.Second)
		var none *Writer
		if p, e := none.Longest(time.Now()); p != 0 || e != 0 {
			t.Errorf("without a writer: %v, %v", p, e)
		}
	})
}
