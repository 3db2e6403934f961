package report

import (
	"strings"
	"testing"
)

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

// TestMembersAreNotComparedWithTheBound: what a group reads counts for its own job, so that a
// member is not said to have read less than is possible.
func TestMembersAreNotComparedWithTheBound(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: " Nothing was read from the source for this job alone; what its group reads is in the " +
			"report of the group's own job (hdmlp stats).",
		1 << 20: " 1.0 MiB were read from the source for this job alone; what its group reads is in " +
			"the report of the group's own job (hdmlp stats).",
	} {
		e := EpochTally{Tally: Tally{Batches: 1, Seconds: 1, Source: Amount{Bytes: bytes}}}
		r := Report{
			Settings: Settings{Bytes: 100 << 20},
			Ranks: []RankReport{{
				Epochs: []EpochTally{e}, Group: &Group{Name: "s", Members: 2, State: "attached"},
			}},
		}
		r.Complete(nil, 0)
		c := r.Summary().Over([]NodeReport{r.node()})
		for _, got := range []string{r.Sentence, c.Sentence} {
			if !strings.Contains(got, want) || strings.Contains(got, "minimum") {
				t.Errorf("%q", got)
			}
		}
	}
}
