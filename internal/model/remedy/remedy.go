// Package remedy determines what limits a running job, what the smallest change is that would lift
// the limit, and what other changes would bring. All of it follows from one function of the
// performance model, model.Environment.Epoch, applied to the job's live environment.
//
// It does not simulate the job. A report is made every second, and a search for the smallest change
// takes some thousand predictions, while one simulated epoch takes about a microsecond per sample,
// so that one of ImageNet would take seconds. A test of this package shows that predictions agree
// with the simulator's.
//
// Everything here is pure: values and arithmetic, without I/O. Sizes in a Run are in bytes, and
// rates in MB/s (1e6 bytes).
package remedy

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
)

const mega = 1e6

// Run is what predictions need of a job on a node. The nodes of a job tell each other.
type Run struct {
	// Known is the live environment of the node.
	Known model.Node `json:"environment"`
	Nodes int        `json:"nodes"` // of the job
	// Capacity is that of the classes of the node, in the order of Known.Classes. If the job's policy
	// keeps nothing, it is what they hold already, which is read from there.
	Capacity []int64 `json:"capacity"`
	Data     int64   `json:"data_bytes"`  // of the samples that epochs draw from
	Epoch    int64   `json:"epoch_bytes"` // that this node consumes in an epoch
	Sample   float64 `json:"sample_bytes"`
	// Whole is set if every node reads every sample in an epoch.
	Whole bool `json:"whole,omitempty"`
	// Transformers is how many threads of the node transform samples; 0: the daemon transforms
	// none.
	Transformers int `json:"transform_threads"`
	// Processors is as many as transform_threads may be on the node, if it was given; 0: the number
	// is tuned, or not known.
	Processors int `json:"processors,omitempty"`
	// SourceWork is for how long a read of the source keeps one of them from transforming, seconds.
	SourceWork float64 `json:"source_processor_s,omitempty"`
	// Batch is how many samples a node reads in a step, if batches can be dealt to the nodes that own
	// their samples; 0: they cannot. Dealt is set if they are.
	Batch float64 `json:"batch_samples,omitempty"`
	Dealt bool    `json:"dealt,omitempty"`
	// Caches is set if the job's policy keeps samples in the classes.
	Caches bool `json:"caches"`
	// Entries is set if the classes are [[storage_class]] entries of a configuration file, and not
	// what memory, cache_dir and cache_size say.
	Entries bool `json:"storage_class_entries,omitempty"`
	// Once is set if the job has one epoch only.
	Once bool `json:"once,omitempty"`
	// Measured is the mean time of the epochs after the first one, in seconds, and Python the part
	// of it in which Python code made batches that ranks waited for; 0: not known.
	Measured float64 `json:"measured_epoch_seconds,omitempty"`
	Python   float64 `json:"python_seconds,omitempty"`
	// Stall is what the ranks waited for data in these epochs: the mean of an epoch, and the sum over
	// ranks. While one of them waits, the others may wait for it in their steps.
	Stall float64 `json:"stall_seconds,omitempty"`
	// Did is what resources did in epochs that are over; at most one entry for each.
	Did []Did `json:"did,omitempty"`

	told int // how many nodes said this; 0: one
}

// Did is what a resource did in whole epochs. Its rate is at least that; and if ranks mostly waited
// for it, it was busy all the time, so that its rate is that. Both are more certain than any
// estimate from single reads.
type Did struct {
	Resource  string  `json:"resource"` // any but Python
	MBps      float64 `json:"mbps"`     // of this node
	Saturated bool    `json:"saturated,omitempty"`
}

// Limits of what a Run may say, because other nodes say it.
const (
	mostNodes   = 1 << 16
	mostThreads = 1 << 16
	mostClasses = 64
	mostRate    = 1e9 // MB/s
)

// Validate returns an error if predictions cannot be made of the run.
func (r *Run) Validate() error {
	errs := []error{r.Known.Validate()}
	if r.Nodes < 1 || r.Nodes > mostNodes {
		errs = append(errs, fmt.Errorf("nodes is %d; it must be from 1 to %d", r.Nodes, mostNodes))
	}
	if r.Transformers < 0 || r.Transformers > mostThreads {
		errs = append(errs, fmt.Errorf("transform_threads is %d; it must be from 0 to %d",
			r.Transformers, mostThreads))
	}
	if r.Processors < 0 || r.Processors > mostThreads {
		errs = append(errs, fmt.Errorf("processors is %d; it must be from 0 to %d", r.Processors,
			mostThreads))
	}
	if r.Data < 1 || r.Epoch < 1 {
		errs = append(errs, fmt.Errorf("data_bytes is %d and epoch_bytes is %d; they must be above 0",
			r.Data, r.Epoch))
	}
	for _, v := range []float64{r.Sample, r.Batch, r.SourceWork, r.Measured, r.Python, r.Stall} {
		if !(v >= 0) || math.IsInf(v, 1) {
			errs = append(errs, fmt.Errorf("a size or time is %v; it must be 0 or more", v))
		}
	}
	for _, d := range r.Did[:min(len(r.Did), mostClasses)] {
		if !(d.MBps > 0 && d.MBps <= mostRate) {
			errs = append(errs, fmt.Errorf("the rate of %.40q is %v MB/s; it must be above 0 and at "+
				"most %g", d.Resource, d.MBps, float64(mostRate)))
		}
	}
	if len(r.Did) > mostClasses {
		errs = append(errs, fmt.Errorf("%d rates; at most %d are allowed", len(r.Did), mostClasses))
	}
	for _, c := range r.Capacity {
		if c < 0 {
			errs = append(errs, fmt.Errorf("a class has a capacity of %d bytes", c))
		}
	}
	if len(r.Capacity) != len(r.Known.Classes) || len(r.Capacity) > mostClasses {
		errs = append(errs, fmt.Errorf("%d capacities of %d classes", len(r.Capacity),
			len(r.Known.Classes)))
	}
	return errors.Join(errs...)
}

// Merge returns the run as all nodes together know it; ok is false if a node's report cannot be
// used. Nodes are taken to be equal: capacities, threads and bytes are the means.
func Merge(runs []*Run) (all Run, ok bool) {
	if len(runs) == 0 {
		return all, false
	}
	for _, r := range runs {
		if r == nil || r.Validate() != nil || len(r.Capacity) != len(runs[0].Capacity) {
			return all, false
		}
	}
	mean := func(of func(*Run) float64) float64 {
		sum := 0.0
		for _, r := range runs {
			sum += of(r)
		}
		return math.Round(sum / float64(len(runs)))
	}
	all = *runs[0]
	all.told, all.Stall = len(runs), 0
	all.Capacity = make([]int64, len(runs[0].Capacity))
	for j := range all.Capacity {
		all.Capacity[j] = int64(mean(func(r *Run) float64 { return float64(r.Capacity[j]) }))
	}
	all.Epoch = int64(mean(func(r *Run) float64 { return float64(r.Epoch) }))
	all.Transformers = int(mean(func(r *Run) float64 { return float64(r.Transformers) }))
	all.Did = merge(runs)
	var known []model.Node
	for _, r := range runs {
		known = append(known, r.Known)
		all.Caches = all.Caches && r.Caches
		all.Entries = all.Entries || r.Entries
		all.Processors = min(all.Processors, r.Processors)
		all.Measured, all.Python = max(all.Measured, r.Measured), max(all.Python, r.Python)
		all.Stall += r.Stall
	}
	all.Known = model.Merge(known, all.Sample/mega)
	return all, true
}

// merge returns what resources did on the nodes: the mean over those on which they were saturated,
// or else over all that name them.
func merge(runs []*Run) (all []Did) {
	count := map[string]float64{}
	for _, saturated := range []bool{true, false} {
		for _, r := range runs {
			for _, d := range r.Did {
				at := slices.IndexFunc(all, func(o Did) bool { return o.Resource == d.Resource })
				if d.Saturated != saturated || at >= 0 && all[at].Saturated != saturated {
					continue
				}
				if at < 0 {
					all, at = append(all, Did{d.Resource, 0, saturated}), len(all)
				}
				count[d.Resource]++
				all[at].MBps += (d.MBps - all[at].MBps) / count[d.Resource]
			}
		}
	}
	return all
}

// Resources that are not storage classes. A class has its own name.
const (
	Compute       = "compute"
	Preprocessing = "preprocessing"
	Source        = "source"
	Network       = "network"
	Python        = "python"
)

// Busy is what a resource does in an epoch.
type Busy struct {
	Resource string  `json:"resource"`
	Seconds  float64 `json:"seconds"`
	Share    float64 `json:"share"` // of the epoch's time
}

// Prediction is how an epoch after the first one goes, with the resource that limits it.
type Prediction struct {
	Busy                // what limits the epoch
	Next    *Busy       `json:"next,omitempty"` // the resource that would limit it next
	Epoch   float64     `json:"epoch_seconds"`
	Stall   float64     `json:"stall_seconds"` // Epoch without the time of the computation
	Source  int64       `json:"source_bytes"`  // read from the source in an epoch, by all nodes
	Tiers   []TierBytes `json:"tiers"`         // what a node reads from each tier
	Guessed []string    `json:"not_measured,omitempty"`
}

// TierBytes is what a node reads from a tier in an epoch.
type TierBytes struct {
	Tier  string `json:"tier"`
	Bytes int64  `json:"bytes"`
}

// Now is the prediction for the job as it is, beside what was measured.
type Now struct {
	Prediction
	Measured float64 `json:"measured_epoch_seconds,omitempty"` // mean of the later epochs
	// Other is the least part of Measured in which ranks neither waited for data nor did their usual
	// steps: some steps were longer, or they did other things. 0: it explains no large difference.
	Other float64 `json:"other_seconds,omitempty"`

	silent bool // what the ranks of some nodes waited for is not known, and may be in Other
}

// Remedy is a change of one thing that makes epochs shorter: the smallest amount after which more
// of it would bring nothing.
type Remedy struct {
	Change
	From     float64 `json:"from"`          // the present amount
	Before   float64 `json:"epoch_seconds"` // predicted
	After    float64 `json:"epoch_seconds_after"`
	Resource string  `json:"limit_after"` // what limits afterwards
	Source   int64   `json:"source_bytes_after"`
	// Guessed are the numbers that only the prediction with the change rests on, and which were not
	// measured: that of a network, for a second node.
	Guessed []string `json:"not_measured,omitempty"`
	Text    string   `json:"text"`
}

// Key names what can be changed.
type Key string

// The keys, in the order in which remedies are listed: first what the user of a job can change
// alone, with what the machine has, then what costs another machine or a better one.
const (
	Threads      Key = "threads" // that transform samples: CPUs of the daemon
	Memory       Key = "memory"  // bytes per node
	Cache        Key = "cache"   // bytes of cache_dir per node
	Deal         Key = "deal"    // share of samples that nodes read from others; no question
	Nodes        Key = "nodes"
	SourceRate   Key = "source"  // MB/s for all nodes together
	NetworkRate  Key = "network" // MB/s that a node gets from the others
	ComputeSpeed Key = "compute" // MB/s that a node consumes; no remedy, but a question
)

// Change sets one thing to an amount: bytes, threads, nodes or MB/s.
type Change struct {
	Key    Key     `json:"change"`
	Amount float64 `json:"amount"`
	// Speed is the rate of a cache in MB/s; 0: as it is measured, or assumed if there is none.
	Speed float64 `json:"mbps,omitempty"`
	// Times, if it is above 0, replaces Amount by so many times the present one.
	Times float64 `json:"times,omitempty"`
}
