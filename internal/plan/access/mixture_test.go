package access

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestMixtureIsThatOfTheOracle compares epochs with those of python/tests/mix_oracle.py, which
// computes them one sample at a time, and which the Python package is compared with as well.
func TestMixtureIsThatOfTheOracle(t *testing.T) {
	data, err := os.ReadFile("testdata/mixture.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Mix     Mixture
		Unit    int
		Seed    uint64
		Shuffle bool
		Epochs  map[string][]int32
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 20 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for i, c := range cases {
		spec := Spec{
			Samples: sum(c.Mix.Sizes), Seed: c.Seed, WorldSize: 1, GlobalBatch: c.Unit,
			Mixture: &c.Mix, Shuffle: Sequential,
		}
		if c.Shuffle {
			spec.Shuffle = Feistel
		}
		s := mustNew(t, spec)
		for name, want := range c.Epochs {
			number, _ := strconv.Atoi(name)
			if got := order(s, number); !slices.Equal(got, want) {
				t.Errorf("case %d, epoch %d: %v, want %v", i, number, got, want)
			}
		}
	}
}

func sum(sizes []int) (all int) {
	for _, n := range sizes {
		all += n
	}
	return all
}

// drawMixed draws a spec with a mixture.
func drawMixed(t *rapid.T) Spec {
	m := &Mixture{
		Sizes:  rapid.SliceOfN(rapid.IntRange(1, 40), 1, 5).Draw(t, "sizes"),
		Single: rapid.Bool().Draw(t, "single"),
	}
	for range rapid.IntRange(1, 3).Draw(t, "rows") {
		row := rapid.SliceOfN(rapid.Uint64Range(0, 1000), len(m.Sizes), len(m.Sizes)).Draw(t, "row")
		row[rapid.IntRange(0, len(row)-1).Draw(t, "not 0")]++
		m.Weights = append(m.Weights, row)
	}
	spec := Spec{
		Samples: sum(m.Sizes), Seed: rapid.Uint64().Draw(t, "seed"), Mixture: m,
		WorldSize: rapid.IntRange(1, 4).Draw(t, "ranks"),
		Shuffle:   rapid.SampledFrom([]Shuffle{Feistel, Sequential}).Draw(t, "shuffle"),
		Tail:      Keep,
	}
	spec.GlobalBatch = spec.WorldSize * rapid.IntRange(1, 5).Draw(t, "batch")
	m.Entries = rapid.IntRange(1, 100).Draw(t, "entries")
	if m.Single {
		m.Entries = spec.GlobalBatch * rapid.IntRange(1, 20).Draw(t, "batches")
	}
	return spec
}

// datasetOf is the dataset of a sample.
func datasetOf(m *Mixture, k int32) (dataset int) {
	for int(k) >= sum(m.Sizes[:dataset+1]) {
		dataset++
	}
	return dataset
}

// TestMixtureHasItsSharesAndPasses checks what a mixture promises over epochs: shares within 1 unit
// of the weights, each sample of a dataset once before any of it comes again, batches of one
// dataset where that is asked for, and the same in whatever order epochs are drawn.
func TestMixtureHasItsSharesAndPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawMixed(t)
		m, unit := spec.Mixture, 1
		if m.Single {
			unit = spec.GlobalBatch
		}
		s, epochs := mustNew(t, spec), rapid.IntRange(1, 300).Draw(t, "epochs")
		seen := make([]int, spec.Samples) // how often each sample came
		taken := make([]int, len(m.Sizes))
		for e := range epochs {
			got := order(s, e)
			if len(got) != m.Entries {
				t.Fatalf("epoch %d has %d samples, want %d", e, len(got), m.Entries)
			}
			count := make([]int, len(m.Sizes))
			for p, k := range got {
				d := datasetOf(m, k)
				if m.Single && d != datasetOf(m, got[p/unit*unit]) {
					t.Fatalf("epoch %d: the batch of position %d has samples of 2 datasets", e, p)
				}
				if pass := taken[d] / m.Sizes[d]; seen[k] != pass {
					t.Fatalf("epoch %d: sample %d comes for the %d. time in pass %d of its dataset",
						e, k, seen[k]+1, pass)
				}
				if spec.Shuffle == Sequential && int(k) != sum(m.Sizes[:d])+taken[d]%m.Sizes[d] {
					t.Fatalf("epoch %d: sample %d out of order", e, k)
				}
				seen[k]++
				taken[d]++
				count[d]++
			}
			row := m.Weights[min(e, len(m.Weights)-1)]
			for d, n := range count {
				share := float64(row[d]) / float64(sumOf(row)) * float64(m.Entries/unit)
				if diff := float64(n/unit) - share; diff <= -1 || diff >= 1 {
					t.Fatalf("epoch %d has %d units of dataset %d, and its share is %g", e, n/unit, d,
						share)
				}
			}
		}
		last := epochs - 1
		again := mustNew(t, spec)
		if !slices.Equal(order(again, last), order(s, last)) || !slices.Equal(order(s, 0),
			order(again, 0)) {
			t.Fatal("an epoch depends on which were drawn before")
		}
	})
}

// TestMixtureSharesAreExactInTheLongRun: also those of a dataset whose share of an epoch is less
// than one sample.
func TestMixtureSharesAreExactInTheLongRun(t *testing.T) {
	m := &Mixture{
		Sizes: []int{50, 3, 200}, Weights: [][]uint64{{900, 1, 99}}, Entries: 7,
	}
	s := mustNew(t, Spec{
		Samples: 253, WorldSize: 1, GlobalBatch: 7, Mixture: m, Shuffle: Feistel, Seed: 5,
	})
	const epochs = 4096
	var count [3]float64
	for e := range epochs {
		for d, n := range s.Mixed(e) {
			count[d] += float64(n)
		}
	}
	for d, w := range m.Weights[0] {
		if want := float64(w) / 1000 * 7 * epochs; count[d] < want-12 || count[d] > want+12 {
			t.Errorf("%g samples of dataset %d in %d epochs, want %g", count[d], d, epochs, want)
		}
	}
}

// TestMixtureSharesAreExactWhereWeightsAlternate: what is rounded up does not depend on whether an
// epoch's number is even, or divides by another small number.
func TestMixtureSharesAreExactWhereWeightsAlternate(t *testing.T) {
	for period := 1; period <= 12; period++ {
		for _, weight := range []uint64{1, 3, 10, 30, 50} { // of 100, in each period-th epoch
			m := &Mixture{Sizes: []int{4, 30}, Entries: 1}
			for e := range 1200 {
				row := []uint64{0, 100}
				if e%period == 0 {
					row = []uint64{weight, 100 - weight}
				}
				m.Weights = append(m.Weights, row)
			}
			s := mustNew(t, Spec{
				Samples: 34, WorldSize: 1, GlobalBatch: 1, Mixture: m, Shuffle: Feistel,
			})
			count, exact := 0.0, 0.0
			for e, row := range m.Weights {
				count += float64(s.Mixed(e)[0])
				exact += float64(row[0]) / 100
				if count < exact-8 || count > exact+8 {
					t.Fatalf("every %d. epoch %d%%: %g samples after epoch %d, want %g", period, weight,
						count, e, exact)
				}
			}
		}
	}
}

// TestBadMixtures: an error names what is wrong.
func TestBadMixtures(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*Spec, *Mixture)
	}{
		{"has 0 samples", func(_ *Spec, m *Mixture) { m.Sizes[0] = 0 }},
		{"has 9 samples", func(_ *Spec, m *Mixture) { m.Sizes[1] = 9 }},
		{"1 datasets with 5", func(_ *Spec, m *Mixture) { m.Sizes = m.Sizes[:1] }},
		{"no weights", func(_ *Spec, m *Mixture) { m.Weights = nil }},
		{"has 1 weights", func(_ *Spec, m *Mixture) { m.Weights[0] = []uint64{1} }},
		{"add up to 0", func(_ *Spec, m *Mixture) { m.Weights[0] = []uint64{0, 0} }},
		{"add up to", func(_ *Spec, m *Mixture) { m.Weights[0][0] = 1 << 63 }},
		{"Entries of Mixture is 0", func(_ *Spec, m *Mixture) { m.Entries = 0 }},
		{"multiple of GlobalBatch", func(_ *Spec, m *Mixture) { m.Single, m.Entries = true, 7 }},
		{"Shuffle is", func(s *Spec, _ *Mixture) { s.Shuffle = Torch }},
		{"Subset and Mixture", func(s *Spec, _ *Mixture) { s.Subset = []int32{1} }},
	} {
		m := &Mixture{Sizes: []int{5, 3}, Weights: [][]uint64{{1, 1}}, Entries: 8}
		spec := Spec{
			Samples: 8, WorldSize: 1, GlobalBatch: 2, Mixture: m, Shuffle: Feistel,
		}
		c.change(&spec, m)
		if _, err := New(spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", m, err, c.want)
		}
	}
}

// TestMixtureIsOneStream: all that is asked of a stream with a mixture says the same.
func TestMixtureIsOneStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawMixed(t)
		spec.Tail = rapid.SampledFrom([]Tail{Pad, Keep}).Draw(t, "tail")
		s, number := mustNew(t, spec), rapid.IntRange(0, 20).Draw(t, "epoch")
		e := s.Epoch(number)
		reads := map[string]int{}
		var total uint64
		for rank := range spec.WorldSize {
			place := 0
			for step := range s.Steps() {
				for _, k := range e.Batch(nil, rank, step) {
					if e.At(rank, place) != int(k) || !e.Has(int(k)) || !s.Has(int(k)) {
						t.Fatalf("rank %d, place %d: sample %d is not found", rank, place, k)
					}
					reads[fmt.Sprint(k, rank, place, step)]++
					total += Mix(number, int(k))
					place++
				}
			}
		}
		if total != e.Audit(0) {
			t.Fatal("the audit expects something else than what ranks read")
		}
		for k := range spec.Samples {
			for _, r := range e.Find(k) {
				key := fmt.Sprint(k, r.Rank, r.Index, r.Step)
				if reads[key]--; reads[key] == 0 {
					delete(reads, key)
				}
			}
		}
		if len(reads) > 0 {
			t.Fatalf("reads that Find does not find, or finds too often: %v", reads)
		}
	})
}
