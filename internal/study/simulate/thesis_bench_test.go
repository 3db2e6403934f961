package simulate

import (
	"context"
	"testing"
)

// BenchmarkThesis reports sample accesses per second of every policy of the original, setting up
// included, on the thesis's scenario 4; LBANN, which cannot run that, on its scenario 2.
func BenchmarkThesis(b *testing.B) {
	all := tables(b)
	for _, row := range all[3].Rows {
		table := &all[3]
		if row.Seconds == nil {
			table = &all[1]
		}
		job := table.job(&row, DrawSizes(tableSeed, table.Samples, table.Mu, table.Sigma, 0), 1)
		b.Run(row.Policy, func(b *testing.B) {
			b.ReportAllocs()
			accesses := 0.0
			for b.Loop() {
				res, err := RunThesis(context.Background(), job, row.Policy)
				if err != nil || !res.Supported {
					b.Fatal(err, res)
				}
				accesses += float64(table.Samples * table.Epochs)
			}
			b.ReportMetric(accesses/b.Elapsed().Seconds(), "accesses/s")
		})
	}
}
