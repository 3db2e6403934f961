package stats

import "testing"

func TestTheSentenceSaysWhereAGroupIs(t *testing.T) {
	for _, c := range []struct {
		group Group
		want  string
	}{
		{
			Group{Name: "s", Members: 4, State: "attached", Behind: 64, HeldUp: 1.25, Detached: 2},
			" It shares prepared batches with 3 other jobs (group s), 64 samples behind the first. " +
				"The others waited 1.2 s for it, and went on without it 2 times.",
		},
		{
			Group{Name: "s", Members: 2, State: "private"},
			" It prepares its batches itself, as it is not where group s is, with 1 other job.",
		},
		{
			Group{Name: "s", Members: 3, State: "gathering"},
			" It waits for more jobs of group s: 2 other jobs came.",
		},
		{
			Group{Name: "s", Members: 1, State: "idle"},
			" It is in group s with 0 other jobs, and takes no batches.",
		},
		{
			Group{Name: "a\nb", Members: 1, State: "gathering"},
			` It waits for more jobs of group "a\nb": 0 other jobs came.`,
		},
	} {
		if got := shared([]RankReport{{}, {Group: &c.group}}); got != c.want {
			t.Errorf("%+v: %q, want %q", c.group, got, c.want)
		}
	}
}
