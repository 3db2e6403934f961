package scenario

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/policyfile"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// SharedBytes estimates the memory that all simulations of the scenario share: the samples' sizes,
// and their order if it comes from a file or is kept.
func (s *Scenario) SharedBytes() int64 {
	f := int64(s.Dataset.Samples)
	bytes := 8 * f
	if s.order != "" || s.keepsOrder() {
		bytes += 4 * f * int64(s.Epochs)
	}
	return bytes
}

// RunBytes estimates the most memory that one simulation takes, in bytes. perBatch is whether it
// keeps the times of batches.
func (s *Scenario) RunBytes(perBatch bool) int64 {
	f := float64(s.Dataset.Samples)
	n := float64(s.Nodes)
	e := float64(s.Epochs)
	copies := 0.0
	for _, policy := range s.Policies {
		copies = max(copies, s.copies(policy))
	}
	table := 0.0
	for _, policy := range s.Policies {
		// which node reads each sample in each epoch, in as many bits as a node's number needs
		if s.about(policy).CountsReads {
			table = min(f*e*float64(bits.Len(uint(s.Nodes)))/8, mostTable)
		}
	}
	// measured with 14.2 million samples, including garbage of planning
	total := table + 110*f + 48*copies + 1<<16*n
	if !s.Share { // two epochs' orders of each
		total += 8 * f * float64(s.Jobs-1)
	}
	if s.Profile == simulate.Thesis {
		total += 18*f*e + 10*f*n
	}
	if perBatch {
		total += 32 * e * float64(s.Steps()) * float64(s.Jobs)
	}
	const most = 1 << 60
	return int64(min(total, most))
}

// mostTable is approximately the size, in bytes, above which planning builds its table for a part
// of the samples at a time.
const mostTable = 2.2e9

// copies estimates the most copies of samples that the policy plans over all nodes.
func (s *Scenario) copies(policy string) float64 {
	f, n := float64(s.Dataset.Samples), float64(s.Nodes)
	if table, ok := s.values[policy].(*policyfile.Policy); ok {
		return float64(table.Copies())
	}
	if p, ok := s.values[policy].(policies.FrequencyWith); ok && p.CleanupRead {
		// besides what classes hold, what follows there: all that a node reads
		return f * n * (1 - math.Pow(1-1/n, float64(s.Epochs)))
	}
	plans := s.about(policy).Copies
	if plans == plan.OneOrOwnReads {
		plans = plan.OwnReads
		if len(s.Env.Classes) > 1 && s.Env.PeerBandwidth >= s.Env.ReadRate(1) {
			plans = plan.OnePerSample // a second copy saves nothing
		}
	}
	most := f * n
	switch plans {
	case plan.NoCopies:
		return 0
	case plan.OnePerSample:
		most = f
	case plan.OwnReads:
		if n > 1 { // a node holds what it reads: each sample with probability 1 - (1 - 1/N)^E
			most *= 1 - math.Pow(1-1/n, float64(s.Epochs))
		}
	}
	if bytes := s.Bytes(); bytes > 0 {
		most = min(most, n*s.Env.LocalCapacity()/bytes*f)
	}
	return most
}

// Fits checks that the largest sample fits into the staging buffer, which requires drawing the
// sizes. An error about the size is of type Faults.
func (s *Scenario) Fits() error {
	room := s.Env.Classes[0].Capacity
	if !s.Share {
		room /= float64(s.Jobs)
	}
	staged := ""
	for _, policy := range s.Policies {
		if s.about(policy).Stages && s.Needs(policy) == "" {
			staged = policy
		}
	}
	if staged == "" {
		return nil
	}
	job, err := s.Job()
	if err != nil {
		return err
	}
	largest := 0.0
	for _, v := range job.Sizes {
		largest = max(largest, v)
	}
	if largest <= room {
		return nil
	}
	return Faults{{
		Key: "environment.storage_class.0.capacity", Value: fmt.Sprintf("%g MB", room),
		Wrong: fmt.Sprintf("the largest sample has %g MB, and %s prefetches whole samples into "+
			"its job's part of the staging buffer", largest, staged),
		Allowed: fmt.Sprintf("%g MB or more for each job", largest),
	}}
}
