package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/plan/pagecache"
)

// The loaders that Loader.Name can name.
const (
	HDMLP = "hdmlp"
	Torch = "torch"
)

const mega = 1e6

// at returns the rate of n threads or streams: interpolated between the points (thesis equation
// 4.1); in proportion below the first one, and constant above the last one. There must be a point.
func at(points []Point, n float64) float64 {
	near := around(points, n)
	a, b := near[0], near[len(near)-1]
	switch {
	case n < float64(a.N):
		return a.Median * n / float64(a.N)
	case n >= float64(b.N):
		return b.Median
	}
	return a.Median + (b.Median-a.Median)*(n-float64(a.N))/float64(b.N-a.N)
}

// around returns the points that say the rate of n: the one of n, or those on both sides of it, or
// the one at the end; none if there are no points.
func around(points []Point, n float64) []Point {
	i := slices.IndexFunc(points, func(p Point) bool { return float64(p.N) >= n })
	switch {
	case i < 0: // n is above the last one
		return points[max(len(points)-1, 0):]
	case i == 0 || float64(points[i].N) == n:
		return points[i : i+1]
	}
	return points[i-1 : i+1]
}

// best returns the point with the highest rate. There must be a point.
func best(points []Point) Point {
	return slices.MaxFunc(points, func(a, b Point) int {
		switch {
		case a.Median < b.Median:
			return -1
		case a.Median > b.Median:
			return 1
		}
		return b.N - a.N // of equal ones, the one with fewer threads
	})
}

// sample returns the mean size of a sample in MB.
func (m *Measured) sample() float64 { return m.Dataset.MB / float64(m.Dataset.Samples) }

// perNode returns the samples of an epoch on a node.
func (m *Measured) perNode() float64 { return float64(m.Dataset.Samples) / float64(m.Nodes) }

// iterations returns the iterations of an epoch.
func (m *Measured) iterations() float64 {
	return math.Ceil(float64(m.Dataset.Samples) / float64(m.Batch*m.Ranks))
}

// spare is how many times as much memory as the dataset takes is proposed for all of it: caches of
// exactly its size may lack room for the last samples.
const spare = 1.05

// CacheBytes returns how much memory hdmlp's cache is advised to have, in bytes: what there is room
// for, and not more than the dataset needs.
func (m *Measured) CacheBytes() int64 { return min(m.Room, int64(spare*m.Dataset.MB*mega)) }

// switched is the job with hdmlp in the place of another loader: it reads with as many streams and
// prepares with as many threads as are fastest, and keeps as much as there is room for.
func (m *Measured) switched() *Measured {
	s := *m
	s.Loader = Loader{
		Name: HDMLP, Workers: m.Cores, CacheMB: float64(m.Room) / mega,
		DirectoryMB: m.Loader.DirectoryMB,
	}
	s.AsIs = nil
	if len(m.Switched) > 0 {
		s.Preparation = m.Switched
		s.Loader.Workers = best(m.Switched).N
	}
	return &s
}

// threads returns how many threads or processes prepare samples on a node: without workers, its
// ranks.
func (m *Measured) threads() int {
	if len(m.Preparation) == 0 {
		return 0
	}
	return cmp.Or(m.Loader.Workers, max(m.Ranks/m.Nodes, 1))
}

// PageCacheHits returns the share of reads that Linux's page cache serves of a dataset of so many
// MB with so much memory for it, and a new order in each epoch: less than it has memory for.
func PageCacheHits(memory, data float64) float64 {
	if memory <= 0 || memory >= data {
		return min(max(memory/data, 0), 1)
	}
	const files, epochs = 1000, 8
	each := max(int64(data*mega/files), 1)
	cache := pagecache.New(pagecache.TwoLists, int64(memory*mega), files,
		func(int) int64 { return each })
	hits, state := 0, uint64(1)
	order := make([]int32, files)
	for i := range order {
		order[i] = int32(i)
	}
	for epoch := range epochs {
		for i := range order { // Fisher-Yates, by a linear congruential generator
			state = state*6364136223846793005 + 1442695040888963407
			j := i + int((state>>33)%uint64(files-i))
			order[i], order[j] = order[j], order[i]
			if cache.Read(order[i]) && epoch >= epochs/2 {
				hits++
			}
		}
	}
	return float64(hits) / (files * (epochs - epochs/2))
}

// Run returns the job in the terms of the performance model. What was not measured is not in it, or
// is a guess that it names as such.
func (m *Measured) Run() *remedy.Run {
	mb := m.sample()
	value := func(samples float64) model.Value {
		return model.Value{Number: samples * mb, Origin: model.Probed}
	}
	tier := func(samples float64) model.Known {
		k := model.GivenRate(samples*mb, 0)
		k.Origin = model.Probed
		return k
	}
	r := &remedy.Run{
		Nodes: m.Nodes, Data: int64(math.Round(m.Dataset.MB * mega)),
		Epoch:  int64(math.Round(m.Dataset.MB * mega / float64(m.Nodes))),
		Sample: mb * mega, Caches: true, Capacity: []int64{},
	}
	k := &r.Known
	k.Source = model.GuessedSource
	k.Network = model.GuessedPeer
	k.Streams = 1
	if m.Training != nil {
		k.Compute = value(m.Training.Median)
	}
	if n := m.threads(); n > 0 {
		// More threads than cores prepare no more than the cores do.
		r.Transformers = max(1, min(n, max(m.Cores, 1)))
		k.Preprocess = value(at(m.Preparation, float64(n)) / float64(r.Transformers))
	}
	m.source(k, tier)
	r.SourceWork = m.readWork(r.Transformers)
	if m.Peers != nil {
		k.Network = tier(m.Peers.Median)
	}
	class := func(name, path string, rate *Rate, mb float64) {
		c := model.NodeClass{Name: name, Path: path, Write: model.GuessedMemory, Stores: 1}
		if path != "" {
			c.Write = model.GuessedClass
		}
		if c.Read = c.Guess(); rate != nil {
			c.Read = tier(rate.Median)
		}
		k.Classes = append(k.Classes, c)
		r.Capacity = append(r.Capacity, int64(math.Round(mb*mega)))
	}
	memory := m.Loader.CacheMB
	if m.Loader.Name == Torch {
		memory = PageCacheHits(m.Loader.CacheMB, m.Dataset.MB) * m.Dataset.MB
	}
	if m.Memory != nil || memory > 0 {
		class("memory", "", m.Memory, memory)
	}
	if m.Directory != nil || m.Loader.DirectoryMB > 0 {
		class("cache", "cache", m.Directory, m.Loader.DirectoryMB)
	}
	if m.AsIs != nil {
		r.Measured = m.perNode() / m.AsIs.Median
	}
	return r
}

// readWork returns for how long a read of the source keeps one of so many threads from preparing,
// in seconds. Processors that these threads leave idle read first.
func (m *Measured) readWork(threads int) float64 {
	if threads == 0 || m.serial() { // who prepares then reads itself: S has what that takes
		return 0
	}
	cores, each := float64(max(m.Cores, 1)), at(m.Preparation, float64(m.threads()))
	busy := float64(threads) / (each * cores) // of the node, for a sample; each: samples/s of all
	return float64(threads) * max(0, busy+m.SourceWork/cores-1/each)
}

// source adds what is known of reads from the source. They are as fast as the streams of the loader
// make them: latency is a part of the rate.
func (m *Measured) source(k *model.Node, tier func(float64) model.Known) {
	total := 0.0 // of all nodes
	if len(m.Source) > 0 {
		top := best(m.Source)
		k.Streams, total = top.N, top.Median
		if n := m.Loader.Streams; n > 0 {
			k.Streams, total = n, at(m.Source, float64(n))
		}
	}
	mb := m.sample()
	for _, p := range m.Sources {
		k.Sources = append(k.Sources, model.Point{Clients: p.N, MBps: p.Median * mb})
		k.SourcesOrigin = model.Probed
	}
	if len(m.Sources) > 0 {
		k.Sources = k.Sources.Rising()
		all := k.Sources.At(float64(m.Nodes)) / mb
		if few := total * float64(m.Nodes); m.Loader.Streams > 0 && few > 0 {
			all = min(all, few) // they were measured with as many streams as are fastest
		}
		total = all
	}
	if total > 0 {
		// Without other measurements, several nodes get together what one gets.
		k.Source = tier(total / float64(m.Nodes))
	}
}

// Environment returns the job's machine as `hdmlp probe --out` writes it.
func (m *Measured) Environment() []byte {
	r := m.rising().Run()
	for j := range r.Known.Classes {
		r.Known.Classes[j].Path = "" // not known here
	}
	size := model.Size{
		Sample: m.sample(), Nodes: m.Nodes, Staging: staging(m.sample(), m.Batch, r.Known.Streams),
	}
	for _, c := range r.Capacity {
		size.Capacity = append(size.Capacity, float64(c)/mega)
	}
	return envfile.Encode(envfile.File{
		Node: r.Known, Size: size, Threads: max(r.Transformers, 1), Work: r.SourceWork,
	})
}

// staging returns the capacity of a staging buffer, in MB, for samples of mb MB.
func staging(mb float64, batch, streams int) float64 {
	return mb * float64(max(4*batch, 2*streams))
}

// rates returns the rates of the run after changes, and the tiers that an epoch is read from.
func rates(r *remedy.Run, serial bool, changes []remedy.Change) (Rates, []Part) {
	env, later, names := remedy.Model(r, changes)
	mb := later.Sample
	parts := make([]Part, 0, len(names)+2)
	own := 0.0
	for j, name := range names {
		c := &env.Classes[j+1]
		held := min(c.Capacity/later.Data, 1-own)
		own += held
		parts = append(parts, Part{name, held, env.ClassRate(j+1, later.Nodes) / mb})
	}
	peers := min(own*float64(later.Nodes), 1) - own
	parts = append(parts,
		Part{remedy.Network, peers, env.PeerBandwidth / mb},
		Part{remedy.Source, 1 - own - peers, env.NodeSourceRate(later.Nodes, mb) / mb})
	rate := func(mbps float64) float64 {
		if mbps >= unlimited {
			return math.Inf(1)
		}
		return mbps / mb
	}
	return Rates{
		Fetch:       Fetch(parts),
		Preparation: rate(env.Preprocess * float64(max(later.Transformers, 1))),
		Training:    rate(env.Compute),
		Reading:     max(1-own-peers, 0) * env.SourceWork / float64(max(later.Transformers, 1)),
		Serial:      serial,
	}, parts
}

// unlimited is the rate in MB/s from which on it is not a measured one.
const unlimited = 1e6
