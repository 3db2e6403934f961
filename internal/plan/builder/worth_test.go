package builder

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// TestFetchTimeIsThatOfEachRead adds up what each read of the stream takes: from the source, from
// the best copy on another node, or from the node's own, whichever is fastest (thesis 3.13).
func TestFetchTimeIsThatOfEachRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := policytest.DrawInput(t)
		in.Env = &model.Environment{
			Compute: 1, Preprocess: 1, SourceBandwidth: 10, SourceThroughput: model.Constant(10),
			PeerBandwidth: rapid.Float64Range(1, 100).Draw(t, "peer"),
		}
		classes := 0
		for _, n := range in.Nodes {
			classes = max(classes, len(n.Capacity))
		}
		for range 1 + classes {
			rate := model.Constant(rapid.Float64Range(1, 100).Draw(t, "rate"))
			in.Env.Classes = append(in.Env.Classes, model.Class{
				Capacity: 1, Threads: 1, Read: rate, Write: rate,
			})
		}
		b, err := New(&in)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReads(b)
		if rapid.Bool().Draw(t, "own") {
			b.FillOwn(r, 1)
		} else {
			b.FirstCopies(r)
		}
		var want float64
		for e := in.From; e < b.to; e++ {
			for rank, k := range in.Stream.Epoch(e).Reads() {
				best := 1 / in.Env.SourceRate(len(in.Nodes)) // seconds per MB
				for c := b.head[k]; c >= 0; c = b.copies[c].next {
					j := int(b.copies[c].class) + 1
					if best = min(best, b.fromPeer(j)); int32(b.copies[c].node) == b.nodeOf[rank] {
						best = min(best, b.fromClass(j))
					}
				}
				want += best * float64(in.Size(int(k))) / 1e6
			}
		}
		if got := b.FetchTime(r); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%v s, want %v", got, want)
		}
	})
}
