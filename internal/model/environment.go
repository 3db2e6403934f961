// Package model is the performance model of thesis 3.1: the numbers that describe a machine,
// and the time that each way of fetching a sample takes. The configuration file and the simulator
// describe a machine by its Environment.
//
// All functions are pure: no I/O, no state, no goroutines. An Environment that does not change is
// safe for concurrent use. Sizes are in MB (1e6 bytes), rates in MB/s, times in seconds. The
// package is independent of samples and plans.
package model

import (
	"errors"
	"fmt"
	"math"
)

// Environment describes one node and its connections (thesis 3.1.1).
type Environment struct {
	Compute          float64 // c: rate at which training consumes samples, MB/s
	Preprocess       float64 // beta: rate at which a thread transforms samples, MB/s
	PeerBandwidth    float64 // b_c: network bandwidth between nodes, MB/s
	SourceBandwidth  float64 // b_fs: network bandwidth to the source, MB/s
	SourceThroughput Curve   // t(gamma): total rate of the source for gamma reading nodes, MB/s
	// latency of each request to the source, seconds; 0 in the papers
	SourceLatency float64
	// SourceWork is what a read of a sample from the source takes of a processor, seconds, which is
	// not there for transforms; 0 in the papers. To wait for the source takes nothing.
	SourceWork float64
	Processors Processors
	Classes    []Class // storage classes; 0 is the staging buffer, then fastest first
}

// Processors are those of a node, on which its p_0 threads transform samples. The zero value is as
// many as there are threads.
type Processors struct {
	Cores int // physical; 0: one for each thread
	// Hyperthreads is the number of logical processors, at least Cores; 0: as many as Cores.
	Hyperthreads int
}

// hyperthread is what a thread on a core that runs another one already adds, in cores: twice the
// threads on all hyperthreads preprocess 30 % faster (CoorDL, appendix B.1).
const hyperthread = 0.3

// Work returns how many cores' work so many threads do together: their number up to the physical
// cores, 0.3 for each one more up to the hyperthreads, and nothing for those beyond.
func (p Processors) Work(threads int) float64 {
	if p.Cores == 0 || threads <= p.Cores {
		return float64(threads)
	}
	return float64(p.Cores) +
		hyperthread*float64(max(min(threads, p.Hyperthreads)-p.Cores, 0))
}

// Class describes a storage class j.
type Class struct {
	Capacity float64 // d_j, MB
	Threads  int     // p_j: threads that prefetch to the class; at least 1
	Read     Curve   // r_j(p): aggregate random read throughput of p threads, MB/s
	Write    Curve   // w_j(p): aggregate random write throughput of p threads, MB/s
}

// Validate checks that every number is present and plausible. The error joins everything that is
// wrong; each part names the key as in the papers (b_c, r_1) and what is allowed.
func (e *Environment) Validate() error {
	var errs []error
	positive := func(key string, v float64) {
		if !(v > 0) || math.IsInf(v, 1) {
			errs = append(errs, fmt.Errorf("%s is %v MB/s; it must be above 0 and finite", key, v))
		}
	}
	positive("c", e.Compute)
	positive("beta", e.Preprocess)
	positive("b_c", e.PeerBandwidth)
	positive("b_fs", e.SourceBandwidth)
	errs = append(errs, e.SourceThroughput.validate("t"))
	if !(e.SourceLatency >= 0) || math.IsInf(e.SourceLatency, 1) {
		errs = append(errs, fmt.Errorf("latency of the source is %v s; it must be 0 or "+
			"more and finite", e.SourceLatency))
	}
	if !(e.SourceWork >= 0) || math.IsInf(e.SourceWork, 1) {
		errs = append(errs, fmt.Errorf("a read of the source takes %v s of a processor; it must be 0 "+
			"or more and finite", e.SourceWork))
	}
	if p := e.Processors; p.Cores < 0 || p.Hyperthreads != 0 && p.Hyperthreads < max(p.Cores, 1) ||
		p.Cores == 0 && p.Hyperthreads != 0 {
		errs = append(errs, fmt.Errorf("%d cores and %d hyperthreads; there must be as many "+
			"hyperthreads as cores or more, or 0", p.Cores, p.Hyperthreads))
	}
	if len(e.Classes) == 0 {
		errs = append(errs, errors.New("classes: none; there must be class 0, the staging buffer"))
	}
	for j, c := range e.Classes {
		if !(c.Capacity >= 0) || math.IsInf(c.Capacity, 1) {
			errs = append(errs,
				fmt.Errorf("d_%d is %v MB; it must be 0 or more and finite", j, c.Capacity))
		}
		if c.Threads < 1 {
			errs = append(errs,
				fmt.Errorf("p_%d is %d threads; it must be 1 or more", j, c.Threads))
		}
		errs = append(errs, c.Read.validate(fmt.Sprintf("r_%d", j)),
			c.Write.validate(fmt.Sprintf("w_%d", j)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	return nil
}

// LocalCapacity returns D = d_1 + ... + d_J of a node in MB, without the staging buffer.
func (e *Environment) LocalCapacity() float64 {
	var d float64
	for j := 1; j < len(e.Classes); j++ {
		d += e.Classes[j].Capacity
	}
	return d
}
