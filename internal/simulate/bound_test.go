package simulate

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
)

func TestTryTimeBound(t *testing.T) {
	worst := map[string][]float64{}
	for seed := range uint64(20000) {
		job := randomJob(seed)
		if seed%2 == 0 {
			job.Env.Compute *= 20
			job.Env.Preprocess *= 20
			job.Env.PeerBandwidth *= 20
			if len(job.Env.Classes) > 1 && seed%4 == 0 {
				job.Env.Classes[1].Read = perfmodel.Constant(100)
				job.Env.Classes[1].Capacity *= 3
				job.Env.SourceThroughput = perfmodel.Constant(50)
			}
			if seed%8 == 0 {
				for j := range job.Env.Classes {
					job.Env.Classes[j].Threads *= 4
				}
			}
		}
		bound, err := TimeBound(context.Background(), job)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range policies.Names(policies.All())[1:] {
			if p == "sharded" || p == "locality" || p == "deepio_opportunistic" {
				continue
			}
			r := runModel(t, job, p)
			if !r.Supported {
				continue
			}
			ratio := r.Runtime / bound
			worst[p] = append(worst[p], ratio)
			if ratio < 1-1e-9 {
				t.Errorf("seed %d %s: %v of bound: %s", seed, p, ratio, describe(job))
			}
		}
	}
	for p, all := range worst {
		slices.Sort(all)
		n := len(all)
		t.Logf("%s: %d: min %.4f, 10%% %.4f, median %.4f, 90%% %.4f max %.3f", p, n, all[0],
			all[n/10], all[n/2], all[n*9/10], all[n-1])
	}
	_ = math.Inf
}
