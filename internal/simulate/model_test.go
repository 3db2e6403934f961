package simulate

import (
	"context"
	"testing"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// thesisMachine is the small cluster of thesis 5.2.1.
func thesisMachine() perfmodel.Environment {
	ram := perfmodel.NewCurve(map[int]float64{1: 16550, 2: 21164})
	ssd := perfmodel.NewCurve(map[int]float64{1: 66, 2: 86})
	return perfmodel.Environment{
		Compute: 100, Preprocess: 200, PeerBandwidth: 10000, SourceBandwidth: 2000,
		SourceThroughput: perfmodel.NewCurve(map[int]float64{1: 66, 2: 86, 3: 129, 4: 146}),
		Classes: []perfmodel.Class{
			{Capacity: 1024, Threads: 2, Read: ram, Write: ram},
			{Capacity: 51200, Threads: 2, Read: ram, Write: ram},
			{Capacity: 102400, Threads: 2, Read: ssd, Write: ssd},
		},
	}
}

func TestThesisScenarios(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      int
		size   float64
		epochs int
	}{
		{"1", 10000, 0.027, 10}, {"2", 150000, 1, 10}, {"3", 300000, 2, 5}, {"4", 400000, 3, 5},
	} {
		job := &Job{Env: thesisMachine(), Nodes: 4, Epochs: c.epochs, GlobalBatch: 100, DropLast: true, Scheme: "uniform", Seed: 1}
		for range c.f {
			job.Sizes = append(job.Sizes, c.size)
		}
		for _, p := range Policies() {
			r, err := RunModel(context.Background(), job, p)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %-20s %10.2f before %8.2f stall %8.2f source %.0f total %.0f (%.3f) remote %.0f local %v seen %.3f shuffle %.3f %s", c.name, p, r.Runtime, r.BeforeTraining, r.Stall, r.Reads.Source.MB, r.SourceTotal, r.ShareOfBound, r.Reads.Remote.MB, r.Reads.Local, r.SeenPerEpoch, r.Shuffle, r.Reason)
		}
	}
}
