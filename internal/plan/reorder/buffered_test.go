package reorder

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// input draws a job of several ranks, one on each node.
func input(t *rapid.T) plan.Input {
	w := rapid.IntRange(1, 5).Draw(t, "ranks")
	f := rapid.IntRange(1, 200).Draw(t, "samples")
	s, err := access.New(access.Spec{
		Samples: f, Seed: rapid.Uint64().Draw(t, "seed"), WorldSize: w,
		GlobalBatch: rapid.IntRange(1, 40).Draw(t, "batch"), Tail: access.Pad,
		Scheme: rapid.SampledFrom([]access.Scheme{access.Strided, access.Uniform}).Draw(t, "scheme"),
	})
	if err != nil {
		t.Fatal(err)
	}
	in := plan.Input{Stream: s, Size: func(k int) int64 { return int64(1 + k%3) }}
	for r := range w {
		in.Nodes = append(in.Nodes, plan.Node{Ranks: []int{r}})
	}
	return in
}

// TestBufferedIsAShuffleBuffer: a sample comes out no earlier than `buffer` samples before its
// place among the files of its rank, and each of them once before any again. With a buffer of one
// sample, files are read in order.
func TestBufferedIsAShuffleBuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t)
		spec := in.Stream.Spec()
		files := Files(&in, rapid.Int64Range(1, 60).Draw(t, "bytes of a file"))
		if files[0] != 0 || int(files[len(files)-1]) != spec.Samples || !slices.IsSorted(files) {
			t.Fatalf("files begin at %v", files)
		}
		buffer := rapid.SampledFrom([]int{1, 2, 10, 1000}).Draw(t, "buffer")
		epoch := rapid.IntRange(0, 3).Draw(t, "epoch")
		order := Buffered(&in, "p", files, buffer)
		ids := order.Draw(in.Stream.Epoch(epoch))
		if again := order.Draw(in.Stream.Epoch(epoch)); !slices.Equal(ids, again) {
			t.Fatal("the same epoch has another order")
		}
		stream := in.Stream.Reordered(order)
		ranks, each := spec.WorldSize, func(r int) (own []int32) {
			for step := range stream.Steps() {
				own = stream.Epoch(epoch).Batch(own, r, step)
			}
			return own
		}
		if len(files)-1 < ranks {
			ranks, each = 1, func(int) []int32 { return ids }
		}
		for r := range ranks {
			own := each(r)
			// What its files have in the first pass, in their order.
			var pass []int32
			plain := newPipeline(files, 0, r, ranks, spec.Seed, epoch)
			for id, ok := plain.input(); ok; id, ok = plain.input() {
				pass = append(pass, id)
			}
			for i, id := range own[:min(len(own), len(pass))] {
				switch at := slices.Index(pass, id); {
				case at < 0:
					t.Fatalf("rank %d: sample %d, which its files do not have", r, id)
				case at-i >= buffer:
					t.Fatalf("rank %d: sample %d came %d places early, by a buffer of %d", r, id,
						at-i, buffer)
				case buffer == 1 && at != i:
					t.Fatalf("rank %d: %v, want the files in order: %v", r, own, pass)
				}
			}
			once := slices.Sorted(slices.Values(own[:min(len(own), len(pass))]))
			if len(slices.Compact(once)) != min(len(own), len(pass)) {
				t.Fatalf("rank %d: a sample comes again before all have come: %v", r, own)
			}
		}
	})
}

// TestRegroupedKeepsBatches: every global batch has the samples that it had, and a rank that owns
// fewer than its share is given no sample while another owner of it has room.
func TestRegroupedKeepsBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t)
		parts := PartsOf(&in)
		copies := rapid.IntRange(1, len(in.Nodes)).Draw(t, "copies")
		order := Regrouped(&in, "p", parts, copies)
		stream := in.Stream.Reordered(order)
		was, is := in.Stream.Epoch(1), stream.Epoch(1)
		for step := range stream.Steps() {
			a, b := was.Global(nil, step), is.Global(nil, step)
			slices.Sort(a)
			slices.Sort(b)
			if !slices.Equal(a, b) {
				t.Fatalf("step %d: %v, and %v before", step, b, a)
			}
			strangers, short := 0, 0
			for n := range in.Nodes {
				own := is.Batch(nil, n, step)
				mine := 0
				for _, k := range was.Global(nil, step) {
					if parts.Owner(k) == n {
						mine++
					}
				}
				short += max(0, len(own)-mine)
				for _, k := range own {
					if parts.Owner(k) != n {
						strangers++
					}
				}
			}
			if copies == 1 && strangers != short {
				t.Fatalf("step %d: %d samples on nodes that do not own them; %d must be", step,
					strangers, short)
			}
		}
	})
}
