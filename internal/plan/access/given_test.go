package access

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestSubset compares with a stream over a dataset of the subset's length: torch's
// DistributedSampler over a Subset.
func TestSubset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStream(t)
		spec := s.Spec()
		if spec.Subset == nil {
			return
		}
		subset := spec.Subset
		spec.Samples, spec.Subset = len(subset), nil
		plain := mustNew(t, spec)
		if s.Steps() != plain.Steps() || s.Delivered() != plain.Delivered() {
			t.Fatalf("%d steps and %d positions, want %d and %d", s.Steps(), s.Delivered(),
				plain.Steps(), plain.Delivered())
		}
		epoch := rapid.IntRange(0, drawnEpochs-1).Draw(t, "epoch")
		got, want := s.Epoch(epoch), plain.Epoch(epoch)
		for r := range spec.WorldSize {
			for step := range s.Steps() {
				mapped := want.Batch(nil, r, step)
				for i, p := range mapped {
					mapped[i] = subset[p]
				}
				if batch := got.Batch(nil, r, step); !slices.Equal(batch, mapped) {
					t.Fatalf("rank %d reads %v in step %d, want %v", r, batch, step, mapped)
				}
			}
		}
	})
}

// TestLargeBatch: one that is larger than the dataset delivers the dataset, whatever its size.
func TestLargeBatch(t *testing.T) {
	for _, scheme := range []Scheme{Strided, Uniform, Whole, Imbalanced} {
		spec := Spec{Samples: 10, WorldSize: 3, Seed: 1, Scheme: scheme, GlobalBatch: 12}
		want := mustNew(t, spec)
		for _, batch := range []int{13, 1 << 31, 1<<62 - 1} {
			spec.GlobalBatch = batch
			s := mustNew(t, spec)
			if s.Steps() != 1 {
				t.Errorf("%s: batches of %d make %d steps", scheme, batch, s.Steps())
			}
			for r := range spec.WorldSize {
				got, want := s.Epoch(2).Batch(nil, r, 0), want.Epoch(2).Batch(nil, r, 0)
				if !slices.Equal(got, want) || s.RankSamples(r) != len(want) ||
					len(want) > 0 && s.Epoch(2).At(r, 0) != int(want[0]) {
					t.Errorf("%s: of a batch of %d, rank %d reads %v, want %v", scheme, batch, r,
						got, want)
				}
			}
			spec.DropLast = true
			if _, err := New(spec); err == nil ||
				!strings.Contains(err.Error(), "nothing would be delivered") {
				t.Errorf("%s: batches of %d, and the short one dropped: %v", scheme, batch, err)
			}
			spec.DropLast = false
		}
	}
}

// TestGiven compares the batches with what was given.
func TestGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.IntRange(1, 50).Draw(t, "samples")
		batches := rapid.SliceOfN(rapid.Int32Range(1, 9), 1, 9).Draw(t, "batches")
		s, err := NewGiven(f, batches, 0)
		if err != nil {
			t.Fatal(err)
		}
		order := rapid.SliceOfN(rapid.Int32Range(0, int32(f-1)), s.Delivered(),
			s.Delivered()).Draw(t, "order")
		if err := s.Give(3, order); err != nil {
			t.Fatal(err)
		}
		fixed := s.Fixed()
		e := s.Epoch(3)
		s.Forget(4)
		if s.Given(3) || s.Epoch(3) != nil || len(s.GivenEpochs()) != 0 {
			t.Fatal("what was forgotten is there")
		}
		if !fixed.Given(3) || fixed.Given(2) || fixed.Epoch(2) != nil || fixed.Epoch(3) == nil {
			t.Fatal("Fixed has not what was given")
		}
		at := 0
		for step, m := range batches {
			if got, want := e.Batch(nil, 0, step), order[at:at+int(m)]; !slices.Equal(got, want) {
				t.Fatalf("batch %d is %v, want %v", step, got, want)
			}
			at += int(m)
		}
	})
}

// TestGivenShared compares with the ranks' own lists, cut into batches as torch's BatchSampler cuts
// them.
func TestGivenShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.IntRange(1, 50).Draw(t, "samples")
		ranks := rapid.IntRange(1, 7).Draw(t, "ranks")
		batch := rapid.IntRange(1, 12).Draw(t, "batch")
		entries := rapid.IntRange(1, 40).Draw(t, "entries")
		s, err := NewGivenShared(f, ranks, batch, entries, 0)
		if err != nil {
			t.Fatal(err)
		}
		lists, order := make([][]int32, ranks), make([]int32, ranks*entries)
		audit, times := uint64(0), map[int32]int{}
		for r := range lists {
			lists[r] = rapid.SliceOfN(rapid.Int32Range(0, int32(f-1)), entries, entries).Draw(t,
				"list")
			for i, k := range lists[r] {
				order[i*ranks+r] = k
				audit += Mix(2, int(k))
				times[k]++
			}
		}
		if err := s.Give(2, order); err != nil {
			t.Fatal(err)
		}
		e := s.Epoch(2)
		if s.Delivered() != len(order) || e.Audit(0) != audit || s.Spec().WorldSize != ranks ||
			s.Spec().GlobalBatch != ranks*batch {
			t.Fatalf("%d delivered, audit %x, spec %+v", s.Delivered(), e.Audit(0), s.Spec())
		}
		occurs := map[[2]int32]bool{}
		for r, list := range lists {
			if s.RankSamples(r) != entries {
				t.Fatalf("rank %d has %d samples, want %d", r, s.RankSamples(r), entries)
			}
			step := 0
			for want := range slices.Chunk(list, batch) {
				got := e.Batch(nil, r, step)
				if !slices.Equal(got, want) {
					t.Fatalf("batch %d of rank %d is %v, want %v", step, r, got, want)
				}
				occurrence := e.Occurrence(r, step)
				for i, k := range got {
					here := [2]int32{k, 0}
					if occurrence != nil {
						here[1] = occurrence[i]
					}
					if occurs[here] || int(here[1]) >= times[k] {
						t.Fatalf("occurrence %d of sample %d comes twice, or there are not so many",
							here[1], k)
					}
					occurs[here] = true
				}
				step++
			}
			if step != s.Steps() {
				t.Fatalf("%d steps, want %d", s.Steps(), step)
			}
			for i, k := range list {
				if e.At(r, i) != int(k) ||
					!slices.Contains(e.Find(int(k)), Read{r, i, i / batch}) {
					t.Fatalf("sample %d of rank %d is %d, found at %v; want %d", i, r, e.At(r, i),
						e.Find(int(k)), k)
				}
			}
		}
	})
}

func TestGivenSharedRefuses(t *testing.T) {
	for _, c := range [][4]int{
		{0, 1, 1, 1},
		{1, 0, 1, 1},
		{1, 1, 0, 1},
		{1, 1, 1, 0},
		{1, 2, maxBatch, 1},
		{1, 2, 1, maxSamples},
		{1, maxRanks + 1, 1, 1},
	} {
		if s, err := NewGivenShared(c[0], c[1], c[2], c[3], 0); err == nil {
			t.Errorf("%v: %+v", c, s.Spec())
		}
	}
}

func TestGive(t *testing.T) {
	s, err := NewGiven(5, []int32{2, 1}, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Give(1, []int32{4, 4, 0}); err != nil {
		t.Fatal(err)
	}
	if err := s.Give(1, []int32{4, 4, 0}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	for _, c := range []struct {
		epoch int
		ids   []int32
		want  string
	}{
		{2, []int32{0, 1}, "epoch 2 is given with 2 samples; its batches have 3"},
		{2, []int32{0, 5, 1}, "epoch 2 is given with sample 5 at index 1; allowed: 0 to 4"},
		{2, []int32{0, 1, math.MinInt32}, "epoch 2 is given with sample -2147483648 at index 2"},
		{
			1,
			[]int32{4, 3, 0},
			"epoch 1 is given again with another order: sample 3 at index 1, which was 4",
		},
		{4, []int32{0, 1, 2}, "epoch 4 is given; there are 4 epochs"},
		{-1, []int32{0, 1, 2}, "epoch -1 is given"},
	} {
		if err := s.Give(c.epoch, c.ids); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Give(%d, %v): %v; want an error that says %q", c.epoch, c.ids, err, c.want)
		}
	}
	if s.Given(2) || !s.Given(1) || !slices.Equal(s.GivenEpochs(), []int{1}) {
		t.Errorf("given are %v, want epoch 1", s.GivenEpochs())
	}
	for _, c := range []struct {
		samples int
		batches []int32
		epochs  int
		want    string
	}{
		{0, []int32{1}, 0, "Samples is 0"},
		{1, nil, 0, "an epoch without batches"},
		{1, []int32{3, 0}, 0, "batch 1 has 0 samples"},
		{1, []int32{math.MaxInt32, 1}, 0, "batch 1 has 1 samples after 2147483647"},
		{1, []int32{1}, -1, "Epochs is -1"},
	} {
		if _, err := NewGiven(c.samples, c.batches, c.epochs); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("NewGiven(%d, %v, %d): %v; want an error that says %q", c.samples, c.batches,
				c.epochs, err, c.want)
		}
	}
	drawn := mustNew(t, Spec{Samples: 5, WorldSize: 1, GlobalBatch: 5})
	if err := drawn.Give(0, []int32{0, 1, 2, 3, 4}); err == nil {
		t.Error("a stream that draws its epochs takes one")
	}
	if drawn.Forget(9); !drawn.Given(3) || drawn.Fixed() != drawn {
		t.Error("a drawn stream knows all its epochs")
	}
}

// TestGivenAtOnce: epochs are given and forgotten while others are read, for the race detector.
func TestGivenAtOnce(t *testing.T) {
	const epochs, n = 200, 50
	s, err := NewGiven(n, []int32{20, 30}, epochs)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for e := range epochs {
			ids := make([]int32, n)
			for i := range ids {
				ids[i] = int32((i + e) % n)
			}
			if err := s.Give(e, ids); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		all.Go(func() {
			for e := 0; e < epochs; {
				got := s.Epoch(e)
				if got == nil {
					runtime.Gosched()
					continue
				}
				if k := e % n; got.At(0, 0) != k || got.Find(k)[0].Index != 0 || !got.Has(k) {
					t.Errorf("epoch %d is another one", e)
				}
				e++
			}
		})
	}
	all.Wait()
	s.Forget(epochs)
}
