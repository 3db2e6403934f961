package report

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ran returns an epoch of a rank: 4 batches in 10 s, a quarter of it in next().
func ran(epoch int, stall map[string]float64) EpochTally {
	return EpochTally{Epoch: epoch, Tally: Tally{
		Batches: 4, Samples: 8, Seconds: 10, Stall: stall,
		Reads: map[string]Amount{"memory": {8, 80}}, Source: Amount{2, 20},
	}}
}

// report returns the report of one of two nodes of a job over 400 bytes, with two of its four
// ranks.
func report() *Report {
	stall := func(source, peer float64) map[string]float64 {
		return map[string]float64{"source": source, "peer": peer}
	}
	return &Report{
		Settings: Settings{Job: "j", Node: 1, Nodes: 2, WorldSize: 4, Bytes: 400, Steps: 4, Planned: 2},
		Ranks: []RankReport{
			{
				Rank:    2,
				Open:    true,
				Epochs:  []EpochTally{ran(0, stall(2, 1)), ran(1, stall(0.5, 0))},
				Staging: Staging{Size: 10, Used: 5, Extra: 1},
			},
			{
				Rank:    3,
				Open:    true,
				Epochs:  []EpochTally{ran(0, stall(2, 0)), ran(1, stall(0.5, 0))},
				Staging: Staging{Size: 10, Used: 2},
			},
		},
		Peers:     []Peer{{Node: 0, Alive: true, Bypassed: true, Reason: "it lies"}},
		Resources: Resources{Classes: []Class{{Name: "memory", Capacity: 100, Used: 90}}},
	}
}

// TestTimeIsSummedOverEpochsButNotOverRanks: the other parts of ranks in an epoch are summed.
func TestTimeIsSummedOverEpochsButNotOverRanks(t *testing.T) {
	tally := func(n int64, seconds float64, stall map[string]float64,
		reads map[string]Amount,
	) EpochTally {
		return EpochTally{
			Tally: Tally{
				Batches: n,
				Samples: n + 1,
				Seconds: seconds,
				Stall:   stall,
				Reads:   reads,
				Source:  Amount{n, 5 * n},
			},
		}
	}
	want := Tally{
		Batches: 3, Samples: 5, Seconds: 3, Stall: map[string]float64{"source": 3, "consumer": 1},
		Reads: map[string]Amount{"memory": {2, 20}, "source": {1, 1}}, Source: Amount{3, 15},
	}
	a := tally(1, 3, map[string]float64{"source": 1}, map[string]Amount{"memory": {1, 10}})
	b := tally(2, 2, map[string]float64{"source": 2, "consumer": 1},
		map[string]Amount{"memory": {1, 10}, "source": {1, 1}})
	var epoch EpochTally
	epoch.Add(&a)
	epoch.Add(&b)
	if diff := cmp.Diff(want, epoch.Tally); diff != "" {
		t.Error(diff)
	}
	if s := epoch.StallSeconds(); s != 4 {
		t.Errorf("%v s of stall", s)
	}
	if diff := cmp.Diff(tally(1, 3, map[string]float64{"source": 1},
		map[string]Amount{"memory": {1, 10}}), a); diff != "" {
		t.Errorf("Add changed its argument: %s", diff)
	}
	var all Tally
	all.Add(&a.Tally)
	all.Add(&b.Tally)
	want.Seconds = 5
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
}

// TestCompleteSumsRanksAndEpochs: the sums include what was read besides; the bound is the node's
// share of all nodes'.
func TestCompleteSumsRanksAndEpochs(t *testing.T) {
	r := report()
	r.Complete([]EpochTally{{Epoch: 1, Tally: Tally{Source: Amount{4, 40}}}}, 200)
	if r.Stall != 6 || r.Utilisation != 0.85 || r.Source != (Amount{12, 120}) {
		t.Errorf("stall %v, utilisation %v, source %+v", r.Stall, r.Utilisation, r.Source)
	}
	if r.Bound != (400+200)/2 || r.BoundShare != 0.4 {
		t.Errorf("bound %d, share %v", r.Bound, r.BoundShare)
	}
	if len(r.Epochs) != 2 || r.Epochs[0].Epoch != 0 || r.Epochs[0].Batches != 8 ||
		r.Epochs[0].Seconds != 10 || r.Epochs[0].StallSeconds != 5 ||
		r.Epochs[1].Source.Bytes != 80 {
		t.Errorf("epochs %+v", r.Epochs)
	}
	const want = "In 2 epochs each of 2 ranks waited 3.000 s for data, 2.500 s of it in the " +
		"first epoch and 0.500 s in each later one (utilisation there 95.0 %)" +
		"; 83 % of the wait was for the source. 120 bytes were read from the source, " +
		"0.40 times the minimum for these caches if all ranks go through the epochs together " +
		"(300 bytes)."
	if r.Sentence != want {
		t.Errorf("got  %s\nwant %s", r.Sentence, want)
	}
}

// TestReportBeforeTheFirstBatchHasNoNumbers: there is nothing to report, and nothing to divide by.
func TestReportBeforeTheFirstBatchHasNoNumbers(t *testing.T) {
	r := &Report{Settings: Settings{Nodes: 1, Bytes: 400}}
	r.Complete(nil, 0)
	if r.Sentence != "No batch has been read yet." || r.Utilisation != 0 || r.Bound != 400 ||
		r.BoundShare != 0 {
		t.Errorf("%+v", r)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// TestSentenceNamesTheMainCauseAndProblems: the main cause of stalls, if there is one, and
// unreadable samples.
func TestSentenceNamesTheMainCauseAndProblems(t *testing.T) {
	for cause, want := range map[string]string{
		"peer": "; 100 % of the wait was for other nodes.",
		"consumer": "; 100 % of the wait was for space in the staging buffer, because " +
			"the process keeps its batches.",
		"writeback": "; 100 % of the wait was for samples that wait in memory to be written to a " +
			"storage class.",
		"handover": "; 100 % of the wait was for the transfer of finished batches to " +
			"the process.",
		"python": "; 100 % of the wait was for Python code that makes batches " +
			"(transforms, collate_fn): increase num_workers, or use transforms that the " +
			"daemon can run.",
		"transform ColorJitter": "; 100 % of the wait was for the transform ColorJitter.",
		"file":                  "; 100 % of the wait was for storage class file.",
	} {
		r := &Report{
			Settings: Settings{Nodes: 1},
			Ranks:    []RankReport{{Epochs: []EpochTally{ran(0, map[string]float64{cause: 1})}}},
		}
		r.Planning, r.Faults = true, make([]Fault, 1)
		r.Complete(nil, 0)
		if !strings.Contains(r.Sentence, want) ||
			!strings.HasSuffix(r.Sentence,
				" The cache plan is still being made. 1 sample could not be read or "+
					"transformed.") {
			t.Errorf("%s: %s", cause, r.Sentence)
		}
	}
}

// TestNoStallHasNoCause: without stalls no cause is named.
func TestNoStallHasNoCause(t *testing.T) {
	for _, stall := range []map[string]float64{nil, {"source": 0.001}} {
		if text := blame(stall); text != "" {
			t.Errorf("%v: %s", stall, text)
		}
	}
}

// TestSummaryHasTheFirstFaultsAndBypassedNodes: all faults are counted and the first listed; of the
// other nodes, those that are alive but bypassed are listed.
func TestSummaryHasTheFirstFaultsAndBypassedNodes(t *testing.T) {
	r := report()
	r.Faults = make([]Fault, maxFaults+5)
	r.Source = Amount{1, 7}
	r.Bound = 5
	c := r.Summary()
	if len(c.Nodes) != 1 || c.Node != 1 || c.Unreadable != maxFaults+5 ||
		c.Total.Source.Bytes != 7 || c.Bound != 5 || c.BoundShare != 1.4 {
		t.Errorf("%+v", c)
	}
	n := c.Nodes[0]
	if n.Node != 1 || !n.Responding || len(n.Faults) != maxFaults ||
		n.Staging != (Staging{20, 7, 1}) || len(n.Bypassed) != 1 ||
		n.Bypassed[0].Reason != "it lies" {
		t.Errorf("%+v", n)
	}
	if len(n.Ranks) != 2 || n.Ranks[0].Batches != 8 || n.Ranks[0].StallSeconds() != 3.5 ||
		n.Ranks[1].Utilisation() != 0.875 || c.Total.Seconds != 40 {
		t.Errorf("%+v", n.Ranks)
	}
}

// TestOverCountsSilentNodesWithTheirLastNumbers: nodes that never answered have a share of the
// bound, and nodes that do not answer are named.
func TestOverCountsSilentNodesWithTheirLastNumbers(t *testing.T) {
	mine := report()
	mine.Complete(nil, 200)
	c := mine.Summary()
	heard := c.Nodes[0]
	heard.Node = 0
	heard.Responding = false
	heard.Age = 12
	heard.Why = "it is gone"
	silent := NodeReport{
		Node:  2,
		Age:   -1,
		Why:   "timed out after 2s",
		Ranks: []RankTally{{Rank: 4}},
	}
	assembling := NodeReport{
		Node:       3,
		Responding: true,
		Assembling: true,
		Sentence:   "The job is being put together.",
	}
	here := c.Nodes[0]
	here.Planning = true
	all := c.Over([]NodeReport{heard, here, silent, assembling})
	if all.Total.Batches != 32 || all.Staging != (Staging{40, 14, 2}) ||
		!slices.Equal(all.Classes, []Class{{Name: "memory", Capacity: 200, Used: 180}}) {
		t.Errorf("%+v", all)
	}
	if all.Bound != 4*300 || all.Total.Source.Bytes != 160 || len(all.Nodes) != 4 {
		t.Errorf("bound %d of %d nodes, %d bytes", all.Bound, len(all.Nodes),
			all.Total.Source.Bytes)
	}
	if c.Total.Batches != 16 || len(c.Nodes) != 1 ||
		!maps.Equal(c.Total.Stall, map[string]float64{"source": 5, "peer": 1}) {
		t.Errorf("the report of one node has become %+v", c)
	}
	for _, want := range []string{
		"5 ranks on 4 nodes took 32 batches and waited 2.400 s each for data; 83 % of the wait " +
			"was for the source. 160 bytes were read from the source, 0.13 times",
		" The cache plan is still being made on node 1. Node 3: The job is being put " +
			"together. Node 0 does not answer: it is gone. Node 2 does not answer: timed out " +
			"after 2s.",
	} {
		if !strings.Contains(all.Sentence, want) {
			t.Errorf("%q lacks %q", all.Sentence, want)
		}
	}
}

// TestBoundCountsWhatCachesLacked checks that the bound is higher for epochs that began while
// memory was short, by what the caches of all nodes lacked then, and that the nodes' shares add up.
func TestBoundCountsWhatCachesLacked(t *testing.T) {
	r := report()
	r.Lacked = map[int]int64{0: 50, 1: 30}
	r.Complete(nil, 200)
	if r.Bound != (400+400-200+2*30)/2 || r.Epochs[0].Lacked != 50 || r.Epochs[1].Lacked != 30 {
		t.Errorf("bound %d, epochs %+v", r.Bound, r.Epochs)
	}
	if all := r.Summary(); all.Over([]NodeReport{all.Nodes[0], all.Nodes[0]}).Bound != 660 {
		t.Errorf("the shares add up to another bound than %d", 660)
	}
	r = report()
	r.Lacked = map[int]int64{1: 300} // more than there is: another node had more
	if r.Complete(nil, 200); r.Bound != (400+400)/2 {
		t.Errorf("bound %d", r.Bound)
	}
	for class, want := range map[*Class]int64{
		{Capacity: 100, Used: 60}:                                    0,
		{Capacity: 100, Used: 60, Returned: &Returned{Bytes: 40}}:    0,
		{Capacity: 100, Used: 60, Returned: &Returned{Paused: true}}: 40,
		{Capacity: 50, Used: 60, Returned: &Returned{Paused: true}}:  0,
	} {
		if got := class.Lacks(); got != want {
			t.Errorf("%+v lacks %d, want %d", class, got, want)
		}
	}
}

// TestReportSaysWhatWasGivenBack checks the sentence, and the sum over nodes.
func TestReportSaysWhatWasGivenBack(t *testing.T) {
	const mib = 1 << 20
	first := Class{Name: "memory", Capacity: 100, Used: 60, Returned: &Returned{
		Bytes: 3 * mib, Segments: 2, Viewed: mib, Now: 3 * mib, Age: 7.4,
		Why: "the machine had 1.0 MiB left",
	}}
	second := Class{Name: "memory", Capacity: 100, Returned: &Returned{
		Bytes: mib, Segments: 1, Age: 2, Why: "the group had none left", Paused: true,
	}}
	for class, want := range map[*Class]string{
		{Name: "file"}: "",
		{Name: "file", Stopped: "read-only file system"}: " Storage class file keeps no more " +
			"samples: read-only file system.",
		{Name: "memory", Returned: &Returned{Paused: true}}: " Storage class memory keeps nothing " +
			"more for now, because memory is short.",
		&first: " Storage class memory gave back 3.0 MiB, last 7 s ago: the machine had 1.0 MiB " +
			"left; 1.0 MiB of it are still in use, because the process keeps samples in it.",
		{Name: "memory", Returned: &Returned{Viewed: mib}}: "", // of samples that were dropped
		{Name: "memory", Returned: &Returned{
			Bytes: 5 * mib, Now: 2 * mib, Segments: 3, Age: 1, Why: "none was left",
			Paused: true,
		}}: " Storage class memory gave back 5.0 MiB, 2.0 MiB of it since memory became short again, " +
			"last 1 s ago: none was left; it keeps nothing more until memory is free again.",
		&second: " Storage class memory gave back 1.0 MiB, last 2 s ago: the group had none left; " +
			"it keeps nothing more until memory is free again.",
	} {
		if got := gaveBack([]Class{*class}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	sum := Class{Name: "memory"}
	for _, c := range []Class{
		{Name: "memory", Capacity: 5}, first, second, first, {},
	} {
		sum.add(c)
	}
	want := Returned{
		Bytes: 7 * mib, Now: 6 * mib, Segments: 5, Viewed: 2 * mib, Age: 2,
		Why:    "the group had none left",
		Paused: true,
	}
	if sum.Capacity != 305 || sum.Used != 120 || *sum.Returned != want {
		t.Errorf("%+v, %+v", sum, sum.Returned)
	}
	if first.Returned.Bytes != 3*mib {
		t.Error("the sum has changed a part")
	}
}
