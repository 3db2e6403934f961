package scaling

import (
	"math"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
)

// machine returns an environment with one cache class, in which preprocessing takes next to no
// time, as the paper assumes from equation 5 on.
func machine() *model.Environment {
	return &model.Environment{
		Compute: 20, Preprocess: 1e6, PeerBandwidth: 1000, SourceBandwidth: 1000,
		SourceThroughput: model.Constant(100),
		Classes: []model.Class{
			{Capacity: 32, Threads: 4, Read: model.Constant(1e7), Write: model.Constant(1e7)},
			{Capacity: 1024, Threads: 4, Read: model.Constant(1e5), Write: model.Constant(1e5)},
		},
	}
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*math.Abs(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestEquations computes the equations 1 to 8 by hand: D = 4000 MB, V = 20, R = 100, U = 400,
// Rc = p b_c = 8 * 50, alpha = 8 * 100 / 4000, beta as computed.
func TestEquations(t *testing.T) {
	env := machine()
	env.PeerBandwidth, env.Preprocess = 50, 100
	env.Classes[1].Capacity = 100
	v := ParametersOf(Job{
		Env: env, Nodes: 8, Dataset: 4000, Samples: 4000, Epoch: 4000, GlobalBatch: 256,
	})
	if v.U != 400 || v.R != 100 || v.Rc != 400 || v.Alpha != 0.2 || v.V != 20 {
		t.Fatalf("parameters are %+v", v)
	}
	regular := v.Regular()
	near(t, "equation 1", regular.Training, 25, 1e-12)
	near(t, "equation 2", regular.Storage, 40, 1e-12)
	near(t, "equation 3", regular.Preprocessing, 1.25, 1e-12)
	near(t, "equation 4", regular.Loading(), 41.25, 1e-12)
	near(t, "the cost of an epoch", regular.Seconds(), 41.25, 1e-12)
	cached := v.Cached()
	near(t, "equation 7, storage system", cached.Storage, 32, 1e-12)
	near(t, "equation 7, remote caches", cached.Exchange, 2*7./8, 1e-12)
	local := v.LocalityAware()
	near(t, "equation 8, storage system", local.Storage, 32, 1e-12)
	near(t, "equation 8, load balancing", local.Exchange, 2*v.Beta, 1e-12)
}

// TestLimit: by equation 5, regular loading scales to R/V nodes; what the storage system gives may
// grow with them.
func TestLimit(t *testing.T) {
	env := machine()
	if got := LimitOf(env); got != (Limit{5, true}) {
		t.Errorf("with R/V = 100/20: %+v", got)
	}
	env.Compute = 101
	if got := LimitOf(env); got != (Limit{0, true}) {
		t.Errorf("with R/V = 100/101: %+v", got)
	}
	env.Compute = 20
	env.SourceThroughput = model.NewCurve(map[int]float64{1: 100, 16: 320, 32: 320})
	if got := LimitOf(env); got != (Limit{16, true}) {
		t.Errorf("with t(16) = 320: %+v", got)
	}
	env.SourceBandwidth = 19
	if got := LimitOf(env); got != (Limit{0, true}) {
		t.Errorf("with b_fs below c: %+v", got)
	}
	env.SourceBandwidth, env.SourceThroughput = 1000, model.NewCurve(
		map[int]float64{1: 100, 1 << 16: 100 << 16})
	if got := LimitOf(env); got.Bounded {
		t.Errorf("with a source that grows with the nodes: %+v", got)
	}
}

// TestCachesGiveWhatTheyHold: classes are read in parallel, each for its part.
func TestCachesGiveWhatTheyHold(t *testing.T) {
	env := machine()
	env.Classes[1] = model.Class{Capacity: 100, Threads: 1, Read: model.Constant(1000)}
	env.Classes = append(env.Classes,
		model.Class{Capacity: 900, Threads: 1, Read: model.NewCurve(map[int]float64{1: 9, 4: 90})})
	for _, test := range []struct{ held, want float64 }{
		{50, 1000}, {100, 1000}, {1000, 100}, {200, 180},
	} {
		near(t, "the rate", cacheRate(env, test.held), test.want, 1e-12)
	}
	if rate := cacheRate(env, 0); !math.IsInf(rate, 1) {
		t.Errorf("without samples: %v", rate)
	}
}
