package judge

import (
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// TestMixesAreJudged: epochs of a mix that are in order are right, and others are told from them.
func TestMixesAreJudged(t *testing.T) {
	s := &script.Script{Samples: 9, Mix: 7, Epochs: 4, Shuffle: "none"} // of 3 and 6 samples
	right := Orders(s, nil)
	if got, want := right(0), []int{0, 3, 1, 4, 2, 5, 0}; !slices.Equal(got, want) {
		t.Errorf("epoch 0 is %v, want %v", got, want)
	}
	if wrong := Shuffled(s, right); len(wrong) > 0 {
		t.Error(wrong)
	}
	for what, change := range map[string]func([]int) []int{
		"a sample that comes again too early": func(o []int) []int { o[4] = o[0]; return o },
		"another share":                       func(o []int) []int { o[0], o[2] = 6, 7; return o },
		"a sample less":                       func(o []int) []int { return o[:6] },
	} {
		order := func(e int) []int {
			if e == 0 {
				return change(right(e))
			}
			return right(e)
		}
		if len(Shuffled(s, order)) == 0 {
			t.Errorf("%s is not found", what)
		}
	}
}
