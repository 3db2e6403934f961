package daemon

import (
	"errors"
	"maps"
	"time"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
)

// This file translates between the protocol's messages and the types of the packages below, which
// do not import the protocol. No other file does.

// Protocol is the protocol version that the daemon speaks.
const Protocol = protocol.Version

// A batch of the largest size that request allows fits into a frame: otherwise this does not
// compile.
const _ = uint(protocol.MaxBatch - request.MaxBatch)

// errorMessage returns the message that a process gets for err. The caller owns the result.
func errorMessage(err error) *protocol.ErrorMessage {
	var message *protocol.ErrorMessage
	switch {
	case errors.As(err, &message):
		copied := *message
		return &copied
	case errors.Is(err, protocol.ErrProtocol):
		return &protocol.ErrorMessage{Kind: protocol.KindProtocol, Message: err.Error()}
	}
	e := failure.Of(err)
	details := maps.Clone(e.Details)
	if path, ok := details["path"].(string); ok {
		details["path"] = protocol.Name(path)
	}
	return &protocol.ErrorMessage{Kind: string(e.Kind), Message: e.Message, Details: details}
}

func datasetSpec(m protocol.DatasetMessage) source.Spec {
	values := make(option.Values)
	for key, o := range m.Options {
		values[key] = o.Value
	}
	return source.Spec{Kind: m.Kind, Path: m.Path, Options: values}
}

func settings(m protocol.Settings) request.Settings {
	return request.Settings{
		Arguments:   m.Arguments,
		Environment: m.Environment,
		ConfigFile:  m.ConfigFile,
	}
}

// openRequest translates OPEN.
func openRequest(m *protocol.OpenMessage) request.Open {
	s := &m.Stream
	out := request.Open{
		Job: m.Job, Rank: m.Rank, WorldSize: m.WorldSize,
		Dataset: datasetSpec(m.Dataset), Transforms: m.Transforms, Verify: m.Verify,
		Leave:    m.Leave,
		Settings: settings(m.Settings), Share: request.Share(m.Share),
		Stream: request.Stream{
			Seed: s.Seed, Epochs: s.Epochs, GlobalBatch: s.GlobalBatch, DropLast: s.DropLast,
			Shuffle: s.Shuffle, Scheme: s.Scheme, Tail: s.Tail, List: s.List,
		},
	}
	if s.Subset != nil {
		out.Stream.Subset = &request.Subset{Count: s.Subset.Count}
	}
	if s.Mix != nil {
		mix := request.Mix(*s.Mix)
		out.Stream.Mix = &mix
	}
	if g := s.Given; g != nil {
		out.Stream.Given = &request.Given{
			Batches: g.Batches, Entries: g.Entries, Epochs: g.Epochs, First: g.First,
			Batch: g.Batch, Rank: g.Rank, Ranks: g.Ranks, Seed: g.Seed, Apart: g.Apart,
		}
	}
	if c := m.Cluster; c != nil {
		out.Cluster = &request.Cluster{
			Nodes: c.Nodes, Node: c.Node, LocalWorldSize: c.LocalWorldSize, Address: c.Address,
			Loader: c.Loader, Secret: c.Secret,
		}
	}
	return out
}

// launchRequest translates the launch of a call; nil: there is none.
func launchRequest(m *protocol.LaunchMessage) *request.Launch {
	if m == nil {
		return nil
	}
	return &request.Launch{
		Name: m.Name, Nodes: m.Nodes, Node: m.Node, Address: m.Address, Secret: m.Secret,
	}
}

func giveRequest(m protocol.GiveMessage) request.Give {
	return request.Give{Epoch: m.Epoch, Entries: m.Entries, Apart: m.Apart}
}

func progressMessage(s request.Step) protocol.ProgressMessage {
	return protocol.ProgressMessage{What: s.What, Done: s.Done, Warning: s.Warning}
}

func openedMessage(o job.Opened) protocol.OpenedMessage {
	m := protocol.OpenedMessage{
		Samples: o.Samples, Bytes: o.Bytes,
		Classes: protocol.Names(o.Classes), ClassSizes: o.ClassSizes,
		Fingerprint: o.Fingerprint,
		Seed:        o.Seed, Epoch: o.Epoch, Steps: o.Steps, RankSamples: o.RankSamples,
		Positions:       o.Positions,
		PrefetchBatches: o.PrefetchBatches, Order: o.Order, Warnings: o.Warnings,
	}
	for _, out := range o.Outputs {
		m.Outputs = append(m.Outputs, protocol.OutputMessage{
			Field: protocol.Name(out.Field), Shape: out.Shape, Type: out.Type, View: out.View,
			ChannelsLast: out.ChannelsLast, Sized: out.Sized,
		})
	}
	return m
}

func batchMessage(generation uint64, b *stage.Batch) protocol.BatchMessage {
	return protocol.BatchMessage{
		Generation: generation, Epoch: uint32(b.Epoch), Step: uint32(b.Step), Audit: b.Audit,
		Labels: b.Labels, Offsets: b.Offsets, Lengths: b.Lengths, IDs: b.IDs,
		Occurrences: b.Occurrences, Segments: b.Segments, Slots: b.Slots, Left: leftMessages(b.Left),
	}
}

func leftMessages(left []stage.Left) (messages []protocol.LeftSample) {
	for _, l := range left {
		messages = append(messages, protocol.LeftSample(l))
	}
	return messages
}

func stall(m *protocol.AckMessage) stage.Stall {
	return stage.Stall{All: time.Duration(m.StallNanos), Python: time.Duration(m.PythonNanos)}
}
