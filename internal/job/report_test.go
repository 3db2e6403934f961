package job

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/stats"
)

// TestReportHasWhatCachesLackedWhenEpochsBegan checks that memory that is short when an epoch
// begins counts for that epoch, and not what becomes of it later.
func TestReportHasWhatCachesLackedWhenEpochsBegan(t *testing.T) {
	d := &lacking{}
	w := start(t, func(c *Config, p *Parts) { c.Ranks, p.Dataset = []int{0}, d })
	r := w.join(t, 0)
	defer r.Close()
	for n, lacks := range []int64{0, 40, 15} {
		d.lacks.Store(lacks)
		epoch(t, r, n)
		d.lacks.Store(77)
	}
	var got []int64
	for _, e := range r.Report().Epochs {
		got = append(got, e.Lacked)
	}
	if want := []int64{0, 40, 15}; !slices.Equal(got[:3], want) {
		t.Errorf("the epochs lacked %v, want %v", got, want)
	}
}

// lacking is a dataset with a class whose memory is short.
type lacking struct{ lacks atomic.Int64 }

func (d *lacking) Reports() []stats.Class {
	lacks := d.lacks.Load()
	return []stats.Class{{
		Name: "memory", Capacity: 100, Used: 100 - lacks,
		Returned: &stats.Returned{Paused: lacks > 0},
	}}
}

// TestReportWaitsForRanksInTheSameEpoch: at the end of an epoch a report over all nodes waits for
// the ranks that have not finished it, and for no others.
func TestReportWaitsForRanksInTheSameEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		mine, other stats.Position
		gone, ended bool
		want        bool
	}{
		"the other is in the last step":    {mine: at(2, 0), other: at(1, 9), want: true},
		"both have finished":               {mine: at(2, 0), other: at(2, 0)},
		"the other is ahead":               {mine: at(2, 0), other: at(2, 3)},
		"within an epoch":                  {mine: at(2, 1), other: at(1, 9)},
		"before the first batch":           {mine: at(0, 0), other: at(0, 0)},
		"the other is an epoch behind":     {mine: at(2, 0), other: at(0, 9)},
		"the other's node does not answer": {mine: at(2, 0), other: at(1, 9), gone: true},
		"the other has left":               {mine: at(2, 0), other: at(1, 9), ended: true},
	} {
		report := &stats.ClusterReport{Nodes: []stats.NodeReport{
			{
				Responding: !c.gone,
				Ranks:      []stats.RankTally{{Rank: 0, Open: !c.ended, Position: c.other}},
			},
			{Responding: true, Ranks: []stats.RankTally{{Rank: 1, Open: true, Position: c.mine}}},
		}}
		if got := behind(report, 1); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func at(epoch, step int) stats.Position { return stats.Position{Epoch: epoch, Step: step} }
