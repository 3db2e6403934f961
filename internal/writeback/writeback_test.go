package writeback

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/meter"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// slowStore is a class that takes a second for each sample.
type slowStore struct {
	storageclass.Store
	mu  sync.Mutex
	put []int // guarded by mu
}

func (s *slowStore) Has(id int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.put, id)
}

func (s *slowStore) Put(id int, data []byte, _ storageclass.Origin) error {
	<-time.After(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put = append(s.put, id)
	return nil
}

func newSlow(t *testing.T) (*Writer, *slowStore) {
	s := &slowStore{}
	w := New(s, 1, new(meter.Meter), func(int, storageclass.Origin) {}, func() {})
	t.Cleanup(func() {
		if !w.Close(time.Hour) {
			t.Error("the writer has not ended")
		}
	})
	return w, s
}

// TestWriterNeverDelaysABatch checks that a class which cannot keep up misses samples that a batch
// waits for, but not those that are read ahead of time, and that no more memory is taken than
// allowed.
func TestWriterNeverDelaysABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newSlow(t)
		begun := time.Now()
		data := make([]byte, Memory/4)
		for id := range 6 {
			w.Put(id, data, storageclass.Origin{}, false)
		}
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("a batch waited %v", waited)
		}
		w.Put(6, data, storageclass.Origin{}, true)
		if waited := time.Since(begun); waited != time.Second {
			t.Errorf("reading ahead waited %v, want until a sample was written", waited)
		}
		w.Flush(t.Context())
		if want := []int{0, 1, 2, 3, 6}; !slices.Equal(s.put, want) {
			t.Errorf("written are %v, want %v", s.put, want)
		}
	})
}

// TestRoomIsLeftForBatches checks that reading ahead is asked to pause before the memory for copies
// is full, and told when it may continue.
func TestRoomIsLeftForBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newSlow(t)
		told := 0
		w.room = func() { told++ }
		for id := range 4 {
			if want := id < 3; w.Room() != want {
				t.Errorf("with %d of 4 quarters taken: Room is %v", id, !want)
			}
			w.Put(id, make([]byte, Memory/4), storageclass.Origin{}, false)
		}
		w.Flush(t.Context())
		if !w.Room() || told != 1 {
			t.Errorf("when all is written: Room is %v, told %d times", w.Room(), told)
		}
	})
}

// TestCopyIsReadBeforeItIsWritten checks that a sample that waits to be written is as good as a
// written one, unless its file may have changed.
func TestCopyIsReadBeforeItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newSlow(t)
		w.Put(3, []byte("bytes"), storageclass.Origin{Digest: 7}, false)
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
	})
}

// TestCloseWritesWhatWasRead checks that nothing that a job has read is lost when it ends.
func TestCloseWritesWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newSlow(t)
		for id := range 5 {
			w.Put(id, []byte{1}, storageclass.Origin{}, false)
		}
		if w.Close(2 * time.Second) {
			t.Error("5 s of writes have ended within 2 s")
		}
		if !w.Close(time.Minute) || len(s.put) != 5 {
			t.Errorf("%d of 5 samples are written", len(s.put))
		}
	})
}
