// Package audit tells whether an epoch delivered each sample that it should, exactly once. Each
// rank counts a set hash of what it was given (a sum of access.Mix); the sum over all ranks must be
// that of the epoch's samples, whoever read them and in whatever order.
//
// A Book keeps what the ranks of one node say of their ways through epochs. To get the parts of
// other nodes' ranks is not its business.
package audit

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/access"
)

// Delivered is what a rank was given in an epoch.
type Delivered struct {
	Hash    uint64 `json:"hash"`
	Samples int64  `json:"samples"`
	// Missing is the set hash of what the policy for errors left out, less that of what stood in.
	Missing uint64 `json:"missing"`
}

// Part is one rank's part of an epoch, as nodes tell each other.
type Part struct {
	Rank int `json:"rank"`
	// the step that it began with; not 0 where a job was resumed in the middle
	From     int  `json:"from"`
	Finished bool `json:"finished"`
	Left     bool `json:"left"` // it will not finish: it is gone, or went on to a later epoch
	Delivered
}

// Result is what an epoch delivered, against what it should have.
type Result struct {
	Epoch    int    `json:"epoch"`
	Complete bool   `json:"complete"` // all ranks have finished the epoch, and the hashes agree
	Expected string `json:"expected"` // set hash of the epoch's samples, hex
	// Delivered is the sum of what the ranks counted.
	Delivered string `json:"delivered"`
	Samples   int64  `json:"samples"` // delivered over all ranks
	// ranks that left before they finished the epoch, or of which nothing was heard
	Missing []int  `json:"missing"`
	Why     string `json:"why,omitempty"` // of the latter
}

// Compare adds the parts of all ranks up, and compares them with what the epoch should have
// delivered from where they began. Where ranks began at different steps it is not complete.
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
	expected := epoch.Audit(from) - missing
	r.Expected, r.Delivered = fmt.Sprintf("%016x", expected), fmt.Sprintf("%016x", hash)
	r.Complete = len(r.Missing) == 0 && len(began) == 1 && expected == hash
	return r
}
