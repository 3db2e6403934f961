package stage

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// BenchmarkSamples measures what it costs to stage a sample, by where it is found: raw or
// transformed, in memory, or read each time from the fake source, which costs only generating its
// bytes.
func BenchmarkSamples(b *testing.B) {
	for _, c := range []struct {
		name      string
		memory    int64
		transform bool
	}{
		{"raw from the source", 0, false},
		{"raw in memory", 1 << 20, false},
		{"transformed from the source", 0, true},
		{"transformed in memory", 1 << 20, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			const samples, batch = 1024, 64
			o := rigOptions{
				sizes: slices.Repeat([]int{100}, samples), memory: c.memory, threads: 1,
				buffer: 1 << 20, ahead: 4, policy: Raise,
				spec: access.Spec{
					Samples:     samples,
					Epochs:      1 << 30,
					WorldSize:   1,
					GlobalBatch: batch,
					Shuffle:     access.Sequential,
					Tail:        access.Keep,
				},
			}
			if c.transform {
				o.preprocessor = summary{}
			}
			g := newRig(b, o)
			defer g.close()
			r := g.ranks[0]
			n := -samples // the first epoch brings the samples into memory
			err := r.stager.Run(context.Background(), 0, 0, func(x *Batch) error {
				if n == 0 {
					b.ReportAllocs()
					b.ResetTimer()
				}
				if n += len(x.IDs); n >= b.N {
					b.StopTimer()
					return errEnough
				}
				r.ledger.Yielded(x.Epoch, x.Step, Stall{})
				g.giveBack(r, x)
				r.stager.Taken(x.Epoch, x.Step, Stall{})
				return nil
			})
			if !errors.Is(err, errEnough) {
				b.Fatal(err)
			}
		})
	}
}
