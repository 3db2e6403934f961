package access

import (
	"slices"
	"sync"
	"testing"
)

// order is what an epoch delivers, in position order.
func order(s *Stream, epoch int) (all []int32) {
	e := s.Epoch(epoch)
	for step := range s.Steps() {
		all = e.Global(all, step)
	}
	return all
}

// TestEpochsAndSeedsHaveOrdersOfTheirOwn: no two are the same where they are shuffled, and each is
// the same again.
func TestEpochsAndSeedsHaveOrdersOfTheirOwn(t *testing.T) {
	for _, shuffle := range []Shuffle{Torch, Feistel, Sequential} {
		for _, subset := range [][]int32{nil, {9, 3, 27, 5, 41, 0, 12, 33, 7, 28, 44, 19, 2}} {
			seen := map[string]bool{}
			const seeds, epochs = 3, 4
			for seed := range uint64(seeds) {
				for epoch := range epochs {
					spec := Spec{
						Samples:     50,
						Seed:        100 * seed,
						WorldSize:   2,
						GlobalBatch: 8,
						Shuffle:     shuffle,
						Subset:      subset,
						Tail:        Keep,
					}
					got := order(mustNew(t, spec), epoch)
					if !slices.Equal(got, order(mustNew(t, spec), epoch)) {
						t.Errorf("%s: epoch %d of seed %d is not the same again", shuffle, epoch,
							spec.Seed)
					}
					key := make([]byte, len(got))
					for i, k := range got {
						key[i] = byte(k)
					}
					seen[string(key)] = true
				}
			}
			want := seeds * epochs
			if shuffle == Sequential {
				want = 1
			}
			if len(seen) != want {
				t.Errorf("%s, subset %v: %d orders of %d seeds and %d epochs, want %d", shuffle,
					subset, len(seen), seeds, epochs, want)
			}
		}
	}
}

// TestAnEpochIsForAnyNumberOfGoroutines: all find a sample where it is, from the first call on.
func TestAnEpochIsForAnyNumberOfGoroutines(t *testing.T) {
	for _, spec := range []Spec{
		{Samples: 500, Seed: 3, WorldSize: 2, GlobalBatch: 8},
		{Samples: 500, Seed: 3, WorldSize: 2, GlobalBatch: 8, Subset: []int32{5, 3, 9, 3, 3}},
		{Samples: 500, Seed: 3, WorldSize: 2, GlobalBatch: 8, Shuffle: Feistel},
	} {
		e := mustNew(t, spec).Epoch(1)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for k := range spec.Samples {
					for _, p := range e.Find(k) {
						if got := e.At(p.Rank, p.Index); got != k {
							t.Errorf("%s: sample %d at %+v, where %d is", spec.Shuffle, k, p, got)
						}
					}
				}
			})
		}
		all.Wait()
	}
}

// TestNextAccessIsOfTheRanksThatAreAskedFor: what others read does not count.
func TestNextAccessIsOfTheRanksThatAreAskedFor(t *testing.T) {
	s := mustNew(t, Spec{Samples: 12, WorldSize: 3, GlobalBatch: 6, Shuffle: Sequential})
	for sample := range 12 {
		for rank := range 3 {
			epoch, at, ok := s.NextAccess([]int{rank}, sample, 4, 6)
			if mine := sample%3 == rank; ok != mine ||
				ok && (epoch != 4 || at != Read{rank, sample / 3, sample / 6}) {
				t.Errorf("rank %d, sample %d: epoch %d, %+v, %v", rank, sample, epoch, at, ok)
			}
		}
	}
}

// TestReadAfter compares with all epochs that are left what ReadAfter keeps of the samples that an
// epoch leaves out.
func TestReadAfter(t *testing.T) {
	for _, shuffle := range []Shuffle{Torch, Feistel, Sequential} {
		for _, epochs := range []int{0, 1, 2, 4, 90} {
			s := mustNew(t, Spec{
				Samples: 100, Seed: 3, Epochs: epochs, WorldSize: 1, GlobalBatch: 64, DropLast: true,
				Shuffle: shuffle,
			})
			read := func(epoch int) map[int32]bool {
				all := map[int32]bool{}
				for _, k := range s.Epoch(epoch).Reads(0) {
					all[k] = true
				}
				return all
			}
			first := read(0)
			var leftOut, want []int32
			for k := range int32(100) {
				if first[k] {
					continue
				}
				leftOut = append(leftOut, k)
				later := epochs == 0
				for e := 1; e < epochs; e++ {
					later = later || read(e)[k]
				}
				if later {
					want = append(want, k)
				}
			}
			if got := s.ReadAfter(0, slices.Clone(leftOut)); !slices.Equal(got, want) {
				t.Errorf("%s, %d epochs: %v, want %v", shuffle, epochs, got, want)
			}
		}
	}
}
