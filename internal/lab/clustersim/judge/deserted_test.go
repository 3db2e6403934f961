package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// deserting returns a history of three epochs of one batch, of which rank 1 has had the first one
// when it ends, after 2 s; rank 0 has the others.
func deserting(s *script.Script) []Event {
	s.Differs = script.TheEnd
	s.Epochs = 3
	s.Batch = 4
	h := []Event{{Kind: Opened}, {Kind: Opened, Rank: 1}, {Kind: Began}, {Kind: Began, Rank: 1}}
	for epoch := range 3 {
		at := time.Duration(epoch+1) * time.Second
		h = append(h, Event{Kind: Got, Epoch: epoch, At: at, IDs: []int{0, 2}})
		if epoch == 0 {
			h = append(h, Event{Kind: Got, Rank: 1, At: at, IDs: []int{1, 3}},
				Event{Kind: Left, Rank: 1, Epoch: 1, At: 2 * time.Second})
		}
	}
	return append(h, Event{Kind: Ended, Epoch: 3, At: 4 * time.Second})
}

// TestRanksGoOnWithoutOne plants audits and errors that no rank must get where one rank has ended.
func TestRanksGoOnWithoutOne(t *testing.T) {
	audit := Event{Kind: Audited, Epoch: 1, Batches: 1, Samples: 2, At: time.Minute}
	for text, want := range map[string]string{
		"": "does not name the rank", "{Missing:[0 1] }": "does not name the rank",
		"{Samples:2 Missing:[1] Why:}": "",
	} {
		got := verdict(func(s *script.Script, _ []Event) []Event {
			audit.Text = text
			return append(deserting(s), audit)
		})
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("the audit says %q: the verdict is %q, want %q", text, got, want)
		}
	}
	got := verdict(func(s *script.Script, _ []Event) []Event {
		h := deserting(s)
		at := len(h) - 1
		h[at].Kind, h[at].Text = Failed, "rank 1 has left"
		return h
	})
	if !strings.Contains(got, "an error although another rank has only ended") {
		t.Errorf("rank 0 gets an error: the verdict is %q", got)
	}
}

// TestRanksWaitInVainForAnOrder has rank 0 fail, or not, when rank 1 has ended, or rests, without
// its part of the second epoch.
func TestRanksWaitInVainForAnOrder(t *testing.T) {
	const left, apart = "the order of epoch 1 cannot be determined: rank 1 has left the job",
		"the nodes cannot exchange the order that the ranks' samplers draw: rank 0: others wait"
	for _, c := range []struct {
		differs  script.Setting
		text     string
		at, late time.Duration // when rank 0 fails, and, if it does, rank 1
		want     string
	}{
		{script.TheEnd, left, 3 * time.Second, 0, ""},
		{script.TheEnd, left, 30 * time.Second, 0, "the rank waits for the part"},
		{script.TheEnd, "it failed", 3 * time.Second, 0, "does not say that no order is known"},
		{script.TheEnd, "", 0, 0, "not all ranks get an error"},
		{script.ThePause, apart, 31 * time.Second, 42 * time.Second, ""},
		{script.ThePause, apart, 31 * time.Second, 72 * time.Second, "that others have given up"},
		{script.ThePause, apart, 31 * time.Second, 0, "do not all get an error"},
		{script.ThePause, left, 31 * time.Second, 42 * time.Second, "does not say why"},
	} {
		s, _ := twoRanks()
		h := deserting(s)
		s.Differs, s.Shuffle = c.differs, "given"
		h = slices.DeleteFunc(h, func(e Event) bool {
			return e.Epoch > 0 && (e.Kind != Left || c.differs != script.TheEnd)
		})
		for rank, at := range []time.Duration{c.at, c.late} {
			if at > 0 {
				h = append(h, Event{Kind: Failed, Rank: rank, Epoch: 1, At: at, Text: c.text})
			}
		}
		order := func(int) []int { return []int{0, 1, 2, 3} }
		got := strings.Join(Judge(s, order, h, nil), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v: the verdict is %q", c, got)
		}
	}
}

// TestBatchesOfTheSameMomentAreAudited has a batch be noted after the audit that has it.
func TestBatchesOfTheSameMomentAreAudited(t *testing.T) {
	for late, want := range map[time.Duration]string{0: "", time.Second: "does not wait for rank 1"} {
		got := verdict(func(_ *script.Script, h []Event) []Event {
			h[8].At += late
			return slices.Insert(h, 8, Event{
				Kind: Audited, Batches: 2, Samples: 4, At: 2 * time.Second,
			})
		})
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("a batch that is noted %v later: the verdict is %q", late, got)
		}
	}
}
