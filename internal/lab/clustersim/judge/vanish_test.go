package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// vanishing returns a script of 6 epochs of 4 samples in 2 steps on 2 nodes, in which sample 0, due
// in the first batch of an epoch, in turn on both ranks, is missing for a second; and its order.
func vanishing(policy string) (*script.Script, Order) {
	s := &script.Script{
		Samples: 4, Largest: 1, Epochs: 6, Batch: 2, Shuffle: "none", Scheme: "strided",
		Tail: "pad", OnError: policy, Prefetch: 1, Launches: []script.Launch{{Nodes: 2, Ranks: 1}},
		Events: []script.Event{{Kind: script.Vanish, For: script.Duration(time.Second)}},
	}
	return s, func(epoch int) []int {
		if epoch%2 == 1 {
			return []int{1, 0, 3, 2}
		}
		return []int{0, 1, 2, 3}
	}
}

// played returns a history of such a script: batches are taken every so often, and their samples
// are the due ones without sample 0, or, if it is substituted, with sample 1 instead.
func played(s *script.Script, order Order, every time.Duration) (h []Event) {
	h = []Event{{Kind: Began}, {Kind: Began, Rank: 1}}
	for p := range 2 * s.Epochs {
		of := newEpoch(s, 2, order(p/2))
		for rank := range 2 {
			ids := slices.Clone(of.share(rank, p%2))
			if ids[0] == 0 && s.OnError == "skip" {
				ids = []int{}
			} else if ids[0] == 0 {
				ids[0] = 1
			}
			h = append(h, Event{
				Kind: Got, Rank: rank, Epoch: p / 2, Step: p % 2, IDs: ids,
				At: time.Duration(p+1) * every,
			})
		}
	}
	for rank := range 2 {
		h = append(h, Event{Kind: Ended, Rank: rank, Epoch: s.Epochs, At: h[len(h)-1].At})
	}
	return h
}

// at returns the event of a rank's batch, counted over all epochs.
func at(h []Event, rank, batch int) *Event {
	return &h[slices.IndexFunc(h, func(e Event) bool {
		return e.Kind == Got && e.Rank == rank && 2*e.Epoch+e.Step == batch
	})]
}

// TestDecisionsHold has ranks get a sample that the job has left out of the first batch of node 0:
// until nodes have heard of that they may, in batches that are prepared by then, and later not.
func TestDecisionsHold(t *testing.T) {
	cut := script.Event{Kind: script.Cut, For: script.Duration(time.Second)}
	with := func(e script.Event) func(*script.Script) {
		return func(s *script.Script) { s.Events = append(s.Events, e) }
	}
	for name, c := range map[string]struct {
		script      func(s *script.Script)
		every       time.Duration
		rank, batch int // with the sample, as are those of the rank before
		found       bool
	}{
		"on the other node, in time to hear":      {nil, time.Second, 1, 2, false},
		"on the other node, later":                {nil, time.Second, 1, 6, true},
		"on the same node":                        {nil, time.Second, 0, 4, true},
		"soon on the other node":                  {nil, time.Second / 5, 1, 10, false},
		"soon on the same node":                   {nil, time.Second / 5, 0, 4, true},
		"while batches are ahead":                 {prefetch(4), time.Second, 1, 6, false},
		"while batches are ahead on the node":     {prefetch(4), time.Second, 0, 4, false},
		"after batches that are ahead":            {prefetch(4), time.Second, 1, 10, true},
		"while it is not known how many":          {prefetch(0), time.Second, 1, 10, false},
		"while a node is cut off":                 {with(cut), time.Second, 1, 6, false},
		"on the same node while it is cut off":    {with(cut), time.Second, 0, 4, true},
		"after a node is back":                    {with(cut), 30 * time.Second, 1, 6, true},
		"while a node is slow to hear":            {with(delay(2000)), time.Second, 1, 6, false},
		"while a node is a little slower to hear": {with(delay(50)), time.Second, 1, 6, true},
		"while a node is dead": {
			with(script.Event{Kind: script.Die, Node: 1}), 30 * time.Second, 1, 6, false,
		},
	} {
		for _, policy := range []string{"skip", "substitute"} {
			s, order := vanishing(policy)
			if c.script != nil {
				c.script(s)
			}
			h := played(s, order, c.every)
			for batch := c.batch; batch > 0; batch -= 4 { // otherwise it is known on the node
				at(h, c.rank, batch).IDs = []int{0}
			}
			got := strings.Join(Judge(s, order, h, nil), "\n")
			if want := "sample 0, although node 0 has left it out"; c.found &&
				!strings.Contains(got, want) || !c.found && got != "" {
				t.Errorf("%s, %s: the verdict is %q", name, policy, got)
			}
		}
	}
}

func prefetch(batches int) func(*script.Script) {
	return func(s *script.Script) { s.Prefetch = batches }
}

func delay(milliseconds int) script.Event {
	return script.Event{
		Kind: script.Delay, Amount: milliseconds, For: script.Duration(time.Hour),
	}
}

// TestDecisionsHoldForNewStreams has a rank begin again, and get a sample that is left out in the
// first batch: it is prepared anew.
func TestDecisionsHoldForNewStreams(t *testing.T) {
	for batch, want := range map[int]string{2: "", 6: "sample 0, although"} {
		s, order := vanishing("skip")
		s.Prefetch = 8
		h := played(s, order, time.Second)
		e := at(h, 1, batch)
		e.IDs = []int{0}
		i := slices.IndexFunc(h, func(o Event) bool { return o.At == e.At && o.Rank == 1 })
		h = slices.Insert(h, i, Event{
			Kind: Began, Rank: 1, Epoch: e.Epoch, Step: e.Step, At: e.At - time.Second/2,
		})
		if got := strings.Join(Judge(s, order, h, nil), "\n"); want == "" && got != "" ||
			!strings.Contains(got, want) {
			t.Errorf("batch %d: the verdict is %q", batch, got)
		}
	}
}

// TestDecisionsEndWithTheLaunch has ranks get a sample in a launch after that in which it was left
// out.
func TestDecisionsEndWithTheLaunch(t *testing.T) {
	s, order := vanishing("skip")
	s.Launches = append(s.Launches, s.Launches[0])
	s.Launches[0].Kill = 2
	h := played(s, order, time.Second)
	for i := range h {
		if e := &h[i]; e.Epoch > 0 {
			e.Launch = 1
			if e.Kind == Got && len(e.IDs) == 0 {
				e.IDs = []int{0}
			}
		}
	}
	h = append(h, Event{Kind: Left}, Event{Kind: Left, Rank: 1})
	first := slices.IndexFunc(h, func(e Event) bool { return e.Launch == 1 })
	for rank := range 2 {
		h = slices.Insert(h, first, Event{Kind: Began, Launch: 1, Rank: rank, Epoch: 1})
	}
	if got := Judge(s, order, h, nil); len(got) > 0 {
		t.Errorf("the verdict is %q", got)
	}
	at(h, 1, 2).IDs = []int{}
	if got := strings.Join(Judge(s, order, h, nil), "\n"); !strings.Contains(got, "wrong samples") {
		t.Errorf("left out before it is missing: the verdict is %q", got)
	}
}

// TestWhatMayBeLeftOut has batches with and without samples that are missing, for good or for a
// while, and lists which of the latter they show to be left out.
func TestWhatMayBeLeftOut(t *testing.T) {
	for _, c := range []struct {
		policy                    string
		missing, gone, share, ids []int
		lacks                     []int
		wrong                     bool
	}{
		{"skip", nil, nil, []int{0, 1}, []int{0, 1}, nil, false},
		{"skip", nil, nil, []int{0, 1}, []int{0}, nil, true},
		{"skip", nil, []int{1}, []int{0, 1}, []int{0}, []int{1}, false},
		{"skip", nil, []int{1}, []int{0, 1}, []int{0, 1}, nil, false},
		{"skip", nil, []int{1}, []int{0, 1}, []int{1}, nil, true},
		{"skip", nil, []int{1}, []int{0, 1}, []int{0, 2}, nil, true},
		{"skip", nil, []int{1}, []int{1, 0, 1}, []int{0, 1}, []int{1}, false},
		{"skip", nil, []int{1}, []int{1, 0, 1}, []int{0}, []int{1, 1}, false},
		{"skip", []int{0}, []int{1}, []int{0, 1, 2}, []int{2}, []int{1}, false},
		{"skip", []int{0}, []int{1}, []int{0, 1, 2}, []int{0, 2}, nil, true},
		{"substitute", nil, []int{1}, []int{0, 1}, []int{0, 2}, []int{1}, false},
		{"substitute", nil, []int{1}, []int{0, 1}, []int{0, 1}, nil, false},
		{"substitute", nil, []int{1}, []int{0, 1}, []int{0}, nil, true},
		{"substitute", nil, []int{1}, []int{0, 1}, []int{0, 3}, nil, true},
		{"substitute", nil, []int{1, 2}, []int{0, 1}, []int{0, 2}, []int{1}, false},
		{"substitute", nil, []int{1, 2}, []int{0, 1}, []int{0, 3}, []int{1, 2}, false},
		{"substitute", nil, []int{1, 3}, []int{0, 1}, []int{0, 3}, nil, true},
		{"substitute", []int{2}, []int{1}, []int{0, 1}, []int{0, 3}, []int{1}, false},
		{"substitute", []int{2}, []int{1}, []int{0, 1}, []int{0, 2}, nil, true},
		{"substitute", []int{1}, []int{2}, []int{0, 1}, []int{0, 3}, []int{2}, false},
		{"substitute", nil, []int{3}, []int{3, 1}, []int{0, 1}, []int{3}, false},
	} {
		s := &script.Script{
			Samples: 4, Batch: 4, Tail: "keep", OnError: c.policy, Missing: c.missing,
		}
		lacks, ok := newEpoch(s, 1, upTo(4)).without(c.share, c.ids, c.gone)
		if ok == c.wrong || ok && !slices.Equal(lacks, c.lacks) {
			t.Errorf("%+v: %v, %v", c, lacks, ok)
		}
	}
}

// TestAuditsCountWhatIsLeftOut has the audit of an epoch of which node 0 lacks a sample.
func TestAuditsCountWhatIsLeftOut(t *testing.T) {
	for samples, want := range map[int]string{3: "", 4: "other numbers than the 3 samples"} {
		s, order := vanishing("skip")
		h := append(played(s, order, time.Second), Event{
			Kind: Audited, Batches: 2, Samples: samples, At: time.Hour,
		})
		if got := strings.Join(Judge(s, order, h, nil), "\n"); want == "" && got != "" ||
			!strings.Contains(got, want) {
			t.Errorf("%d samples: the verdict is %q", samples, got)
		}
	}
}
