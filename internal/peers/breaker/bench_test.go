package breaker

import "testing"

// BenchmarkOwner measures what it costs to predict when a sample would arrive from its owner.
func BenchmarkOwner(b *testing.B) {
	r := newRig(2)
	r.set.SetOwner(func(int) int { return 1 })
	r.set.SetAlive(1, true)
	if got := r.read(0); got != "peer" {
		b.Fatalf("the sample came from the %s", got)
	}
	for b.Loop() {
		if _, ok := r.set.Owner(0, 110_000, 1); !ok {
			b.Fatal("the owner is not worth asking")
		}
	}
}
