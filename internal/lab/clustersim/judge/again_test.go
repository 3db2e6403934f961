package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// verdict returns what is wrong with twoRanks after a change.
func verdict(plant func(s *script.Script, h []Event) []Event) string {
	s, h := twoRanks()
	h = plant(s, h)
	return strings.Join(Judge(s, Orders(s, nil), h, nil), "\n")
}

// TestErrorsAfterAFaultHaveNoCause has a stream begin, and fail, some time after the source did.
func TestErrorsAfterAFaultHaveNoCause(t *testing.T) {
	for began, want := range map[time.Duration]string{
		5 * time.Second: "", time.Minute: "an error without a cause",
	} {
		got := verdict(func(s *script.Script, h []Event) []Event {
			s.Events = []script.Event{{Kind: script.SourceFail, For: script.Duration(time.Second)}}
			for i := range h {
				h[i].At += began
			}
			h[3].Kind, h[8].Kind = Failed, Failed
			return slices.Delete(slices.Delete(h, 9, 10), 4, 5)
		})
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("a stream that begins after %v: the verdict is %q, want %q", began, got, want)
		}
	}
}

// TestBatchesOfARanksLastProcessCount has another process take the place of rank 0's after a batch.
func TestBatchesOfARanksLastProcessCount(t *testing.T) {
	for said, want := range map[int]string{1: "", 2: "other numbers than the 1 batches"} {
		got := verdict(func(_ *script.Script, h []Event) []Event {
			h = slices.Insert(h, 3, Event{Kind: Opened}, Event{Kind: Began, Step: 1})
			return append(h, Event{Kind: Stated, Batches: said, Samples: said})
		})
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%d batches are stated: the verdict is %q, want %q", said, got, want)
		}
	}
}

// TestReadsAreOfAnEpoch has a rank read from the source, and its node in no epoch.
func TestReadsAreOfAnEpoch(t *testing.T) {
	for within, want := range map[int]string{2: "", 0: "the node none in any epoch"} {
		got := verdict(accounts(func(a *Account) {
			a.Passes[0].Reads = map[string]Amount{"source": {Samples: 2, Bytes: 2}}
			a.Within = map[string]Amount{"source": {Samples: within}}
		}))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%d reads in epochs: the verdict is %q, want %q", within, got, want)
		}
	}
}

// TestAuditsKnowOfNodesThatAreThere has an audit after an error lack rank 1, which had all batches.
func TestAuditsKnowOfNodesThatAreThere(t *testing.T) {
	for why, wrong := range map[string]bool{
		"node 1 is gone": false, "node 0 is gone": true, "": true,
	} {
		got := verdict(func(_ *script.Script, h []Event) []Event {
			return append(h, Event{Kind: Reviewed, IDs: []int{1}, Why: why})
		})
		if strings.Contains(got, "the ranks [] have not come to the end") != wrong {
			t.Errorf("the audit says %q: the verdict is %q", why, got)
		}
	}
}

// TestJobsHaveAPlanAtTheEnd has a job of two seconds, or of no time, end without one.
func TestJobsHaveAPlanAtTheEnd(t *testing.T) {
	for at, wrong := range map[time.Duration]bool{0: false, 2 * time.Second: true} {
		got := verdict(func(s *script.Script, h []Event) []Event {
			h = accounts(func(a *Account) { a.Planning = true })(s, h)
			h[len(h)-1].At = at
			return h
		})
		if strings.Contains(got, "the job has no plan when it ends") != wrong {
			t.Errorf("a job that lasts %v: the verdict is %q", at, got)
		}
	}
}
