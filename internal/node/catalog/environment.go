package catalog

import (
	"cmp"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/source"
)

// stored returns what is stored beside the dataset's index. It ignores what cannot be used, with a
// warning in the log.
func (d *Dataset) stored() model.Node {
	f, path, err := d.readStored()
	if err != nil {
		d.entry.log.Warn("what is stored of this machine is not used; it is measured again and "+
			"stored when the job ends", "path", path, "error", err)
	}
	return f.Node
}

// readStored returns what is stored, and where; nothing if there is no file.
func (d *Dataset) readStored() (f envfile.File, path string, err error) {
	beside, ok := source.As[source.Beside](d.entry.source)
	if !ok {
		return f, "", nil
	}
	return envfile.Stored(beside)
}

// startingNode returns what is known before anything is measured, in a job of this many nodes.
func (d *Dataset) startingNode(cfg *config.Config, nodes int) model.Node {
	return StartingNode(d.stored(), cfg, nodes, float64(mean(d.Index()))/1e6)
}

// StartingNode returns what a job of this many nodes begins with, on samples of a mean size in MB:
// what the configuration gives, or else what is stored of the machine, or else guesses.
//
// What is stored of compute and preprocess is not used: they are the training script's, not the
// machine's, and the next job may run another script.
func StartingNode(stored model.Node, cfg *config.Config, nodes int,
	size float64,
) model.Node {
	known := stored
	known.Streams = 0
	known.Compute, known.Preprocess = model.Value{}, model.Value{}
	if known.Source.Origin == "" {
		known.Source = model.GuessedSource
	}
	if known.Network.Origin == "" {
		known.Network = model.GuessedPeer
	}
	known.Classes = nil
	names := classNames(cfg.StorageClasses)
	for i, given := range cfg.StorageClasses {
		class := model.NodeClass{
			Name: names[i], Path: given.Path(), Stores: given.Threads,
		}
		class.Read, class.Write = class.Guess(), class.Guess()
		for _, was := range stored.Classes {
			if was.Name == class.Name && was.Path == class.Path {
				class.Read, class.Write = was.Read, was.Write
			}
		}
		if len(given.Read) > 0 {
			class.Read = model.GivenCurve(model.NewCurve(given.Read), 0, size)
		}
		if len(given.Write) > 0 {
			class.Write = model.GivenCurve(model.NewCurve(given.Write), 0, size)
		}
		known.Classes = append(known.Classes, class)
	}
	give(&known, cfg.Environment, nodes)
	return known
}

// give replaces the numbers that the configuration gives.
func give(known *model.Node, e config.Environment, nodes int) {
	for _, g := range []struct {
		to    *model.Value
		given float64
	}{
		{&known.Compute, e.Compute},
		{&known.Preprocess, e.Preprocess},
		{&known.SourceNetwork, e.SourceNetwork},
	} {
		if g.given > 0 {
			*g.to = model.Value{Number: g.given, Origin: model.Given}
		}
	}
	if e.Network > 0 {
		known.Network = model.GivenRate(e.Network, model.GuessedPeer.Latency)
	}
	if len(e.Source) > 0 {
		known.Sources, known.SourcesOrigin = model.NewCurve(e.Source), model.Given
		rate := known.Sources.At(float64(nodes)) / float64(nodes)
		if e.SourceNetwork > 0 {
			rate = min(rate, e.SourceNetwork)
		}
		known.Source = model.GivenRate(rate, e.SourceLatency)
		return
	}
	if e.SourceNetwork > 0 { // at most that fast; what else is known remains
		known.Source.PerMB = max(known.Source.PerMB, 1/e.SourceNetwork)
		known.Source.Queued = max(known.Source.Queued, 1/e.SourceNetwork)
	}
	known.Source.Latency = cmp.Or(e.SourceLatency, known.Source.Latency)
}

// tiersOf returns what is known of reads from tiers, and of writes to them, by name.
func tiersOf(n *model.Node) (read, written map[string]model.Known) {
	read = map[string]model.Known{"source": n.Source}
	written = map[string]model.Known{}
	for _, c := range n.Classes {
		read[c.Name], written[c.Name] = c.Read, c.Write
	}
	return read, written
}
