package catalog

import (
	"slices"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Live is what is known of a node while a job runs: the performance model's numbers, which begin
// with what the user has given, what an earlier job or hdmlp probe stored beside the dataset's
// index, or guesses, and which reads then measure. Given numbers stay. Known, Store and SetTraining
// are safe for concurrent use.
type Live struct {
	// Network measures reads from the other nodes; nil: the job has one node.
	Network Network

	dataset  *Dataset
	cache    *cache.Cache
	nodes    int
	start    model.Node
	training atomic.Pointer[Training]
}

// Network measures reads from the other nodes of a job.
type Network interface {
	// Know sets what is known before anything is measured.
	Know(k model.Known)
	// Known returns what is known now, for samples of a mean size in MB.
	Known(size float64) model.Known
}

// Training measures what takes samples; 0 is not known.
type Training interface {
	Consumes() float64   // c: what the training on this node consumes, MB/s
	Transforms() float64 // beta: what one thread transforms, MB/s
}

// Live returns what is known of the node for a job of this many nodes, which has joined the cache.
func (d *Dataset) Live(nodes int, joined *cache.Cache) *Live {
	d.entry.mu.Lock()
	defer d.entry.mu.Unlock()
	return &Live{dataset: d, cache: joined, nodes: nodes, start: d.entry.known}
}

// Start returns what was known before anything was measured.
func (l *Live) Start() model.Node { return l.start }

// SetTraining sets what measures the training.
func (l *Live) SetTraining(t Training) { l.training.Store(&t) }

// Known returns what is known now.
func (l *Live) Known() model.Node {
	n, size := l.start, l.size()
	n.Classes, n.Sources = slices.Clone(n.Classes), slices.Clone(n.Sources)
	n.Streams = l.cache.Streams()
	read, written := l.cache.Meters()
	n.Source = read["source"].Known()
	for i := range n.Classes {
		c := &n.Classes[i]
		if m := read[c.Name]; m != nil {
			c.Read = m.Known()
		}
		if m := written[c.Name]; m != nil {
			c.Write = m.Known()
		}
	}
	if l.Network != nil {
		n.Network = l.Network.Known(size)
	}
	if t := l.training.Load(); t != nil {
		measure(&n.Compute, (*t).Consumes())
		measure(&n.Preprocess, (*t).Transforms())
	}
	return n
}

// size returns the mean size of a sample, in MB.
func (l *Live) size() float64 { return float64(mean(l.dataset.Index())) / 1e6 }

// measure sets a number that was measured, in MB/s, unless the user has given it.
func measure(to *model.Value, rate float64) {
	if to.Origin != model.Given && rate > 0 {
		*to = model.Value{Number: rate, Origin: model.Measured}
	}
}

// Store stores what was measured of the machine beside the dataset's index, for the next job: of
// each tier what enough reads have shown (meter.Meter.Settled), else what this job began with. It
// does not store what the user has given, which holds as long as the user gives it, nor compute and
// preprocess, which hold for the training script alone: of these, what is stored stays, such as the
// transforms that hdmlp probe measured. staging is the capacity of the staging buffers, in bytes,
// and threads how many samples can be transformed at the same time. If the source was not measured,
// or the dataset has no place for it, it does nothing.
func (l *Live) Store(staging int64, threads int) error {
	beside, ok := source.As[source.Beside](l.dataset.entry.source)
	if !ok {
		return nil
	}
	read, written := l.cache.Meters()
	known := l.Known()
	if known.Source, ok = read["source"].Settled(); !ok {
		return nil
	}
	for i := range known.Classes {
		c, began := &known.Classes[i], &l.start.Classes[i]
		if c.Read, ok = read[c.Name].Settled(); !ok {
			c.Read = began.Read
		}
		if c.Write, ok = written[c.Name].Settled(); !ok {
			c.Write = began.Write
		}
	}
	stored, _, _ := l.dataset.readStored() // what cannot be used is replaced
	known.Compute, known.Preprocess = stored.Node.Compute, stored.Node.Preprocess
	if known.Preprocess.Number > 0 { // so many threads at that rate each
		threads = stored.Threads
	}
	f := envfile.File{
		Node: ungiven(known),
		Size: model.Size{
			Sample: l.size(), Nodes: l.nodes, Staging: float64(staging) / 1e6,
		},
		Threads: threads, Work: stored.Work,
	}
	for _, c := range l.dataset.Classes() {
		f.Size.Capacity = append(f.Size.Capacity, float64(c.Capacity)/1e6)
	}
	_, err := beside.WriteBeside(envfile.Suffix, envfile.Encode(f))
	return err
}

// ungiven returns what is known without what the user has given.
func ungiven(n model.Node) model.Node {
	if n.SourceNetwork.Origin == model.Given {
		n.SourceNetwork = model.Value{}
	}
	forget := func(k *model.Known, guess model.Known) {
		if k.Origin == model.Given {
			*k = guess
		}
	}
	forget(&n.Network, model.GuessedPeer)
	forget(&n.Source, model.GuessedSource)
	if n.SourcesOrigin == model.Given {
		n.Sources, n.SourcesOrigin = nil, ""
	}
	for i := range n.Classes {
		c := &n.Classes[i]
		forget(&c.Read, c.Guess())
		forget(&c.Write, c.Guess())
	}
	return n
}
