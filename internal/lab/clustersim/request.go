package clustersim

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// request returns the request to open the job as a rank.
func (l *launch) request(rank int) request.Open {
	s := l.script
	seed := s.Seed
	memory, disk := s.Caches(rank / l.Ranks)
	m := request.Open{
		Job: "job", Rank: rank, WorldSize: l.WorldSize(),
		Stream: request.Stream{
			Seed: &seed, Epochs: s.Epochs, GlobalBatch: s.Batch, DropLast: s.DropLast,
			Shuffle: s.Shuffle, Scheme: s.Scheme, Tail: s.Tail,
		},
		Verify: s.Verify,
		Settings: request.Settings{ConfigFile: l.config, Arguments: map[string]any{
			"memory": fmt.Sprintf("%dB", memory), "staging_buffer": fmt.Sprintf("%dB", s.Staging),
			"on_error":       s.OnError,
			"source_timeout": s.Timeout.D().String(), "start_timeout": startTimeout.String(),
		}},
	}
	m.Dataset.Kind, m.Dataset.Path = "simulated", dataPath
	if s.Policy != "" {
		m.Arguments["policy"] = s.Policy
	}
	if s.Prefetch > 0 {
		m.Arguments["prefetch_batches"] = s.Prefetch
	}
	if s.Threads > 0 {
		m.Arguments["source_threads"] = s.Threads
	}
	if disk > 0 {
		m.Arguments["cache_dir"] = l.cacheDir(rank / l.Ranks)
		m.Arguments["cache_size"] = fmt.Sprintf("%dB", disk)
	}
	if s.TLS {
		m.Arguments["tls"] = true
	}
	if chosen := s.Chosen(); chosen != nil {
		m.Stream.Subset, m.Stream.List = &request.Subset{Count: len(chosen)}, l.list
	}
	if s.Mix > 0 {
		sizes, weights := s.MixSizes(), script.MixWeights
		m.Stream.Mix = &request.Mix{
			Sizes: sizes[:], Weights: [][]uint64{{uint64(weights[0]), uint64(weights[1])}},
			Entries: s.Mix,
		}
	}
	if s.Shuffle == "given" {
		m.Stream.Given = &request.Given{
			Epochs: 1, First: l.from.Epoch, Batch: s.Batch / l.WorldSize(), Seed: seed,
		}
	}
	if s.Transforms {
		m.Transforms = fmt.Appendf(nil, `[
			{"name": "Reshape", "w": %d, "h": 1, "c": 1, "dtype": "uint8"},
			{"name": "ScaleShift16", "scale": 0.5, "shift": [1]}]`, s.Largest)
	}
	if l.Nodes > 1 {
		m.Cluster = &request.Cluster{
			Nodes: l.Nodes, Node: rank / l.Ranks, LocalWorldSize: l.Ranks,
			Address: ip(0) + ":6000", Secret: "0123456789abcdef0123456789abcdef",
		}
	}
	if l.odd(rank) || l.number == 0 && s.Differs == script.TheSecret && rank/l.Ranks == l.Nodes-1 {
		process.Differ(&m, s, otherPath)
	}
	return m
}

// content returns what is due for samples on a rank.
func (l *launch) content(rank int) func(id int) []byte {
	s := l.script
	if s.Differs == script.TheData && l.odd(rank) { // it may be the others that are refused
		return func(id int) []byte { return s.Transformed(another{s}.Content(0, id)) }
	}
	return func(id int) []byte { return s.Delivered(rank/l.Ranks, id) }
}

// odd reports whether a rank differs from the others, if one does.
func (l *launch) odd(rank int) bool { return l.number == 0 && rank == l.WorldSize()-1 }

// part returns the parts of epochs that a rank gives; nil: none.
func (l *launch) part(rank int) func(epoch int) []int {
	if l.script.Shuffle != "given" {
		return nil
	}
	return func(epoch int) []int {
		part := l.script.Part(epoch, rank, l.WorldSize())
		switch {
		case !l.odd(rank) || epoch == 0:
		case l.script.Differs == script.ThePart:
			part = append(part, part[0])
		case l.script.Differs == script.TheEpoch && epoch == 1: // which it leaves out
			return nil
		}
		return part
	}
}

// decodes reports whether processes can decode a sample.
func (l *launch) decodes(id int) bool { return !slices.Contains(l.script.Undecodable, id) }

// lies returns the epoch in which a rank reports other samples than it got; -1: none.
func (l *launch) lies(rank int) int {
	if l.script.Lies && rank == 0 {
		return l.script.Epochs - 1
	}
	return -1
}
