// Package scaling is the analytical model of Yang and Cong (Accelerating Data Loading in Deep
// Neural Network Training, HiPC 2019, arXiv 1910.01196, sections IV and V): how long an epoch takes
// on p nodes, by the rates of training, preprocessing, the storage system and the network, and so
// where reading stops scaling. Equation numbers are the paper's.
//
// The paper counts samples, all of one size; here D is in MB and rates are in MB/s. Its R and Rc
// are one number each. Here they follow from the environment and the number of nodes:
//
//   - R is what p nodes together get of the storage system, min(p b_fs, t(p)).
//   - Rc, what the nodes' caches together give other nodes, is p min(b_c, r), where r is the rate
//     at which a node's classes together give what they hold. Every node sends b_c at the same
//     time, so that Rc grows with p (derived; the paper expects that it stops to do so on large
//     systems, where the network between nodes is shared).
//   - alpha is min(1, p d / S), with d, the capacity of a node's classes, and the dataset's size S.
//   - beta is computed: see Imbalance.
//
// It does no I/O and has no state.
package scaling

import (
	"math"

	"github.com/hdmlp/hdmlp/internal/model"
)

// Job is what the model needs of a job. Batches are divided evenly among the nodes.
type Job struct {
	Env         *model.Environment
	Nodes       int
	Dataset     float64 // MB of all samples
	Samples     int
	Epoch       float64 // MB that an epoch reads, less than Dataset if a last batch is dropped
	GlobalBatch int
	Epochs      int
}

// Parameters are those of the paper for a number of nodes.
type Parameters struct {
	D     float64 // MB read in an epoch
	P     int     // nodes
	V     float64 // training rate of a node, MB/s
	U     float64 // preprocessing rate of a node, MB/s
	R     float64 // rate of the storage system, of all nodes together, MB/s
	Rc    float64 // rate of the remote caches, of all nodes together, MB/s; Rb as well
	Alpha float64 // share of the dataset that is in the nodes' caches
	Beta  float64 // share of the dataset that nodes exchange to balance batches
}

// ParametersOf returns the parameters of a job.
func ParametersOf(j Job) Parameters {
	p := float64(j.Nodes)
	env := j.Env
	v := Parameters{
		D: j.Epoch, P: j.Nodes, V: env.Compute,
		U:     float64(env.Classes[0].Threads) / env.Write(1),
		R:     p * env.SourceRate(j.Nodes),
		Alpha: min(1, p*env.LocalCapacity()/j.Dataset),
		Beta:  model.Imbalance(j.Samples, j.Nodes, j.GlobalBatch),
	}
	v.Rc = p * min(env.PeerBandwidth, cacheRate(env, v.Alpha*j.Dataset/p))
	return v
}

// cacheRate returns the rate at which a node's classes together give what they hold, held MB, with
// the fastest class filled first: each gives its part at its own rate, at the same time. It is
// infinite if they hold nothing.
func cacheRate(env *model.Environment, held float64) float64 {
	rate, left := math.Inf(1), held
	for j := 1; j < len(env.Classes) && left > 0; j++ {
		c := &env.Classes[j]
		part := min(left, c.Capacity)
		left -= part
		highest := 0.0
		for _, point := range c.Read {
			highest = max(highest, point.MBps)
		}
		if part > 0 {
			rate = min(rate, highest*held/part)
		}
	}
	return rate
}

// Epoch is what an epoch takes, in seconds.
type Epoch struct {
	Training      float64 // equation 1
	Storage       float64 // reads from the storage system: the first term of equations 2, 7 and 8
	Exchange      float64 // reads from other nodes: the second term of equations 7 and 8
	Preprocessing float64 // equation 3
}

// Loading returns the data loading time, equation 4: reading, then preprocessing.
func (e Epoch) Loading() float64 { return e.Storage + e.Exchange + e.Preprocessing }

// Seconds returns the cost of the epoch: the larger of training and data loading, which overlap
// (section IV; equation 6 if preprocessing takes no time).
func (e Epoch) Seconds() float64 { return max(e.Training, e.Loading()) }

// Limited reports whether loading takes longer than training, so that nodes wait for data.
func (e Epoch) Limited() bool { return e.Loading() > e.Training }

// epoch returns an epoch without its reads.
func (v *Parameters) epoch() Epoch {
	p := float64(v.P)
	return Epoch{Training: v.D / (p * v.V), Preprocessing: v.D / (p * v.U)}
}

// Regular returns an epoch in which all is read from the storage system (equation 2).
func (v *Parameters) Regular() Epoch {
	e := v.epoch()
	e.Storage = v.D / v.R
	return e
}

// Cached returns an epoch with distributed caching: samples that are cached are read from the node
// that has them (equation 7).
func (v *Parameters) Cached() Epoch {
	e := v.epoch()
	p := float64(v.P)
	e.Storage = (1 - v.Alpha) * v.D / v.R
	e.Exchange = v.Alpha * v.D / v.Rc * (p - 1) / p
	return e
}

// LocalityAware returns an epoch in which nodes train on the samples that they have, and exchange
// only what balances their batches (equation 8, with Rb = Rc).
func (v *Parameters) LocalityAware() Epoch {
	e := v.epoch()
	e.Storage = (1 - v.Alpha) * v.D / v.R
	e.Exchange = v.Alpha * v.D / v.Rc * v.Beta
	return e
}

// Method is a way to load data, as the model predicts it.
type Method struct {
	Key, Name string
	Later     Epoch   // an epoch after the first
	Runtime   float64 // of all epochs, seconds
}

// Prediction is what the model predicts for a job.
type Prediction struct {
	Parameters
	Methods []Method // regular, distributed cache, locality-aware
}

// Predict returns what the model predicts for a job. Caches are filled by the reads of the first
// epoch (one of the two ways of section V-A), which is therefore as a regular one.
func Predict(j Job) *Prediction {
	p := &Prediction{Parameters: ParametersOf(j)}
	first := p.Regular()
	for _, m := range []Method{
		{Key: "regular", Name: "regular", Later: first},
		{Key: "distributed_cache", Name: "distributed cache", Later: p.Cached()},
		{Key: "locality_aware", Name: "locality-aware", Later: p.LocalityAware()},
	} {
		m.Runtime = first.Seconds() + float64(j.Epochs-1)*m.Later.Seconds()
		p.Methods = append(p.Methods, m)
	}
	return p
}

// Limit is the largest number of nodes up to which regular loading scales: as long as each node
// gets of the storage system what it trains on, p <= R/V (equation 5).
type Limit struct {
	Nodes   int  // 0: not even one node gets that
	Bounded bool // otherwise the storage system is never too slow
}

// mostNodes is the number of nodes up to which LimitOf looks.
const mostNodes = 1<<16 - 1

// LimitOf returns the limit in an environment. The paper's R is constant; with a throughput that
// grows with the nodes, the limit is the last number before the first for which it is too low.
func LimitOf(env *model.Environment) Limit {
	for p := 1; p <= mostNodes; p++ {
		if env.SourceRate(p) < env.Compute {
			return Limit{Nodes: p - 1, Bounded: true}
		}
	}
	return Limit{Nodes: mostNodes}
}
