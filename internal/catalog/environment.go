package catalog

import (
	"cmp"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/environment"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// stored returns what Live.Store stored. It ignores what cannot be used, with a warning in the log.
func (d *Dataset) stored() (node perfmodel.Node) {
	beside, ok := dataset.As[dataset.Beside](d.entry.source)
	if !ok {
		return node
	}
	data, path, err := beside.ReadBeside(environment.Suffix, environment.MaxBytes)
	if err == nil && path == "" {
		return node
	}
	var f environment.File
	if err == nil {
		f, err = environment.Decode(data)
	}
	if err != nil {
		d.entry.log.Warn("what is stored of this machine is not used; it is measured again and "+
			"replaced when the job ends", "path", path, "error", err)
		return node
	}
	return f.Node
}

// startingNode returns what is known before anything is measured, in a job of this many nodes.
// d.entry.mu must be held, and the classes be open.
func (d *Dataset) startingNode(cfg *config.Config, nodes int) perfmodel.Node {
	known, size := d.stored(), float64(mean(d.Index()))/1e6
	known.Streams = 0
	if known.Source.Origin == "" {
		known.Source = perfmodel.GuessedSource
	}
	if known.Network.Origin == "" {
		known.Network = perfmodel.GuessedPeer
	}
	classes := known.Classes
	known.Classes = nil
	for i, c := range d.entry.classes {
		class := perfmodel.NodeClass{
			Name: c.Name, Path: c.Path, Stores: c.Threads,
		}
		class.Read, class.Write = class.Guess(), class.Guess()
		for _, was := range classes {
			if was.Name == c.Name && was.Path == c.Path {
				class.Read, class.Write = was.Read, was.Write
			}
		}
		given := cfg.StorageClasses[i]
		if len(given.Read) > 0 {
			class.Read = perfmodel.GivenCurve(perfmodel.NewCurve(given.Read), 0, size)
		}
		if len(given.Write) > 0 {
			class.Write = perfmodel.GivenCurve(perfmodel.NewCurve(given.Write), 0, size)
		}
		known.Classes = append(known.Classes, class)
	}
	give(&known, cfg.Environment, nodes)
	return known
}

// give replaces what the configuration says.
func give(known *perfmodel.Node, e config.Environment, nodes int) {
	for _, g := range []struct {
		to    *perfmodel.Value
		given float64
	}{
		{&known.Compute, e.Compute},
		{&known.Preprocess, e.Preprocess},
		{&known.SourceNetwork, e.SourceNetwork},
	} {
		if g.given > 0 {
			*g.to = perfmodel.Value{Number: g.given, Origin: perfmodel.Given}
		}
	}
	if e.Network > 0 {
		known.Network = perfmodel.GivenRate(e.Network, perfmodel.GuessedPeer.Latency)
	}
	if len(e.Source) > 0 {
		known.Sources, known.SourcesOrigin = perfmodel.NewCurve(e.Source), perfmodel.Given
		rate := known.Sources.At(float64(nodes)) / float64(nodes)
		if e.SourceNetwork > 0 {
			rate = min(rate, e.SourceNetwork)
		}
		known.Source = perfmodel.GivenRate(rate, e.SourceLatency)
		return
	}
	if e.SourceNetwork > 0 { // at most that fast; what else is known remains
		known.Source.PerMB = max(known.Source.PerMB, 1/e.SourceNetwork)
		known.Source.Queued = max(known.Source.Queued, 1/e.SourceNetwork)
	}
	known.Source.Latency = cmp.Or(e.SourceLatency, known.Source.Latency)
}

// tiersOf returns what is known of reads from tiers, and of writes to them, by name.
func tiersOf(n *perfmodel.Node) (read, written map[string]perfmodel.Known) {
	read = map[string]perfmodel.Known{"source": n.Source}
	written = map[string]perfmodel.Known{}
	for _, c := range n.Classes {
		read[c.Name], written[c.Name] = c.Read, c.Write
	}
	return read, written
}
