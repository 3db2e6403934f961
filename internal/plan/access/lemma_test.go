package access

import (
	"testing"

	"pgregory.net/rapid"
)

// ceiling returns the quotient of two positive numbers, rounded up.
func ceiling(a, b int) int { return (a + b - 1) / b }

// TestLemmas31And32 checks the thesis's lemmas on drawn streams: a node that reads a sample often
// leaves some other node few of its E reads, and one that reads it seldom leaves another one many.
//
// With n reads of a node, (1+delta) E/N = n gives delta = nN/E - 1, and the bound of lemma 3.1,
// (N-1-delta)/(N-1) E/N, is (E-n)/(N-1), rounded up; that of lemma 3.2 is the same, rounded down.
// So they say of E-n reads that N-1 nodes share that one has at most, and one at least, the mean.
func TestLemmas31And32(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(2, 9).Draw(t, "nodes")
		epochs := rapid.IntRange(1, 40).Draw(t, "epochs")
		spec := Spec{
			Samples: rapid.IntRange(1, 60).Draw(t, "samples"), Seed: rapid.Uint64().Draw(t, "seed"),
			WorldSize: nodes, GlobalBatch: nodes * rapid.IntRange(1, 5).Draw(t, "batch"),
			Shuffle: rapid.SampledFrom([]Shuffle{Torch, Feistel}).Draw(t, "shuffle"), Tail: Keep,
		}
		s, err := New(spec)
		if err != nil {
			t.Fatal(err)
		}
		reads := make([][]uint32, nodes)
		for n := range reads {
			reads[n] = s.Frequencies([]int{n}, 0, epochs)
		}
		for k := range spec.Samples {
			sum := 0
			for n := range reads {
				sum += int(reads[n][k])
			}
			if sum != epochs {
				t.Fatalf("sample %d is read %d times in %d epochs", k, sum, epochs)
			}
			for n := range reads {
				others := epochs - int(reads[n][k])
				least, most := epochs, 0
				for m := range reads {
					if m != n {
						least, most = min(least, int(reads[m][k])), max(most, int(reads[m][k]))
					}
				}
				if least > ceiling(others, nodes-1) {
					t.Fatalf("lemma 3.1: sample %d: node %d reads it %d times of %d, and each other at "+
						"least %d times", k, n, reads[n][k], epochs, least)
				}
				if most < others/(nodes-1) {
					t.Fatalf("lemma 3.2: sample %d: node %d reads it %d times of %d, and each other at "+
						"most %d times", k, n, reads[n][k], epochs, most)
				}
			}
		}
	})
}
