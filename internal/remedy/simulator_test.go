package remedy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/simulate"
)

func TestPredictionsAgreeWithTheSimulator(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(1, seed))
		log := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
		const samples, mb = 4000, 0.1
		nodes := 1 + r.IntN(4)
		env := perfmodel.Environment{
			Compute: log(20, 400), Preprocess: log(20, 200), PeerBandwidth: log(5, 1000)/32, SourceBandwidth: 1e6,
			SourceThroughput: perfmodel.Constant(log(10, 500)),
			Classes: []perfmodel.Class{
				{Capacity: 40, Threads: 32, Read: perfmodel.Constant(1e6), Write: perfmodel.Constant(1e6)},
				{Capacity: samples*mb*r.Float64()/float64(nodes), Threads: 4, Read: perfmodel.Constant(5000), Write: perfmodel.Constant(5000)},
			},
		}
		job := &simulate.Job{Env: env, Nodes: nodes, Epochs: 4, GlobalBatch: 32, Scheme: access.Strided, Seed: seed}
		for range samples {
			job.Sizes = append(job.Sizes, mb)
		}
		result, err := simulate.RunModel(t.Context(), job, "cooperative")
		if err != nil || !result.Supported {
			t.Fatal(err, result.Reason)
		}
		mean := (result.Epochs[2]+result.Epochs[3])/2
		e2 := env
		e2.PeerBandwidth *= 32
		f := e2.Epoch(&perfmodel.Later{Data: samples*mb, Node: samples*mb/float64(nodes), Sample: mb, Nodes: nodes, Transformers: 32})
		fmt.Printf("%d nodes %d: %.3f simulated, %.3f predicted, %.3f; c %.2f p %.2f s %.2f n %.2f\n", seed, nodes, mean, f.Seconds, f.Seconds/mean, f.Compute.Seconds, f.Preprocess.Seconds, f.Source.Seconds, f.Network.Seconds)
	}
}
