package access

import (
	"strings"
	"testing"
)

func TestBadSpecs(t *testing.T) {
	for want, spec := range map[string]Spec{
		"Samples is 0; allowed: 1 to 2147483647": {
			WorldSize:   1,
			GlobalBatch: 1,
		},
		"Samples is 2147483648": {
			Samples:     1 << 31,
			WorldSize:   1,
			GlobalBatch: 1,
		},
		"WorldSize is 0; allowed: 1 to 1048576": {
			Samples:     1,
			GlobalBatch: 1,
		},
		"GlobalBatch is -3": {
			Samples:     1,
			WorldSize:   1,
			GlobalBatch: -3,
		},
		"Epochs is -1; allowed: 0 to": {
			Samples:     1,
			WorldSize:   1,
			GlobalBatch: 1,
			Epochs:      -1,
		},
		`Shuffle is "random"; allowed: torch, feistel, none`: {
			Samples:     1,
			WorldSize:   1,
			GlobalBatch: 1,
			Shuffle:     "random",
		},
		`Scheme is "even"; allowed: strided, uniform, whole, imbalanced`: {
			Samples:     1,
			WorldSize:   1,
			GlobalBatch: 1,
			Scheme:      "even",
		},
		`Tail is "cut"; allowed: pad, drop, keep`: {
			Samples:     1,
			WorldSize:   1,
			GlobalBatch: 1,
			Tail:        "cut",
		},
		"Samples is 3, fewer than WorldSize, 4": {
			Samples:     3,
			WorldSize:   4,
			GlobalBatch: 1,
			Tail:        Drop,
		},
		"GlobalBatch is 9, more than the 8 positions": {
			Samples:     7,
			WorldSize:   4,
			GlobalBatch: 9,
			DropLast:    true,
		},
		"the number of samples in Subset is 0; allowed: 1": {
			Samples:     7,
			WorldSize:   1,
			GlobalBatch: 9,
			Subset:      []int32{},
		},
		"the number of samples in Subset is 1, fewer than WorldSize, 2": {
			Samples:     7,
			WorldSize:   2,
			GlobalBatch: 2,
			Subset:      []int32{3},
			Tail:        Drop,
		},
		"Subset has sample 7 at index 1; allowed: 0 to 6": {
			Samples:     7,
			WorldSize:   1,
			GlobalBatch: 9,
			Subset:      []int32{0, 7},
		},
		"Subset has sample -1 at index 0; allowed: 0 to 6": {
			Samples:     7,
			WorldSize:   1,
			GlobalBatch: 9,
			Subset:      []int32{-1},
		},
		`Shuffle is "given"; allowed: torch, feistel, none`: {
			Samples:     7,
			WorldSize:   1,
			GlobalBatch: 9,
			Shuffle:     Given,
		},
	} {
		if _, err := New(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): %v; want an error that says %q", spec, err, want)
		}
	}
}

// TestBatchDoesNotAllocate: the engine asks for millions of batches.
func TestBatchDoesNotAllocate(t *testing.T) {
	for name, e := range map[string]*Epoch{
		"torch": mustNew(t,
			Spec{Samples: 1000, WorldSize: 4, GlobalBatch: 128, Shuffle: Torch}).Epoch(0),
		"feistel": mustNew(t,
			Spec{Samples: 1000, WorldSize: 4, GlobalBatch: 128, Shuffle: Feistel}).Epoch(0),
		"sequential": mustNew(t,
			Spec{Samples: 1000, WorldSize: 4, GlobalBatch: 128, Shuffle: Sequential}).Epoch(0),
		"subset": mustNew(t,
			Spec{
				Samples:     1000,
				WorldSize:   4,
				GlobalBatch: 128,
				Subset:      make([]int32, 1000),
			}).Epoch(0),
	} {
		dst := make([]int32, 0, 128)
		if n := testing.AllocsPerRun(100, func() {
			dst = e.Batch(dst[:0], 3, 7)
			dst = e.Global(dst[:0], 7)
			e.At(2, 100)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestMix pins the hash down: others, in Python too, compute the same sums.
func TestMix(t *testing.T) {
	// What SplitMix64 draws first from state 0 is in every reference.
	if got, want := Mix(0, 0), uint64(0xe220a8397b1dcdaf); got != want {
		t.Errorf("Mix(0, 0) = %#x, want %#x", got, want)
	}
	if got, want := Mix(3, 5), uint64(0x89dfed86c881e2d6); got != want {
		t.Errorf("Mix(3, 5) = %#x, want %#x", got, want)
	}
}
