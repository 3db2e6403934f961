package scenario_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// TestPapersNearTheLeastRuntime: in every scenario, scaled down, cooperative takes at most 1.02
// times the least runtime, and 1.005 times that of any other policy that keeps the order.
func TestPapersNearTheLeastRuntime(t *testing.T) {
	for _, f := range papers(t) {
		if strings.HasSuffix(f.Name(), "-environment") {
			continue // its caches are empty until they are set
		}
		t.Run(f.Name(), func(t *testing.T) {
			s, err := f.Scenario()
			if err != nil {
				t.Fatal(err)
			}
			const most = 60000
			s.GlobalBatch = min(s.GlobalBatch, 25*s.Nodes)
			samples := min(s.Dataset.Samples, most)
			share := float64(samples) / float64(s.Dataset.Samples)
			s.Dataset.Samples, s.Epochs = samples, min(s.Epochs, 5)
			job, err := s.Job()
			if err != nil {
				t.Fatal(err)
			}
			for j := range job.Env.Classes {
				job.Env.Classes[j].Capacity *= share
			}
			// Reading ahead has to even out which samples are cached, however few there are.
			staging := &job.Env.Classes[0].Capacity
			*staging = max(*staging, 200*slices.Max(job.Sizes))
			bound, err := simulate.TimeBound(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			took := func(policy string) float64 {
				r, err := simulate.RunModel(t.Context(), job, policy)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Supported {
					return 0
				}
				return r.Runtime
			}
			cooperative := took("cooperative")
			t.Logf("%d samples: %.4f of the least runtime", samples, cooperative/bound)
			if cooperative > 1.02*bound {
				t.Errorf("takes %.2f s, and the least possible is %.2f s", cooperative, bound)
			}
			for _, p := range []string{
				"naive", "staging", "minio", "partitioned", "frequency", "lbann_dynamic",
				"lbann_preloading", "deepio_ordered",
			} {
				if !slices.Contains(s.Policies, p) {
					continue
				}
				if other := took(p); other > 0 && cooperative > 1.005*other {
					t.Errorf("takes %.2f s, %s %.2f s", cooperative, p, other)
				}
			}
		})
	}
}
