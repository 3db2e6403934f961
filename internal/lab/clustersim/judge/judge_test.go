package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// TestOrderIsTorchs compares with torch.randperm(10) after torch.manual_seed(0).
func TestOrderIsTorchs(t *testing.T) {
	want := []int{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}
	if got := randperm(10, 0); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestRecordedOrdersAreShuffles plants a sample that an epoch has twice.
func TestRecordedOrdersAreShuffles(t *testing.T) {
	s := &script.Script{Samples: 3, Epochs: 2}
	orders := [][]int{{2, 0, 1}, {0, 2, 0}}
	if got := Shuffled(s, func(e int) []int { return orders[e] }); len(got) != 1 {
		t.Errorf("the verdict is %q", got)
	}
}

// twoRanks returns a script of 4 samples in 2 steps on 2 nodes, and its history without a fault.
func twoRanks() (*script.Script, []Event) {
	s := &script.Script{
		Samples: 4, Largest: 1, Epochs: 1, Batch: 2, Shuffle: "none", Scheme: "strided",
		Tail: "pad", OnError: "raise", Launches: []script.Launch{{Nodes: 2, Ranks: 1}},
	}
	var h []Event
	for rank := range 2 {
		h = append(h,
			Event{Kind: Opened, Rank: rank},
			Event{Kind: Began, Rank: rank},
			Event{Kind: Got, Rank: rank, Step: 0, At: time.Second, IDs: []int{rank}},
			Event{Kind: Got, Rank: rank, Step: 1, At: 2 * time.Second, IDs: []int{2 + rank}},
			Event{Kind: Ended, Rank: rank, Epoch: 1, At: 3 * time.Second})
	}
	return s, h
}

// TestOrdersOfPolicies: ranks are due what the policy's order has for them, whose batches are as
// large as those of the script, and with the same samples if it only deals them. It may substitute
// only samples that it shows.
func TestOrdersOfPolicies(t *testing.T) {
	for _, policy := range []string{
		policies.Locality{}.Name(), policies.Sharded{}.Name(), policies.TFData{Buffer: 1}.Name(),
	} {
		s := &script.Script{
			Samples: 7, Largest: 1, Epochs: 1, Batch: 4, Shuffle: "torch", Scheme: "strided",
			Tail: "pad", OnError: "substitute", Memory: 2, Policy: policy,
			Launches: []script.Launch{{Nodes: 2, Ranks: 1}},
		}
		stream, err := s.Ordered(s.Launches[0])
		if err != nil || stream == nil {
			t.Fatal(policy, stream, err)
		}
		history := func() (h []Event) {
			for rank := range 2 {
				h = append(h, Event{Kind: Opened, Rank: rank}, Event{Kind: Began, Rank: rank})
				for step := range 2 {
					e := Event{Kind: Got, Rank: rank, Step: step, At: time.Duration(step) * time.Second}
					for _, id := range stream.Epoch(0).Batch(nil, rank, step) {
						e.IDs = append(e.IDs, int(id))
					}
					h = append(h, e)
				}
				h = append(h, Event{Kind: Ended, Rank: rank, Epoch: 1, At: 3 * time.Second})
			}
			return h
		}
		h := history()
		if got := Judge(s, Orders(s, nil), h, nil); got != nil {
			t.Errorf("%s: the verdict on what is due is %q", policy, got)
		}
		h[2].IDs, h[7].IDs = h[7].IDs, h[2].IDs // of the other rank
		if got := strings.Join(Judge(s, Orders(s, nil), h, nil), "\n"); !strings.Contains(got,
			"wrong samples") {
			t.Errorf("%s: the verdict on what another rank is due is %q", policy, got)
		}
	}
}

// missing has ranks 0 and 1 end with errors before the second batch, of which rank 0 lacks
// sample 2.
func missing(first, second string) func(s *script.Script, h []Event) []Event {
	return func(s *script.Script, h []Event) []Event {
		s.Missing = []int{2}
		h[3].Kind, h[3].Text = Failed, first
		h[8].Kind = Failed
		h[8].Text = second
		h[8].At = h[3].At
		return slices.Delete(slices.Delete(h, 9, 10), 4, 5)
	}
}

// accounts appends node 0's account of twoRanks, after change has changed it.
func accounts(change func(a *Account)) func(s *script.Script, h []Event) []Event {
	return func(_ *script.Script, h []Event) []Event {
		two := Amount{Samples: 2, Bytes: 2}
		a := &Account{
			Passes: []Pass{{Batches: 2, Samples: 2, Reads: map[string]Amount{"memory": two}}},
			Source: two, Tiers: map[string]Amount{"source": two}, Seen: two,
			Positions: 4, Needed: 4,
			Sum: &Sum{
				Nodes: 2, Ranks: 2, Batches: 4, Source: two, Seen: two,
				Reads: map[string]Amount{"peer": two, "source": two},
			},
		}
		change(a)
		return append(h, Event{Kind: Accounted, Account: a})
	}
}

// slowly has reads of twoRanks take a second, and its rank 0 wait for the second batch.
func slowly(wait time.Duration) func(s *script.Script, h []Event) []Event {
	return func(s *script.Script, h []Event) []Event {
		s.Takes, s.Step = script.Duration(time.Second), script.Duration(time.Hour)
		h[3].Wait = wait
		return h
	}
}

// TestVerdicts plants one violation at a time in a history, and judges it.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(s *script.Script, h []Event) []Event
		want  string // in the verdict; "": none
	}{
		"nothing": {func(_ *script.Script, h []Event) []Event { return h }, ""},
		"another sample": {func(_ *script.Script, h []Event) []Event {
			h[3].IDs = []int{3}
			return h
		}, "wrong samples"},
		"a batch twice": {func(_ *script.Script, h []Event) []Event {
			return slices.Insert(h, 3, h[2])
		}, "batch 0 instead of 1"},
		"a batch is left out": {func(_ *script.Script, h []Event) []Event {
			return slices.Delete(h, 3, 4)
		}, "before its last batch"},
		"wrong bytes": {func(_ *script.Script, h []Event) []Event {
			return append(h, Event{Kind: Wrong})
		}, "broken"},
		"an error without a fault": {func(_ *script.Script, h []Event) []Event {
			h[3].Kind, h[8].Kind = Failed, Failed
			return slices.Delete(slices.Delete(h, 9, 10), 4, 5)
		}, "without a cause"},
		"an error that the source explains": {func(s *script.Script, h []Event) []Event {
			s.Events = []script.Event{{Kind: script.SourceFail}}
			h[3].Kind, h[8].Kind = Failed, Failed
			return slices.Delete(slices.Delete(h, 9, 10), 4, 5)
		}, ""},
		"an error on one rank only": {func(s *script.Script, h []Event) []Event {
			s.Events = []script.Event{{Kind: script.SourceFail}}
			h[2].Kind = Failed
			return slices.Delete(h, 3, 5)
		}, "a batch after the error"},
		"a missing sample is delivered": {func(s *script.Script, h []Event) []Event {
			s.Missing = []int{3}
			return h
		}, "that is missing"},
		"a rank that never comes to the end": {func(_ *script.Script, h []Event) []Event {
			return slices.Delete(h, 3, 5)
		}, "did not come to the end"},
		"a rank that never begins": {func(_ *script.Script, h []Event) []Event {
			return h[:6]
		}, "never began"},
		"an error that says nothing": {func(s *script.Script, h []Event) []Event {
			s.Events = []script.Event{{Kind: script.SourceFail}}
			h[3].Kind = Failed
			h[8].Kind = Failed
			h[8].Text = "context canceled"
			return slices.Delete(slices.Delete(h, 9, 10), 4, 5)
		}, "says nothing"},
		"no error long after a short cut": {func(s *script.Script, h []Event) []Event {
			s.Events = []script.Event{{Kind: script.Cut}, {Kind: script.SourceFail}}
			h[3].Kind = Failed
			h[8].Kind = Stuck
			h[8].At = 2 * time.Minute
			return slices.Delete(slices.Delete(h, 9, 10), 4, 5)
		}, "no error although"},
		"no error after a long cut": {func(s *script.Script, h []Event) []Event {
			s.Events = []script.Event{
				{Kind: script.Cut, For: script.Duration(time.Minute)}, {Kind: script.SourceFail},
			}
			h[3].Kind = Failed
			h[8].Kind = Stuck
			h[8].At = 2 * time.Minute
			return slices.Delete(slices.Delete(h, 9, 10), 4, 5)
		}, ""},
		"a rank waits": {func(_ *script.Script, h []Event) []Event {
			h[3].Wait = time.Second
			return h
		}, "waited for a batch"},
		"a rank waits for the source": {func(s *script.Script, h []Event) []Event {
			s.Events = []script.Event{{Kind: script.SourceSlow}}
			h[3].Wait = 10 * time.Second
			return h
		}, ""},
		"a rank waits for a cache": {func(s *script.Script, h []Event) []Event {
			s.Events = []script.Event{{Kind: script.DiskHang}}
			h[3].Wait = 10 * time.Second
			return h
		}, "waited for a batch"},
		"other numbers are stated": {func(_ *script.Script, h []Event) []Event {
			return append(h, Event{Kind: Stated, Batches: 2, Samples: 3})
		}, "states other numbers"},
		"the right numbers are stated": {func(_ *script.Script, h []Event) []Event {
			return append(h, Event{Kind: Stated, Batches: 2, Samples: 2},
				Event{Kind: Audited, Batches: 2, Samples: 4, At: time.Hour})
		}, ""},
		"an audit lacks something": {func(_ *script.Script, h []Event) []Event {
			return append(h, Event{Kind: Audited, Batches: 2, Samples: 4, At: time.Hour, Text: "a rank"})
		}, "not complete"},
		"an audit has other numbers": {func(_ *script.Script, h []Event) []Event {
			return append(h, Event{Kind: Audited, Batches: 2, Samples: 3, At: time.Hour})
		}, "the audit has other numbers"},
		"an audit comes early": {func(_ *script.Script, h []Event) []Event {
			return slices.Insert(h, 8, Event{Kind: Audited, Batches: 2, Samples: 4})
		}, "does not wait for rank 1, which has 1 batches"},
		"an audit does not wait for an epoch that is read again": {func(_ *script.Script,
			h []Event,
		) []Event {
			return append(h, Event{Kind: Began, Rank: 1, Step: 1},
				Event{Kind: Audited, Batches: 1, Samples: 2})
		}, "does not wait for rank 1, which has 0 batches"},
		"an audit names the ranks that lack batches": {func(s *script.Script, h []Event) []Event {
			h = missing("sample 2 (/x)", "rank 0 on node 0 (h) stopped: sample 2 (/x)")(s, h)
			return append(h, Event{Kind: Reviewed, IDs: []int{0, 1}})
		}, ""},
		"an audit waits for ranks that have left": {func(s *script.Script, h []Event) []Event {
			h = missing("sample 2 (/x)", "rank 0 on node 0 (h) stopped: sample 2 (/x)")(s, h)
			return append(h, Event{Kind: Reviewed, Text: "deadline exceeded"})
		}, "ranks [0 1] have not come to the end"},
		"a lie is not noticed": {func(s *script.Script, h []Event) []Event {
			s.Lies = true
			return append(h, Event{Kind: Audited, Batches: 2, Samples: 4})
		}, "although a rank got other samples"},
		"an error names the sample, and the other rank": {missing("sample 2 (/x)",
			"rank 0 on node 0 (h) stopped: sample 2 (/x)"), ""},
		"an error names another sample": {missing("sample 1 (/x)",
			"rank 0 on node 0 (h) stopped: sample 2 (/x)"), "not missing"},
		"an error names another node": {missing("sample 2 (/x)",
			"rank 0 on node 1 (h) stopped: sample 2 (/x)"), "another rank's node"},
		"an error names no sample": {missing("sample 2 (/x)", "failed"), "names no sample"},
		"a batch is explained": {func(_ *script.Script, h []Event) []Event {
			return append(h, Event{Kind: Explained, Rank: 1, IDs: h[7].IDs})
		}, ""},
		"a batch is explained with other samples": {func(_ *script.Script, h []Event) []Event {
			return append(h, Event{Kind: Explained, Rank: 1, IDs: []int{9}})
		}, "explains other samples"},
		"what a node says is so": {accounts(func(*Account) {}), ""},
		"a node says that the job needs less": {
			accounts(func(a *Account) { a.Needed-- }),
			"is said to need",
		},
		"a node says that it read less": {
			accounts(func(a *Account) { a.Source.Bytes-- }),
			"from the source, which saw",
		},
		"a node counts other reads": {accounts(func(a *Account) {
			a.Tiers["source"] = Amount{Samples: 1, Bytes: 2}
		}), "the node counts"},
		"a rank is said to have more": {
			accounts(func(a *Account) { a.Passes[0].Samples++ }),
			"rank 0 is said to have",
		},
		"bytes of a batch have no origin": {accounts(func(a *Account) {
			a.Passes[0].Reads["memory"] = Amount{Samples: 2, Bytes: 1}
		}), "to have read"},
		"a rank is said to have waited": {accounts(func(a *Account) {
			a.Passes[0].Waited = time.Second
		}), "to have waited"},
		"a node is said to fail": {
			accounts(func(a *Account) { a.Odd = []string{"node 1 fails"} }),
			"node 1 fails",
		},
		"a batch of another node is not counted": {
			accounts(func(a *Account) { a.Sum.Batches-- }),
			"all nodes are said",
		},
		"reads of another node are not counted": {accounts(func(a *Account) {
			a.Sum.Source.Samples--
		}), "all nodes are said to have read"},
		"a rank waits for a read":  {slowly(3 * time.Second), ""},
		"a rank waits for several": {slowly(4 * time.Second), "for more than"},
		"an error of a rank without it": {missing("sample 2 (/x)",
			"rank 0 on node 0 (h) stopped: sample 3 (/x)"), "did not get"},
		"a rank waits for a node that is cut off": {func(s *script.Script, h []Event) []Event {
			s.Events = []script.Event{{Kind: script.Cut, For: script.Duration(time.Minute)}}
			s.Timeout = script.Duration(5 * time.Second)
			h[3].Wait = 11 * time.Second
			return h
		}, "waited for a batch"},
		"the source is read more than the caches need": {func(s *script.Script, h []Event) []Event {
			s.Largest = 1000
			s.SourceSlow = true
			s.Memory = 10000
			return h
		}, "read from the source 2 times"},
		"ranks that differ get batches": {func(s *script.Script, h []Event) []Event {
			s.Differs = script.TheSeed
			return h
		}, "another seed"},
		"a plan cannot be made": {func(s *script.Script, h []Event) []Event {
			h = missing("the plan needs more memory than there is",
				"rank 0 on node 0 (h) stopped: the plan needs more memory than there is")(s, h)
			s.Missing, s.Plans = nil, script.Failing
			return h
		}, ""},
		"a plan cannot be made, and the error does not say so": {func(s *script.Script,
			h []Event,
		) []Event {
			h = missing("failed", "rank 0 on node 0 (h) stopped: failed")(s, h)
			s.Missing, s.Plans = nil, script.Failing
			return h
		}, "does not say that the plan cannot be made"},
		"ranks that disagree about an epoch get it": {func(s *script.Script, h []Event) []Event {
			s.Differs, s.Epochs = script.ThePart, 2
			return append(h, Event{Kind: Got, Epoch: 1, IDs: []int{0}})
		}, "about which ranks disagree"},
		"ranks that disagree about an epoch get no error": {func(s *script.Script, h []Event) []Event {
			s.Differs, s.Epochs = script.TheEpoch, 2
			return h
		}, "do not all get an error"},
		"ranks are not told that they disagree": {func(s *script.Script, h []Event) []Event {
			s.Differs, s.Epochs = script.TheEpoch, 2
			return append(h, Event{Kind: Failed, Epoch: 1, Text: "the source is gone"})
		}, "does not say why no order is known"},
		"the rank that differs comes first": {func(s *script.Script, h []Event) []Event {
			s.Differs = script.TheBatch
			h[0].Kind, h[7].IDs = Refused, []int{1, 2}
			return slices.Delete(h, 1, 5)
		}, ""},
		"a rank is refused": {func(_ *script.Script, h []Event) []Event {
			h[5].Kind = Refused
			return h[:6]
		}, "refused without a fault"},
	} {
		s, h := twoRanks()
		h = c.plant(s, h)
		reads := map[int][]int{0: {1, 1, 1, 1}, 1: {1, 0, 0, 0}}
		got := strings.Join(Judge(s, Orders(s, nil), h, reads), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: the verdict is %q, want %q", name, got, c.want)
		}
	}
}

// dying returns a script of 16 samples in 8 epochs, in which node 1 of 3 dies.
func dying() *script.Script {
	return &script.Script{
		Samples: 16, Largest: 1000, Epochs: 8, Batch: 4, Shuffle: "none", Scheme: "strided",
		Tail: "pad", SourceSlow: true, Memory: 32000, Prefetch: 2,
		Launches: []script.Launch{{Nodes: 3, Ranks: 1}},
		Events:   []script.Event{{Kind: script.Die, Node: 1}},
	}
}

// TestNodesInherit has the nodes that are left read samples of one that has died more than once.
func TestNodesInherit(t *testing.T) {
	for samples, want := range map[int]int{mostAsked: 0, mostAsked + 1: 1} {
		again := make([]int, 16)
		for id := range samples {
			again[id] = 1
		}
		all := slices.Repeat([]int{1}, 16)
		c := &court{script: dying()}
		c.inherited(map[int][]int{0: all, 1: all, 2: again}, []Event{{}})
		if len(c.errors) != want {
			t.Errorf("%d samples are read again: the verdict is %q", samples, c.errors)
		}
	}
}

// TestLastEpochComesFromCaches has a rank read another epoch, and the last, from the source.
func TestLastEpochComesFromCaches(t *testing.T) {
	for epoch, want := range map[int]int{6: 0, 7: 1} {
		s := dying()
		c := &court{script: s, order: Orders(s, nil)}
		c.settled(Event{Account: &Account{Passes: []Pass{{
			Epoch: epoch, Reads: map[string]Amount{fromSource: {Samples: 1, Bytes: 500}},
		}}}})
		if len(c.errors) != want {
			t.Errorf("epoch %d: the verdict is %q", epoch, c.errors)
		}
	}
}

// TestUntil: a batch that is noted after an audit of the same time was taken before it, unless its
// rank has begun anew.
func TestUntil(t *testing.T) {
	const audit = 1
	events := []Event{
		{Kind: Got, Rank: 0, At: 1},
		{Kind: Audited, Rank: 0, At: 2},
		{Kind: Got, Rank: 1, At: 2},
		{Kind: Began, Rank: 0, At: 2},
		{Kind: Got, Rank: 0, At: 2},
		{Kind: Got, Rank: 1, At: 3},
	}
	want := []Event{events[0], events[2]}
	if got := until(events, audit); !slices.EqualFunc(got, want, func(a, b Event) bool {
		return a.Kind == b.Kind && a.Rank == b.Rank && a.At == b.At
	}) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
