package remedy

import (
	"cmp"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
)

const (
	// enough is a rate in MB/s that limits nothing.
	enough = 1e6
	// disk is the rate in MB/s that is assumed of a cache directory that does not exist yet: that
	// of a SATA SSD.
	disk = 500
	// memoryRate is the rate in MB/s that is assumed of memory that is not used yet.
	memoryRate = 5000
	// rounding is the relative error of a prediction by floating-point arithmetic.
	rounding = 1e-9
)

// model is a run in the terms of the performance model. It is a value: with does not modify it.
type forecast struct {
	env     model.Environment
	later   model.Later
	whole   bool
	batch   float64  // samples of a node in a step, if they can be dealt
	job     float64  // MB that all nodes consume in an epoch
	names   []string // of the classes
	memory  int      // the class in memory, in env.Classes; 0: there is none
	file    int      // the fastest class in a directory; 0: there is none
	unknown []string // the numbers of which nothing was measured or given
	// processors is as many as threads can be set to; 0: they are as many as there can be.
	processors int
}

// newModel returns the model of a valid run.
func newModel(r *Run) forecast {
	s := model.Size{Sample: r.Sample / mega, Nodes: r.Nodes}
	for _, c := range r.Capacity {
		s.Capacity = append(s.Capacity, float64(c)/mega)
	}
	m := forecast{
		env: r.Known.Environment(s),
		later: model.Later{
			Data: float64(r.Data) / mega, Node: float64(r.Epoch) / mega, Sample: s.Sample,
			Nodes: r.Nodes, Transformers: r.Transformers, Cold: r.Once,
		},
		whole: r.Whole, batch: r.Batch, processors: r.Processors,
		job: float64(r.Epoch) / mega * float64(r.Nodes),
	}
	if r.Dealt {
		m.later.Dealt = m.imbalance()
	}
	m.env.SourceWork = r.SourceWork
	if r.Transformers == 0 { // samples are delivered as they are
		m.env.Preprocess, m.later.Transformers = enough, 1
	}
	for j, c := range r.Known.Classes {
		m.names = append(m.names, c.Name)
		switch {
		case c.Path == "" && m.memory == 0:
			m.memory = j + 1
		case c.Path != "" && m.file == 0:
			m.file = j + 1
		}
	}
	m.unknown = unknown(r)
	for _, d := range r.Did {
		m.observe(r, d)
	}
	return m
}

// observe corrects the rate of a resource by what it did, unless the user has given the rate.
func (m *forecast) observe(r *Run, d Did) {
	correct := func(rate float64) float64 {
		if d.Saturated {
			return d.MBps
		}
		return max(rate, d.MBps)
	}
	now, _ := m.now(SourceRate)
	switch k := &r.Known; d.Resource {
	case Compute:
		if k.Compute.Origin != model.Given {
			m.env.Compute = max(m.env.Compute, d.MBps)
		}
	case Preprocessing:
		if m.transforms() && k.Preprocess.Origin != model.Given {
			threads := float64(m.later.Transformers)
			m.env.Preprocess = correct(m.env.Preprocess*threads) / threads
			m.know(Preprocessing)
		}
	case Source:
		rate := correct(now/float64(m.later.Nodes)) * float64(m.later.Nodes)
		if k.Source.Origin != model.Given && k.SourcesOrigin != model.Given && rate != now {
			*m = m.with(Change{Key: SourceRate, Amount: rate})
		}
	case Network:
		if k.Network.Origin != model.Given {
			m.env.PeerBandwidth = correct(m.env.PeerBandwidth)
			m.know(Network)
		}
	default:
		for j, c := range k.Classes {
			if c.Name == d.Resource && c.Read.Origin != model.Given {
				read := &m.env.Classes[j+1].Read
				was := m.env.ClassRate(j+1, m.later.Nodes)
				if rate := correct(was); rate != was {
					*read = model.Constant(rate)
				}
				m.know(c.Name)
			}
		}
	}
}

// unlimited follows the name of a number that is not known at all, and so limits nothing.
const unlimited = " (taken as unlimited)"

// unknown names the numbers that were neither measured nor given.
func unknown(r *Run) (names []string) {
	guess := func(o model.Origin) bool { return o == "" || o == model.Guessed }
	rate := func(name string, v model.Value) {
		switch {
		case v.Number <= 0:
			names = append(names, name+unlimited)
		case guess(v.Origin):
			names = append(names, name)
		}
	}
	rate(Compute, r.Known.Compute)
	if r.Transformers > 0 {
		rate(Preprocessing, r.Known.Preprocess)
	}
	if guess(r.Known.Source.Origin) && (len(r.Known.Sources) == 0 || guess(r.Known.SourcesOrigin)) {
		names = append(names, Source)
	}
	if guess(r.Known.Network.Origin) {
		names = append(names, Network)
	}
	for _, c := range r.Known.Classes {
		if c.Path != "" && guess(c.Read.Origin) {
			names = append(names, c.Name)
		}
	}
	return names
}

// now returns the present amount of what a key names; speed is the rate of the cache.
func (m *forecast) now(k Key) (amount, speed float64) {
	switch k {
	case Memory:
		return m.capacity(m.memory), 0
	case Cache:
		if m.file > 0 {
			speed = m.env.ClassRate(m.file, m.later.Nodes)
		}
		return m.capacity(m.file), speed
	case Threads:
		return float64(m.later.Transformers), 0
	case Deal:
		return m.fromOthers(), 0
	case Nodes:
		return float64(m.later.Nodes), 0
	case SourceRate:
		one := m.later
		one.Cold = true
		f := m.env.Epoch(&one)
		return f.Source.MB / f.Source.Seconds * float64(m.later.Nodes), 0 // what they get
	case NetworkRate:
		return m.env.PeerBandwidth, 0
	case ComputeSpeed:
		return m.env.Compute, 0
	}
	return 0, 0
}

// capacity returns that of a class in bytes; 0 for class 0, which stands for none.
func (m *forecast) capacity(class int) float64 {
	if class == 0 {
		return 0
	}
	return math.Round(m.env.Classes[class].Capacity * mega)
}

// with returns the model after a change.
func (m forecast) with(c Change) forecast {
	if c.Times > 0 {
		now, _ := m.now(c.Key)
		c.Amount = now * c.Times
	}
	m.env.Classes, m.names = slices.Clone(m.env.Classes), slices.Clone(m.names)
	switch c.Key {
	case Memory:
		if m.memory == 0 && c.Amount > 0 {
			m.insert(1, string(Memory), memoryRate)
			m.memory = 1
			if m.file > 0 {
				m.file++
			}
		}
		if m.memory > 0 {
			m.env.Classes[m.memory].Capacity = c.Amount / mega
		}
	case Cache:
		if m.file == 0 && c.Amount > 0 {
			m.file = len(m.env.Classes)
			m.insert(m.file, string(Cache), disk)
		}
		if m.file == 0 {
			break
		}
		class := &m.env.Classes[m.file]
		class.Capacity = c.Amount / mega
		if c.Speed > 0 {
			class.Read = model.Constant(c.Speed)
			m.know(m.names[m.file-1])
		}
	case Threads:
		m.later.Transformers = int(c.Amount)
	case Deal:
		m.later.Dealt = c.Amount
	case Nodes:
		m.later.Nodes = int(c.Amount)
		if !m.whole {
			m.later.Node = m.job / c.Amount
		}
	case SourceRate:
		m.env.SourceThroughput, m.env.SourceBandwidth = model.Constant(c.Amount), c.Amount
		m.env.SourceLatency = 0
		m.set(Source, c)
	case NetworkRate:
		m.env.PeerBandwidth = c.Amount
		m.set(Network, c)
	case ComputeSpeed:
		m.env.Compute = c.Amount
		m.set(Compute, c)
	}
	return m
}

// after returns the model after changes, whose order does not matter: what is to be so many times
// as fast is so beside the others.
func (m forecast) after(changes []Change) forecast {
	for _, multiples := range []bool{false, true} {
		for _, c := range changes {
			if (c.Times > 0) == multiples {
				m = m.with(c)
			}
		}
	}
	return m
}

// insert adds an empty class that gives rate MB/s.
func (m *forecast) insert(at int, name string, rate float64) {
	m.env.Classes = slices.Insert(m.env.Classes, at, model.Class{
		Threads: 1, Read: model.Constant(rate), Write: model.Constant(rate),
	})
	m.names = slices.Insert(m.names, at-1, name)
}

// set takes note of the change of a rate: it is known then, other than so many times a guess.
func (m *forecast) set(name string, c Change) {
	if c.Times == 0 {
		m.know(name)
	}
}

// know removes a name from what is not known.
func (m *forecast) know(name string) {
	m.unknown = slices.DeleteFunc(slices.Clone(m.unknown), func(u string) bool {
		return u == name || u == name+unlimited
	})
}

// transforms reports whether the daemon transforms samples, and how long that takes is known.
func (m *forecast) transforms() bool { return m.env.Preprocess < enough }

// imbalance returns the share of its reads that a node gets from others if batches are dealt; 0:
// they cannot be.
func (m *forecast) imbalance() float64 {
	if m.batch == 0 || m.later.Sample <= 0 {
		return 0
	}
	nodes := m.later.Nodes
	return model.Imbalance(int(m.later.Data/m.later.Sample), nodes, int(m.batch)*nodes)
}

// fromOthers returns the share of a node's reads in a later epoch that other nodes serve.
func (m *forecast) fromOthers() float64 {
	f := m.env.Epoch(&m.later)
	return f.Network.MB / m.later.Node
}

// seconds returns how long an epoch takes.
func (m *forecast) seconds() float64 { return m.env.Epoch(&m.later).Seconds }

// predict returns how an epoch goes, and what limits it.
func (m *forecast) predict() Prediction {
	f := m.env.Epoch(&m.later)
	nodes := float64(m.later.Nodes)
	p := Prediction{
		Epoch: f.Seconds, Stall: f.Seconds - f.Compute.Seconds,
		Source: int64(math.Round(f.Source.MB * nodes * mega)),
	}
	type load struct {
		model.Load
		name string
	}
	var loads []load
	if m.env.Compute < enough {
		loads = append(loads, load{f.Compute, Compute})
	}
	if m.transforms() {
		loads = append(loads, load{f.Preprocess, Preprocessing})
	}
	others := len(loads)
	tier := func(l model.Load, name string, is bool) {
		if is {
			loads = append(loads, load{l, name})
			p.Tiers = append(p.Tiers, TierBytes{name, int64(math.Round(l.MB * mega))})
		}
	}
	for j, l := range f.Classes {
		tier(l, m.names[j], m.env.Classes[j+1].Capacity > 0)
	}
	tier(f.Network, Network, m.later.Nodes > 1)
	tier(f.Source, Source, true)
	// Of resources that are busy all the time, what comes first in this order limits: computation
	// and preprocessing, which nothing else can do, then of tiers that work in parallel the
	// fastest, whose improvement by a factor shortens the epoch most.
	slices.SortStableFunc(loads[others:], func(a, b load) int { return cmp.Compare(b.MB, a.MB) })
	slices.SortStableFunc(loads, func(a, b load) int {
		if math.Abs(a.Seconds-b.Seconds) <= rounding*f.Seconds {
			return 0
		}
		return cmp.Compare(b.Seconds, a.Seconds)
	})
	busy := func(l load) Busy {
		return Busy{l.name, l.Seconds, l.Seconds / max(f.Seconds, math.SmallestNonzeroFloat64)}
	}
	p.Busy = busy(loads[0])
	if len(loads) > 1 && loads[1].Seconds > 0 {
		next := busy(loads[1])
		p.Next = &next
	}
	for _, u := range m.unknown {
		if u != Network || m.later.Nodes > 1 {
			p.Guessed = append(p.Guessed, u)
		}
	}
	return p
}
