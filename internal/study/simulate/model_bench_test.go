package simulate

import (
	"context"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// BenchmarkModel reports sample accesses per second of every policy, planning included, on the
// thesis's scenario 4 at a tenth of its samples and class capacities; the order is drawn once for
// all, as hdmlp simulate does.
func BenchmarkModel(b *testing.B) {
	for _, p := range policies.Names(policies.All()) {
		b.Run(p, func(b *testing.B) {
			job := thesisJob(40000, 3, 5)
			order, err := DrawOrder(job.Seed, len(job.Sizes), job.Epochs)
			if err != nil {
				b.Fatal(err)
			}
			job.Order = order
			if p == "lbann_dynamic" || p == "lbann_preloading" {
				job.Env.Classes[1].Capacity *= 8 // they need all of it
			}
			accesses := 0.0
			for b.Loop() {
				r, err := RunModel(context.Background(), job, p)
				if err != nil || !r.Supported {
					b.Fatal(err, r)
				}
				accesses += float64(len(job.Sizes) * job.Epochs)
			}
			b.ReportMetric(accesses/b.Elapsed().Seconds(), "accesses/s")
		})
	}
}
