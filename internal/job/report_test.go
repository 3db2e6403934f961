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
