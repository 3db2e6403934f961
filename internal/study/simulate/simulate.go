// Package simulate runs a plan in virtual time against the performance model: how long a policy
// would take on a machine, and where each sample would be read from.
//
// It has two profiles. Model is the clean one: one event queue, the paper's equations as printed, a
// source whose bandwidth is divided among the reads in flight, and counts of reads per tier that
// add up. Thesis computes what the original simulator computes, including its departures from the
// text, in order to reproduce the thesis's tables.
//
// Package plan makes the decisions of a policy, and package access determines which rank reads
// which sample when; this package only adds time. It does no I/O, and no goroutine outlives a call.
package simulate

import (
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Profile selects a way to simulate.
type Profile string

const (
	Model  Profile = "model"
	Thesis Profile = "thesis"
)

// Job is a training job on a machine, as a scenario file describes it.
type Job struct {
	Env         model.Environment
	Nodes       int       // N, one rank each
	Sizes       []float64 // MB, per sample
	Epochs      int
	GlobalBatch int
	DropLast    bool
	Scheme      access.Scheme
	Seed        uint64
	// Jobs is how many such jobs train on the nodes at the same time, each with devices of its own,
	// of the rate c, and one rank on every node; 0 means 1. The k-th of them, from 0, draws its
	// order from Seed + k.
	Jobs int
	// Share means that the jobs are a group, for which each sample is fetched and preprocessed once
	// (coordinated prep, CoorDL 4.3). They have one order, and take each batch at the same time.
	Share bool
	// Forms are those that the first storage class keeps. Which samples they are of is not simulated:
	// of each that the class has such a part is a form, and what it takes to make it is not counted.
	// Profile Thesis has none.
	Forms model.Forms
	// Order, if not nil, holds the permutation of every epoch and replaces those drawn from Seed.
	// Without it, planning and simulating draw a permutation each time they need it; DrawOrder
	// draws them once.
	Order [][]int32
	// Mixture, if not nil, has epochs take samples of several datasets, in an order that is drawn
	// from Seed; Order must be nil then.
	Mixture *access.Mixture
	// PerBatch asks for Result.Batches.
	PerBatch bool
}

// trainings returns how many jobs fetch and preprocess samples for themselves: a group does so as
// one.
func (j *Job) trainings() int {
	if j.Share {
		return 1
	}
	return max(1, j.Jobs)
}

// maxRanks is the largest number of ranks of all jobs together.
const maxRanks = 1<<16 - 1

// Amount is a number of samples and their bytes.
type Amount struct {
	Samples int64   `json:"samples"`
	MB      float64 `json:"mb"`
}

// Reads counts the consumed samples by the tier that they were finally read from; those that a
// group of jobs shares count once.
type Reads struct {
	Source Amount            `json:"source"`
	Remote Amount            `json:"remote"`
	Local  map[string]Amount `json:"local"` // by the number of the storage class, from "1"
}

// Result is the outcome of simulating one policy.
type Result struct {
	Supported      bool    `json:"supported"`
	Reason         string  `json:"reason"` // why the policy cannot run the job; "" if Supported
	Runtime        float64 `json:"runtime_s"`
	BeforeTraining float64 `json:"before_training_s"`
	Stall          float64 `json:"stall_s"` // of the slowest node: runtime minus its computation
	Reads          Reads   `json:"reads"`
	// Transformed counts what was preprocessed, for all jobs. Profile Thesis does not.
	Transformed Amount `json:"transformed,omitzero"`
	// SourceTotal counts all MB read from the source, including those that fill caches.
	SourceTotal  float64 `json:"source_mb_total"`
	ShareOfBound float64 `json:"source_share_of_bound"`
	// ShareOfTimeBound is Runtime divided by TimeBound of the job, if the caller set it. Runs that
	// read the samples in another order can be below 1.
	ShareOfTimeBound float64 `json:"share_of_time_bound,omitempty"`
	// SeenPerEpoch is the mean share of the dataset that is consumed in an epoch, on any node.
	SeenPerEpoch float64 `json:"dataset_seen_per_epoch"`
	// Shuffle is the distance of the order from a full shuffle: 0 is a full shuffle, 1 an order
	// that does not change from epoch to epoch. docs/SIMULATOR.md defines it.
	Shuffle float64 `json:"distance_from_shuffle"`
	// Epochs has the runtime of every epoch, in seconds; of several jobs, those of the one that ends
	// last.
	Epochs []float64 `json:"epochs_s"`
	// EpochsSource has the MB that left the source during each of these epochs, for all jobs. What
	// is read ahead for the next epoch counts when it is read. Profile Thesis does not count it.
	EpochsSource []float64 `json:"epochs_source_mb,omitempty"`
	// Batches and BatchesSource have the same of every batch, if Job.PerBatch asked for it.
	Batches       []float64 `json:"batches_s,omitempty"`
	BatchesSource []float64 `json:"batches_source_mb,omitempty"`
}
