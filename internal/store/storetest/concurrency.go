package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
)

// testSimultaneousPuts puts each sample from several goroutines at the same time.
func testSimultaneousPuts(t *testing.T, factory Factory) {
	const (
		samples = 100
		size    = 20_000
		writers = 4
	)
	c := factory(t, samples*size)
	ds := Uniform(1, samples, size)
	s := Open(t, c, ds, samples*size)
	ids := make([]int, samples)
	for id := range ids {
		ids[id] = id
		data := Bytes(ds, id)
		var ready, done sync.WaitGroup
		ready.Add(writers)
		for range writers {
			done.Go(func() {
				ready.Done()
				ready.Wait()
				if err := put(s, id, data); err != nil {
					t.Errorf("put sample %d: %v", id, err)
				}
			})
		}
		done.Wait()
	}
	Check(t, s, ds, ids...)
	Close(t, s, c)
}

// testConcurrency puts every sample from several goroutines, in the same order so that they
// contend, while other goroutines read.
func testConcurrency(t *testing.T, factory Factory) {
	const samples, fit = 400, 300
	c := factory(t, fit*700)
	ds := Uniform(1, samples, 700)
	s := Open(t, c, ds, fit*700)
	want := make([][]byte, samples)
	for id := range want {
		want[id] = Bytes(ds, id)
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	errs := make(chan error, 64)
	for g := range 4 {
		writers.Go(func() {
			for _, id := range rand.New(rand.NewPCG(1, 0)).Perm(samples) {
				if err := put(s, id, want[id]); err != nil &&
					!errors.Is(err, store.ErrFull) {
					errs <- err
					return
				}
			}
		})
		readers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			dst := make([]byte, 700)
			for {
				select {
				case <-done:
					return
				default:
				}
				id := r.IntN(samples)
				has := s.Has(id)
				switch err := s.Read(id, dst); {
				case errors.Is(err, store.ErrNotHeld) && !has:
				case err != nil:
					errs <- fmt.Errorf("read sample %d: %w", id, err)
					return
				case !bytes.Equal(dst, want[id]):
					errs <- fmt.Errorf("sample %d has other bytes", id)
					return
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
	ids := []int{}
	for _, id := range s.Held() {
		ids = append(ids, int(id))
	}
	if len(ids) != fit {
		t.Fatalf("%d samples held, %d fit", len(ids), fit)
	}
	Check(t, s, ds, ids...)
	Close(t, s, c)
}

// testConcurrentOpens opens, uses and closes stores of several datasets that evict each other.
func testConcurrentOpens(t *testing.T, factory Factory) {
	c := factory(t, 4*100)
	var jobs sync.WaitGroup
	for g := range 4 {
		jobs.Go(func() {
			for i := range 15 {
				ds := Uniform(byte((g+i)%6), 10, 10)
				s, err := c.Open(ds, 100)
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				for id := range 10 {
					if err := put(s, id, Bytes(ds, id)); err != nil {
						t.Errorf("put: %v", err)
					}
				}
				dst := make([]byte, 10)
				if err := s.Read(i%10, dst); err != nil &&
					!errors.Is(err, store.ErrNotHeld) {
					t.Errorf("read: %v", err) // not held: another Put of it is still in progress
				}
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
	}
	jobs.Wait()
	Close(t, c)
}
