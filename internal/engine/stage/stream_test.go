package stage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// TestRanksGetExactlyTheStream is the property that matters to training: for any ranks, classes,
// sizes, threads, buffers, habits of the process and resume points, each rank gets exactly the
// samples of the stream, and if the caches hold the dataset each sample is read from the source
// once.
func TestRanksGetExactlyTheStream(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		sizes := rapid.SliceOfN(rapid.IntRange(1, 3000), 1, 60).Draw(t, "sizes")
		var total int64
		for _, s := range sizes {
			total += int64(s)
		}
		world := rapid.IntRange(1, 3).Draw(t, "ranks")
		spec := access.Spec{
			Samples: len(sizes), Seed: rapid.Uint64Range(0, 1<<40).Draw(t, "seed"),
			Epochs:    rapid.IntRange(1, 3).Draw(t, "epochs"),
			WorldSize: world, GlobalBatch: rapid.IntRange(1, len(sizes)).Draw(t, "batch"),
			Shuffle: rapid.SampledFrom([]access.Shuffle{
				access.Torch, access.Feistel,
				access.Sequential,
			}).Draw(t, "shuffle"),
			Scheme: rapid.SampledFrom([]access.Scheme{
				access.Strided, access.Uniform, access.Whole,
				access.Imbalanced,
			}).Draw(t, "scheme"),
			Tail: rapid.SampledFrom([]access.Tail{access.Pad, access.Keep}).Draw(t, "tail"),
		}
		o := rigOptions{
			sizes: sizes, spec: spec,
			memory:  rapid.SampledFrom([]int64{0, 1, total / 3, total}).Draw(t, "memory"),
			file:    rapid.SampledFrom([]int64{0, total / 2}).Draw(t, "file"),
			dir:     fmt.Sprintf("%s/%d", dir, run),
			threads: rapid.IntRange(1, 6).Draw(t, "threads"),
			buffer:  int64(rapid.IntRange(1, 40_000).Draw(t, "buffer")),
			ahead:   rapid.IntRange(1, 8).Draw(t, "ahead"),
			lazy:    rapid.Bool().Draw(t, "lazy"),
			fill:    rapid.Bool().Draw(t, "fill"),
			policy:  Raise,
		}
		if rapid.Bool().Draw(t, "preprocess") {
			o.preprocessor = summary{}
		}
		keep := rapid.IntRange(0, 3).Draw(t, "kept batches")
		g := newRig(t, o)
		defer g.close()
		steps := g.stream.Steps()
		cut := rapid.IntRange(0, spec.Epochs*steps-1).Draw(t, "resume at")
		var all sync.WaitGroup
		for _, r := range g.ranks {
			all.Go(func() {
				first, err := g.run(r, step{0, 0}, cut, keep)
				if err != nil {
					panic(err)
				}
				rest, err := g.run(r, step{cut / steps, cut % steps}, 0, keep)
				if err != nil {
					panic(err)
				}
				if cut == 0 {
					first = map[step][]seen{}
				}
				if len(first)+len(rest) != spec.Epochs*steps {
					panic(fmt.Sprintf("rank %d saw %d and %d steps of %d", r.rank, len(first),
						len(rest), spec.Epochs*steps))
				}
				for _, part := range []map[step][]seen{first, rest} {
					for at, got := range part {
						if want := g.want(r.rank, at); !equal(got, want) {
							panic(fmt.Sprintf("rank %d, %+v: got %v, want %v", r.rank, at, ids(got),
								ids(want)))
						}
					}
				}
			})
		}
		all.Wait()
		if o.memory == total {
			for id := range sizes {
				if n := g.source.Reads[id].Load(); n > 1 {
					t.Fatalf("sample %d was read from the source %d times", id, n)
				}
			}
		}
	})
}

// TestAheadBoundsStaging checks that at most Ahead batches are staged that the process has not
// taken, even if they were sent to it.
func TestAheadBoundsStaging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ahead, batch = 2, 4
		g := newRig(t, rigOptions{
			sizes: slices.Repeat([]int{10}, 80), ahead: ahead, threads: 2, buffer: 1 << 20,
			spec: access.Spec{
				Samples:     80,
				WorldSize:   1,
				GlobalBatch: batch,
				Epochs:      2,
				Shuffle:     access.Sequential,
				Scheme:      access.Uniform,
				Tail:        access.Keep,
			},
		})
		defer g.close()
		s := g.ranks[0].stager
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		sent := 0
		ended.Go(func() { _ = s.Run(ctx, 0, 0, func(*Batch) error { sent++; return nil }) })
		s.Wait() // for the first batch, before it is staged
		for taken := range 30 {
			synctest.Wait()
			if want := taken + ahead; s.Staged() != want || sent != want {
				t.Fatalf("%d batches taken: %d were read and %d sent, want %d", taken, s.Staged(),
					sent, want)
			}
			s.Taken(taken/20, taken%20, Stall{})
			if taken%3 == 0 {
				s.Wait()
			}
		}
		cancel()
		ended.Wait()
	})
}
