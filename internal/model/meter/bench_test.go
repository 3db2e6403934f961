package meter

import (
	"testing"
	"time"
)

// BenchmarkMeter measures what it costs to measure a read, the estimate included.
func BenchmarkMeter(b *testing.B) {
	var m Meter
	now := start
	for b.Loop() {
		r := m.Begin(now, 110_000)
		now = now.Add(time.Millisecond)
		m.End(now, r, nil)
	}
}
