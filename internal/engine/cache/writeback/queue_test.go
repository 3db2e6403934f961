package writeback

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestSampleIsWrittenOnce checks that a sample that waits to be written, or is in the class, is not
// written again.
func TestSampleIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newSlow(t)
		for range 2 {
			for range 2 {
				w.Put(1, []byte("bytes"), store.Origin{})
			}
			w.Flush(t.Context())
		}
		if len(s.put) != 1 {
			t.Errorf("written %d times", len(s.put))
		}
	})
}

// TestFlush checks that it waits for samples of no bytes as well, but no longer than its context
// lasts.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newSlow(t)
		w.Put(1, nil, store.Origin{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		begun := time.Now()
		if w.Flush(ctx); time.Since(begun) != time.Millisecond {
			t.Errorf("with 1 ms to wait it took %v", time.Since(begun))
		}
		if w.Flush(t.Context()); !s.Has(1) {
			t.Error("a sample of no bytes is not written")
		}
	})
}

// TestBuffersAreUsedAgain checks that the buffer of a copy that was written serves one later copy,
// and that none has a part of another.
func TestBuffersAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newSlow(t)
		put := func(id int, text string) {
			w.Put(id, []byte(text), store.Origin{})
		}
		put(1, "first one")
		put(2, "second")
		at := func(id int) *byte {
			w.mu.Lock()
			defer w.mu.Unlock()
			return &w.byID[int32(id)].data[0]
		}
		first := at(1)
		time.Sleep(1500 * time.Millisecond) // the second is being written
		put(3, "too large for that")
		put(4, "fourth...")
		put(5, "fifth")
		if at(4) != first {
			t.Error("the buffer of the first is not used again")
		}
		for id, want := range map[int]string{
			2: "second", 3: "too large for that", 4: "fourth...", 5: "fifth",
		} {
			got := make([]byte, len(want))
			if _, ok := w.Read(id, got); !ok || string(got) != want {
				t.Errorf("sample %d is %q, %v", id, got, ok)
			}
		}
		w.Flush(t.Context())
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.spare != nil {
			t.Errorf("%d buffers are kept while nothing is to be written", len(w.spare))
		}
	})
}

// TestSpareBuffersAreFew checks that a burst of small samples leaves few buffers.
func TestSpareBuffersAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newSlow(t)
		for id := range 3 * spareBuffers {
			w.Put(id, []byte{1}, store.Origin{})
		}
		time.Sleep(2*spareBuffers*time.Second + 1)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.spare) != spareBuffers {
			t.Errorf("%d buffers are kept, want %d", len(w.spare), spareBuffers)
		}
	})
}

// refusing is a class whose writes end as the test directs.
type refusing struct {
	store.Store
	begun chan bool
	ends  chan error
}

func (*refusing) Has(int) bool { return false }

func (r *refusing) Put(int, []byte, store.Origin) error {
	r.begun <- true
	return <-r.ends
}

// TestWriterTellsWhatItWrites checks that the bytes of a sample that is being written count as in
// front of reads, that writes are measured, and that each is reported, even if the class refuses
// it.
func TestWriterTellsWhatItWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads meter.Meter
		reads.Know(model.Known{
			Coefficients: model.Coefficients{Queued: 1}, Origin: model.Given,
		})
		told := map[int]store.Origin{}
		refuses := &refusing{begun: make(chan bool), ends: make(chan error, 2)}
		w := New(refuses, 0, &reads, func(id int, origin store.Origin) {
			told[id] = origin
		}, func() {})
		w.Know(model.GuessedClass)
		if k := w.Meter().Known(); k != model.GuessedClass {
			t.Errorf("known is %+v, want the guess", k)
		}
		w.Put(3, make([]byte, 2e6), store.Origin{Digest: 4})
		<-refuses.begun
		if got := reads.Arrival(time.Now(), 0); got != 2 {
			t.Errorf("while 2 MB are written a read takes %v s, want 2", got)
		}
		refuses.ends <- errors.New("no")
		w.Flush(t.Context())
		if got := reads.Arrival(time.Now(), 0); got > 1e-3 {
			t.Errorf("after that it takes %v s", got)
		}
		if told[3].Digest != 4 {
			t.Errorf("told of %v", told)
		}
		if _, ok := w.Read(3, make([]byte, 2e6)); ok {
			t.Error("a copy is kept after the class refused it")
		}
		w.Put(5, []byte{1}, store.Origin{})
		<-refuses.begun
		refuses.ends <- nil
		w.Flush(t.Context())
		if k := w.Meter().Known(); k.Origin != model.Measured {
			t.Errorf("after a write, known is %+v", k)
		}
		refuses.ends <- store.ErrFull
		go func() { <-refuses.begun }()
		if err := w.Write(6, []byte{1}, store.Origin{}); err != store.ErrFull {
			t.Error(err)
		}
		if !w.Close(time.Hour) {
			t.Error("the writer has not ended")
		}
	})
}

// TestEachThreadWrites checks that as many samples as there are threads are written at a time.
func TestEachThreadWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{}
		w := New(s, 3, new(meter.Meter), func(int, store.Origin) {}, func() {})
		begun := time.Now()
		for id := range 6 {
			w.Put(id, []byte{1}, store.Origin{})
		}
		w.Flush(t.Context())
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("6 samples on 3 threads took %v, want 2 s", took)
		}
		if !w.Close(time.Second) {
			t.Error("with nothing to write it has not ended")
		}
	})
}

// TestNothingIsPutAfterClose checks that nothing is put after the writer was closed.
func TestNothingIsPutAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newSlow(t)
		w.Put(1, []byte{1}, store.Origin{})
		w.Close(time.Minute)
		w.Put(2, []byte{1}, store.Origin{})
		w.Close(time.Hour)
		if len(s.put) != 1 {
			t.Errorf("%v were written", s.put)
		}
	})
}

// TestLargeSampleIsPutAlone checks that one that is larger than the memory is written if no other
// copy waits, and that what fits exactly does.
func TestLargeSampleIsPutAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newSlow(t)
		w.Put(1, make([]byte, Memory+1), store.Origin{})
		w.Put(2, []byte{1}, store.Origin{})
		w.Flush(t.Context())
		w.Put(3, make([]byte, Memory/2), store.Origin{})
		w.Put(4, make([]byte, Memory/2), store.Origin{})
		w.Flush(t.Context())
		if !s.Has(1) || s.Has(2) || !s.Has(3) || !s.Has(4) {
			t.Errorf("written are %v, want 1, 3 and 4", s.put)
		}
	})
}

// nothing is a class that takes everything and holds nothing.
type nothing struct{ store.Store }

func (nothing) Has(int) bool                        { return false }
func (nothing) Put(int, []byte, store.Origin) error { return nil }

// TestConcurrentUse has the race detector check that each method takes the lock.
func TestConcurrentUse(t *testing.T) {
	w := New(nothing{}, 1, new(meter.Meter), func(int, store.Origin) {}, func() {})
	for name, call := range map[string]func(){
		"Reserve": func() { w.Reserve(2, 1) },
		"Put":     func() { w.Put(1, []byte{1}, store.Origin{}) },
		"Read":    func() { w.Read(2, make([]byte, 1)) },
		"Doubt":   w.Doubt,
		"Flush":   func() { w.Flush(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				var both sync.WaitGroup // nothing else orders the two
				both.Go(call)
				both.Go(func() { w.Put(2, []byte{1}, store.Origin{}) })
				both.Wait()
			}
		})
	}
	var both sync.WaitGroup
	both.Go(func() { w.Close(time.Hour) })
	both.Go(w.Doubt)
	both.Go(func() { w.Put(3, []byte{1}, store.Origin{}) })
	both.Wait()
	if !w.Close(time.Hour) {
		t.Error("the writer has not ended")
	}
}
