// Package compare is the result of `hdmlp compare`: policies that ran for real on a user's
// dataset and machine, beside what the simulator predicts of the same policies from what was
// measured of the machine.
//
// It owns how many samples are taken for a time (choose.go), the simulations (simulated.go), the
// five properties of table 2.1 of the thesis (properties.go), what is kept of an interrupted
// comparison (kept.go), and how the result is shown: as text (text.go), and as a page with plots
// (page.go). It starts nothing and measures nothing: its callers do, and fill in a Run.
//
// Values are plain data. Functions that simulate end with their context's error.
package compare

import (
	"math"

	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// The tiers of a Run and of a Prediction. Classes in memory are one tier, as are those on disks.
const (
	Memory = "memory"
	Disk   = "disk"
	Peers  = "peers"
	Source = "source"
)

// Tiers returns the tiers, the fastest first.
func Tiers() []string { return []string{Memory, Disk, Peers, Source} }

// Run is what was measured of a policy over all nodes: medians are not taken, since each policy
// runs once.
type Run struct {
	Policy string `json:"policy"`
	// Runtime is the time from when all ranks may take batches until the last of them has finished
	// its last step, with Before, in seconds.
	Runtime float64 `json:"runtime_s"`
	// Before is what the policy loads before training, in seconds.
	Before float64 `json:"before_training_s"`
	// Stall is Runtime less the computation.
	Stall float64 `json:"stall_s"`
	// Opening is the time from a process's request until its job was open, of the slowest rank.
	Opening float64   `json:"opening_s"`
	Epochs  []float64 `json:"epochs_s"`
	// Tiers has the MB that ranks were given, by tier.
	Tiers map[string]float64 `json:"delivered_mb"`
	// SourceMB is all that was read from the source, to fill classes and for other nodes included.
	SourceMB float64 `json:"source_mb"`
	// Seen is the mean share of the samples that an epoch showed, and Distance that of the order from
	// a full shuffle (docs/SIMULATOR.md), both of what was delivered.
	Seen     float64 `json:"dataset_seen_per_epoch"`
	Distance float64 `json:"distance_from_shuffle"`
	// SameBatches means that each global batch had the samples that it has in the full shuffle by the
	// seed, whichever ranks read them.
	SameBatches bool `json:"global_batches_kept"`
	// Audited means that the engine's audit found each epoch complete.
	Audited bool `json:"audited"`
	// Cached is the share of the reads of the source whose sample could not be dropped from the page
	// cache before; negative: the source has no page cache.
	Cached float64 `json:"page_cached"`
	// Replayed is what package replay predicts from what this run measured of itself; nil: Unplayed
	// says why it does not.
	Replayed *Replayed `json:"replayed,omitempty"`
	Unplayed string    `json:"not_replayed,omitempty"`
	// At is when it ended, in RFC 3339.
	At string `json:"at"`
}

// Replayed is a run in virtual time, as the engine would do it, with what was measured before
// training.
type Replayed struct {
	Runtime  float64            `json:"runtime_s"`
	Tiers    map[string]float64 `json:"delivered_mb"`
	SourceMB float64            `json:"source_mb"`
}

// Prediction is what the simulator predicts of a policy, with the meaning that Run has.
type Prediction struct {
	Runtime  float64            `json:"runtime_s"`
	Before   float64            `json:"before_training_s"`
	Stall    float64            `json:"stall_s"`
	Epochs   []float64          `json:"epochs_s"`
	Tiers    map[string]float64 `json:"delivered_mb"`
	SourceMB float64            `json:"source_mb"`
	Seen     float64            `json:"dataset_seen_per_epoch"`
	Distance float64            `json:"distance_from_shuffle"`
}

// Row is a policy of a comparison.
type Row struct {
	Policy     string      `json:"policy"`
	Measured   *Run        `json:"measured"` // nil: it did not run, or not to the end
	Failed     string      `json:"failed,omitempty"`
	Simulated  *Prediction `json:"simulated"` // nil: it was not simulated
	Properties *Properties `json:"properties"`
}

// Left is a policy that does not take part.
type Left struct {
	Policy string `json:"policy"`
	Why    string `json:"why"`
}

// Fact describes what was compared.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Comparison is the result.
type Comparison struct {
	Title    string   `json:"title"`
	Settings Settings `json:"settings"`
	Facts    []Fact   `json:"facts"`
	// Samples and MB are of what was read, of the dataset's Of samples and OfMB.
	Samples int     `json:"samples"`
	MB      float64 `json:"mb"`
	Of      int     `json:"dataset_samples"`
	OfMB    float64 `json:"dataset_mb"`
	// Shared means that several nodes share the processors of one machine, so that times of runs are
	// not those of as many machines. Bytes are.
	Shared bool `json:"nodes_share_processors"`
	// Estimate is what was expected of all runs together, in seconds.
	Estimate float64 `json:"estimated_s"`
	// Bound is the least that any policy can read from the source, in MB, and TimeBound the least
	// time that it can take, in seconds; 0: not computed.
	Bound     float64 `json:"bound_source_mb"`
	TimeBound float64 `json:"time_bound_s"`
	// Perfect is the policy that never waits; nil: it was not simulated.
	Perfect     *Prediction `json:"perfect"`
	Rows        []Row       `json:"policies"`
	Left        []Left      `json:"left_out"`
	Notes       []string    `json:"notes"`
	Interrupted bool        `json:"interrupted"`
	Dir         string      `json:"directory"` // where it is saved
}

// Measured returns how many policies ran to the end.
func (c *Comparison) Measured() int {
	n := 0
	for _, r := range c.Rows {
		if r.Measured != nil {
			n++
		}
	}
	return n
}

// Best returns the measured policy that takes the least time among those that keep the full
// shuffle; nil if there is none.
func (c *Comparison) Best() *Row {
	var best *Row
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.Measured == nil || !accurate(r.Measured, c.Samples, c.Settings.Epochs) {
			continue
		}
		if best == nil || r.Measured.Runtime < best.Measured.Runtime {
			best = r
		}
	}
	return best
}

// predictionOf returns what a simulation has, with its classes as tiers. disks says of each class,
// from 1 on, whether it is on a disk.
func predictionOf(r *simulate.Result, disks []bool) *Prediction {
	p := &Prediction{
		Runtime: r.Runtime, Before: r.BeforeTraining, Stall: r.Stall + r.BeforeTraining,
		Epochs:   r.Epochs,
		SourceMB: r.SourceTotal, Seen: r.SeenPerEpoch, Distance: r.Shuffle,
		Tiers: map[string]float64{Source: r.Reads.Source.MB, Peers: r.Reads.Remote.MB},
	}
	for j, disk := range disks {
		tier := Memory
		if disk {
			tier = Disk
		}
		p.Tiers[tier] += r.Reads.Local[classKey(j+1)].MB
	}
	return p
}

// difference returns how far a prediction is from what was measured, relative to the latter; 0 if
// nothing was measured.
func difference(predicted, measured float64) float64 {
	if measured == 0 || math.IsNaN(predicted) {
		return 0
	}
	return (predicted - measured) / measured
}
