package scaling

import (
	"math"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// The job of the comparison with the simulator: samples of one size, as in the paper.
const (
	samples = 4096
	batch   = 512
	epochs  = 3
)

// simulated returns what the simulator computes under a policy.
func simulated(t *testing.T, env *model.Environment, nodes int, policy string) *simulate.Result {
	t.Helper()
	result, err := simulate.RunModel(t.Context(), &simulate.Job{
		Env: *env, Nodes: nodes, Sizes: slices.Repeat([]float64{1}, samples), Epochs: epochs,
		GlobalBatch: batch, Scheme: access.Uniform, Seed: 1,
	}, policy)
	if err != nil {
		t.Fatal(err)
	}
	if !result.Supported {
		t.Fatalf("%s on %d nodes: %s", policy, nodes, result.Reason)
	}
	return result
}

// predicted returns what the model predicts for the same job.
func predicted(env *model.Environment, nodes int) *Prediction {
	return Predict(Job{
		Env: env, Nodes: nodes, Dataset: samples, Samples: samples, Epoch: samples,
		GlobalBatch: batch, Epochs: epochs,
	})
}

// TestRegularLoadingIsAsSimulated: where the assumptions are the same (samples of one size, a
// constant R, U much larger than V), the runtime of the model is that of the policy `staging`
// within 1 %, below, at and above R/V = 5 nodes.
func TestRegularLoadingIsAsSimulated(t *testing.T) {
	env := machine()
	for _, nodes := range []int{1, 2, 4, 5, 6, 8, 16, 32} {
		got := predicted(env, nodes).Methods[0]
		want := simulated(t, env, nodes, "staging").Runtime
		if math.Abs(got.Runtime-want) > 0.01*want {
			t.Errorf("on %d nodes the model has %.2f s, and the simulator %.2f s", nodes, got.Runtime,
				want)
		}
		if limited := nodes > LimitOf(env).Nodes; nodes != 5 && got.Later.Limited() != limited {
			t.Errorf("on %d nodes, loading limits: %v", nodes, got.Later.Limited())
		}
	}
}

// TestCachesAreAsSimulated: where the assumptions are the same, an epoch after the first takes what
// equations 7 and 8 say, within 3 %, whatever limits it. For equation 7 they are: caches of
// disjoint parts (lbann_preloading), or a network that does not limit, so that further copies do
// not matter (cooperative). For equation 8: a network that does not limit, because in the simulator
// each step waits for the node that lacks most, and not for the mean.
func TestCachesAreAsSimulated(t *testing.T) {
	for _, test := range []struct {
		policy                     string
		method                     int
		capacity, network, compute float64
		nodes                      []int
		limit                      string // what limits on the most nodes
	}{
		{"cooperative", 1, 64, 1000, 20, []int{1, 2, 4, 8, 16, 32}, "storage"},
		{"cooperative", 1, 96, 1000, 20, []int{2, 8, 32}, "storage"},
		{"lbann_preloading", 1, 2048, 1000, 20, []int{2, 4, 32}, "training"},
		{"lbann_preloading", 1, 2048, 5, 100, []int{2, 4, 8, 16, 32}, "network"},
		{"locality", 2, 64, 1000, 20, []int{1, 2, 4, 8, 16}, "storage"},
		{"locality", 2, 1024, 1000, 20, []int{2, 4, 8, 16, 32}, "training"},
	} {
		env := machine()
		env.Classes[1].Capacity, env.PeerBandwidth = test.capacity, test.network
		env.Compute = test.compute
		limit := ""
		for _, nodes := range test.nodes {
			got := predicted(env, nodes).Methods[test.method].Later
			want := 0.0
			for _, s := range simulated(t, env, nodes, test.policy).Epochs[1:] {
				want += s / (epochs - 1)
			}
			if math.Abs(got.Seconds()-want) > 0.03*want {
				t.Errorf("%s with %v MB, %v MB/s on %d nodes: the model has %.2f s, and the simulator "+
					"%.2f s", test.policy, test.capacity, test.network, nodes, got.Seconds(), want)
			}
			switch most := max(got.Training, got.Storage, got.Exchange); most {
			case got.Training:
				limit = "training"
			case got.Storage:
				limit = "storage"
			case got.Exchange:
				limit = "network"
			}
		}
		if limit != test.limit {
			t.Errorf("%s with %v MB, %v MB/s: %s limits, not %s", test.policy, test.capacity,
				test.network, limit, test.limit)
		}
	}
}
