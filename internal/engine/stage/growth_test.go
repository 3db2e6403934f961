package stage

import "testing"

// TestGrowth follows a buffer of a growing number of batches: it grows once per turnover.
func TestGrowth(t *testing.T) {
	var g growth
	if g.due {
		t.Error("due before a turnover")
	}
	taken := 0
	for _, batches := range []int{4, 6, 9, 13} {
		g.full(taken, taken+batches)
		g.full(taken+1, taken+2*batches) // the same turnover
		if g.took(taken + batches - 1); g.due {
			t.Errorf("of %d batches: due before all are taken", batches)
		}
		taken += batches
		if g.took(taken); !g.due {
			t.Errorf("of %d batches: not due although all are taken", batches)
		}
		if g.grew(); g.due {
			t.Errorf("of %d batches: due twice", batches)
		}
	}
}

// TestGrowthOfAnotherRun checks that batches of another Run count anew.
func TestGrowthOfAnotherRun(t *testing.T) {
	var g growth
	g.full(8, 16)
	g.restart()
	if g.took(16); g.due {
		t.Error("a turnover of the Run before ended in the next one")
	}
	g.full(0, 2)
	if g.took(2); !g.due {
		t.Error("not due after a turnover")
	}
	g.restart()
	if !g.due {
		t.Error("not due in the next Run, although a turnover has ended")
	}
}

// TestABufferThatIsNotFullHasNoTurnover checks that batches which are all taken begin none.
func TestABufferThatIsNotFullHasNoTurnover(t *testing.T) {
	var g growth
	g.full(3, 3)
	if g.took(4); g.due {
		t.Error("due without a turnover")
	}
}
