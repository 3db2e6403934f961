// Package audit verifies that an epoch delivered each of its samples exactly once. Each rank
// computes a set hash of what was delivered to it (a sum of access.Mix). The sum over all ranks
// must be that of the epoch's samples, independent of which rank read them and in which order.
//
// A Book records the progress of one node's ranks through epochs. Collecting the parts of other
// nodes' ranks is the caller's task.
package audit

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Delivered describes what was delivered to a rank in an epoch.
type Delivered struct {
	Hash    uint64 `json:"hash"`
	Samples int64  `json:"samples"`
	// Missing is the set hash of the samples that on_error left out, minus that of substitutes.
	Missing uint64 `json:"missing"`
}

// Part is one rank's part of an epoch, as nodes exchange it.
type Part struct {
	Rank int `json:"rank"`
	// the step at which the rank began; not 0 if a job resumed in the middle of an epoch
	From     int  `json:"from"`
	Finished bool `json:"finished"`
	Left     bool `json:"left"` // it will not finish: it has left, or began a later epoch
	Delivered
}

// Result compares what an epoch delivered with what it should have delivered.
type Result struct {
	Epoch    int    `json:"epoch"`
	Complete bool   `json:"complete"` // all ranks have finished the epoch, and the hashes agree
	Expected string `json:"expected"` // set hash of the epoch's samples, hex
	// Delivered is the sum of the ranks' set hashes, hex.
	Delivered string `json:"delivered"`
	Samples   int64  `json:"samples"` // delivered over all ranks
	// ranks that left before they finished the epoch, or did not report
	Missing []int `json:"missing"`
	// Why is why the latter did not report, or why ranks that all did cannot be compared.
	Why string `json:"why,omitempty"`
}

// Compare adds up the parts of all ranks and compares the sum with what the epoch should have
// delivered from the step at which they began. If ranks began at different steps, the result is not
// complete.
func Compare(epoch *access.Epoch, parts []Part) *Result {
	r := &Result{Epoch: epoch.Number(), Missing: []int{}}
	var hash, missing uint64
	began := map[int]bool{}
	from := 0
	for _, p := range parts {
		if !p.Finished {
			r.Missing = append(r.Missing, p.Rank)
			continue
		}
		from, began[p.From] = p.From, true
		hash += p.Hash
		missing += p.Missing
		r.Samples += p.Samples
	}
	slices.Sort(r.Missing)
	if len(began) > 1 {
		r.Why = "the ranks began it at different steps"
	}
	expected := epoch.Audit(from) - missing
	r.Expected, r.Delivered = fmt.Sprintf("%016x", expected), fmt.Sprintf("%016x", hash)
	r.Complete = len(r.Missing) == 0 && len(began) == 1 && expected == hash
	return r
}
