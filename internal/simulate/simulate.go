// Package simulate runs a plan in virtual time against the performance model:
// what a policy would take on a machine, and where every sample would be read from.
//
// It has two profiles. Model is the clean one: one event queue, the paper's
// equations as printed, a source whose bandwidth is divided among the readers in
// flight, and reads by place that add up. Thesis computes what the original
// simulator computes, departures included, and exists to meet the thesis's tables.
//
// What a policy decides comes from package placement, and who reads what when from
// package access; here is only time. Nothing does I/O, and no goroutine outlives a call.
package simulate

import (
	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// Profile is a way to compute.
type Profile string

const (
	Model  Profile = "model"
	Thesis Profile = "thesis"
)

// Job is a training job on a machine: what a scenario file describes.
type Job struct {
	Env         perfmodel.Environment
	Nodes       int       // N, one rank each
	Sizes       []float64 // MB, per sample
	Epochs      int
	GlobalBatch int
	DropLast    bool
	Scheme      access.Scheme
	Seed        uint64
	// Order, if not nil, has the permutation of every epoch, in place of those drawn from Seed.
	// Without it planning and running draw them again each time that they need them: to keep them,
	// see DrawOrder.
	Order [][]int32
	// PerBatch asks for Result.Batches.
	PerBatch bool
}

// Amount is a number of samples and their bytes.
type Amount struct {
	Samples int64   `json:"samples"`
	MB      float64 `json:"mb"`
}

// Reads says where consumed samples were finally read from.
type Reads struct {
	Source Amount            `json:"source"`
	Remote Amount            `json:"remote"`
	Local  map[string]Amount `json:"local"` // by the number of the storage class, from "1"
}

// Result is what one policy takes.
type Result struct {
	Supported      bool    `json:"supported"`
	Reason         string  `json:"reason"` // why not
	Runtime        float64 `json:"runtime_s"`
	BeforeTraining float64 `json:"before_training_s"`
	Stall          float64 `json:"stall_s"` // of the slowest node: runtime less its compute
	Reads          Reads   `json:"reads"`
	// SourceTotal is every byte that left the source, filling of caches included.
	SourceTotal  float64 `json:"source_mb_total"`
	ShareOfBound float64 `json:"source_share_of_bound"`
	// SeenPerEpoch is the mean share of the dataset that some node consumes in an epoch.
	SeenPerEpoch float64 `json:"dataset_seen_per_epoch"`
	// Shuffle tells how far the order is from a full shuffle: 0 is a full shuffle, 1 an order that
	// does not change from epoch to epoch. docs/SIMULATOR.md defines it.
	Shuffle float64 `json:"distance_from_shuffle"`
	// Epochs has the runtime of every epoch, in seconds.
	Epochs []float64 `json:"epochs_s"`
	// Batches has the time of every batch, in seconds, if Job.PerBatch asked for it.
	Batches []float64 `json:"batches_s,omitempty"`
}
