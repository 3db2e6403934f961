package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/report"
)

// Faults are the samples of a job that cannot be used, and which it leaves out or substitutes. What
// one node has found holds for all.
type Faults interface {
	// Own returns samples that this node has found, after the first so many, how many it returns or
	// omits, and a channel that is closed when there are more.
	Own(after int) (found []report.Fault, upTo int, more <-chan struct{})
	// Hear takes in what another node has found; again, if it was cut off meanwhile.
	Hear(found []report.Fault)
}

// faultsToTell returns the samples that this node has found to be unusable.
func (c *Coordinator) faultsToTell(told int) (about any, version int, changed <-chan struct{}) {
	return c.o.Faults.Own(told)
}

// hearFaults takes in the samples that another node has found to be unusable. The job need not be
// open.
func (c *Coordinator) hearFaults(text []byte) bool {
	var found []report.Fault
	err := json.Unmarshal(text, &found)
	for _, f := range found {
		if f.Sample < 0 || f.Sample >= c.o.Index.Len() {
			err = fmt.Errorf("sample %d: the dataset has %d", f.Sample, c.o.Index.Len())
		}
	}
	if c.o.Faults == nil {
		err = errors.New("the job leaves out no samples")
	}
	if err != nil {
		c.o.Log.Warn("a node sent an invalid list of unusable samples", "error", err)
		return false
	}
	c.o.Faults.Hear(found)
	return true
}
