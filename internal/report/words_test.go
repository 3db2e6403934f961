package report

import (
	"strings"
	"testing"
)

// TestReadsBelowTheMinimumSayWhy: a read that serves two epochs, caches that held samples, and
// epochs that are not over are not taken for a policy that is better than the best.
func TestReadsBelowTheMinimumSayWhy(t *testing.T) {
	cold, warm := []Class{{}}, []Class{{}, {Held: Amount{1, 10}}}
	for _, c := range []struct {
		read    int64
		classes []Class
		at      []Position
		want    string
	}{
		{0, cold, nil, "Nothing was read from the source."},
		{
			250, cold,
			[]Position{{1, 3}},
			"250 bytes were read from the source, 1.25 times the minimum for these caches (200 bytes).",
		},
		{
			198, cold,
			[]Position{{2, 0}, {2, 0}},
			"198 bytes were read from the source, about the minimum for these caches (200 bytes).",
		},
		{100, cold, []Position{{2, 0}, {2, 0}}, "100 bytes were read from the source, 0.50 times the " +
			"minimum for these caches if all ranks go through the epochs together (200 bytes)."},
		{100, cold, []Position{{1, 2}}, "100 bytes were read from the source so far; with these " +
			"caches, the epochs begun take about 200 bytes or more."},
		{100, cold, []Position{{2, 0}, {1, 0}}, "100 bytes were read from the source so far; with " +
			"these caches, the epochs begun take about 200 bytes or more."},
		{100, warm, []Position{{1, 2}}, "100 bytes were read from the source, 0.50 times the minimum " +
			"for these caches if they are empty at first (200 bytes)."},
	} {
		got := fromSource(c.read, float64(c.read)/200, 200, c.classes, together(c.at))
		if got != " "+c.want {
			t.Errorf("got  %s\nwant  %s", got, c.want)
		}
	}
}

// TestHangsAreSaidAfterTheyEnd, and while they last; reads that were given up of a class that is
// only slow are not.
func TestHangsAreSaidAfterTheyEnd(t *testing.T) {
	for _, c := range []struct {
		class Class
		want  string
	}{
		{Class{}, ""},
		{Class{Silent: 0.5, Hangs: &Hangs{Reads: 3}}, ""},
		{
			Class{Silent: 7, Hangs: &Hangs{Reads: 3, Times: 1, Seconds: 7}},
			" The cache directory /c has not responded for 7 s: samples are read from the source.",
		},
		{Class{Hangs: &Hangs{Reads: 3, Times: 2, Seconds: 12.25, Age: 40}}, " The cache directory /c " +
			"did not respond 2 times, for 12.2 s in all, the last time until 40 s ago: 3 reads of it " +
			"were given up, and samples were read from the source."},
		{Class{Writing: 7.2, LongestWrite: 7.2}, " A write to the cache directory /c has not " +
			"returned for 7 s: samples that were to be kept there may not be, and are then read from " +
			"the source again."},
		{Class{LongestWrite: 7.2}, " A write to the cache directory /c took 7.2 s: samples that were " +
			"to be kept there meanwhile may have been read from the source again."},
		{
			Class{Silent: 7, Writing: 6}, " The cache directory /c has not responded for 7 s: samples " +
				"are read from the source. A write to the cache directory /c has not returned for 6 s: " +
				"samples that were to be kept there may not be, and are then read from the source again.",
		},
	} {
		c.class.Path = "/c"
		if got := notResponding([]Class{c.class}); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	var all Class
	for _, h := range []*Hangs{nil, {Reads: 1}, {1, 1, 5, 60}, {2, 1, 3, 40}} {
		all.add(Class{Path: "/c", Hangs: h})
	}
	if *all.Hangs != (Hangs{4, 2, 8, 40}) {
		t.Errorf("of four nodes: %+v", all.Hangs)
	}
	all = Class{}
	all.add(Class{Path: "/hangs", Silent: 4})
	all.add(Class{Path: "/other", LongestWrite: 7})
	if all.Path != "/hangs" {
		t.Errorf("what hangs is %s", all.Path)
	}
	all = Class{}
	all.add(Class{Path: "/d", Writing: 6, LongestWrite: 8})
	all.add(Class{Path: "/e", LongestWrite: 7})
	if all.Path != "/d" || all.Writing != 6 || all.LongestWrite != 8 {
		t.Errorf("of six nodes: %+v", all)
	}
}

// TestSentenceAtTheBeginningOfAnEpoch: after the first batch of the second epoch, for which nothing
// waited, nothing is known of later epochs.
func TestSentenceAtTheBeginningOfAnEpoch(t *testing.T) {
	r := &Report{Ranks: []RankReport{{Epochs: []EpochTally{
		ran(0, map[string]float64{"source": 2}),
		{Epoch: 1, Tally: Tally{Batches: 1}},
	}}}}
	r.Complete(nil, 0)
	if strings.Contains(r.Sentence, "later one") {
		t.Error(r.Sentence)
	}
}
