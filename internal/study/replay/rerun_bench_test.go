package replay

import "testing"

// BenchmarkRun runs a job on two nodes over 20,000 samples, three epochs; it reports the time for
// each sample and epoch.
func BenchmarkRun(b *testing.B) {
	s := shape{nodes: 2, samples: 20_000, batch: 16, epochs: 3, class: memory, cached: 5000}
	for b.Loop() {
		if _, err := Simulate(b.Context(), s.job(b)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*s.samples*s.epochs), "ns/sample")
}
