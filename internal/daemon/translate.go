package daemon

import (
	"errors"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/job"
	"github.com/hdmlp/hdmlp/internal/protocol"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/stage"
)

// What processes say and are told, in the words of the protocol and in those of the rooms below,
// which do not know it. This file is the only place where one becomes the other.

// Protocol is the version of the protocol that the daemon speaks.
const Protocol = protocol.Version

// A batch that the rooms below allow fits into its frame. This does not compile where it does not.
const _ = uint(protocol.MaxBatch - request.MaxBatch)

// explain says of any error what a process is told. The result is the caller's.
func explain(err error) *protocol.ErrorMessage {
	var message *protocol.ErrorMessage
	switch {
	case errors.As(err, &message):
		copied := *message
		return &copied
	case errors.Is(err, protocol.ErrProtocol):
		return &protocol.ErrorMessage{Kind: protocol.KindProtocol, Message: err.Error()}
	}
	e := failure.Of(err)
	return &protocol.ErrorMessage{Kind: string(e.Kind), Message: e.Message, Details: e.Details}
}

func datasetSpec(m protocol.DatasetMessage) dataset.Spec {
	return dataset.Spec{Kind: m.Kind, Path: m.Path, Extensions: m.Extensions}
}

func settings(m protocol.Settings) request.Settings {
	return request.Settings{
		Arguments:   m.Arguments,
		Environment: m.Environment,
		ConfigFile:  m.ConfigFile,
	}
}

// openRequest is what an OPEN asks for.
func openRequest(m *protocol.OpenMessage) request.Open {
	s := &m.Stream
	out := request.Open{
		Job: m.Job, Rank: m.Rank, WorldSize: m.WorldSize,
		Dataset: datasetSpec(m.Dataset), Transforms: m.Transforms, Verify: m.Verify,
		Settings: settings(m.Settings),
		Stream: request.Stream{
			Seed: s.Seed, Epochs: s.Epochs, GlobalBatch: s.GlobalBatch, DropLast: s.DropLast,
			Shuffle: s.Shuffle, Scheme: s.Scheme, Tail: s.Tail, List: s.List,
		},
	}
	if s.Subset != nil {
		out.Stream.Subset = &request.Subset{Count: s.Subset.Count}
	}
	if g := s.Given; g != nil {
		out.Stream.Given = &request.Given{
			Batches: g.Batches, Entries: g.Entries, Epochs: g.Epochs, First: g.First,
			Batch: g.Batch, Seed: g.Seed, Apart: g.Apart,
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

func giveRequest(m protocol.GiveMessage) request.Give {
	return request.Give{Epoch: m.Epoch, Entries: m.Entries, Apart: m.Apart}
}

func progressMessage(s request.Step) protocol.ProgressMessage {
	return protocol.ProgressMessage{What: s.What, Done: s.Done, Warning: s.Warning}
}

func openedMessage(o job.Opened) protocol.OpenedMessage {
	m := protocol.OpenedMessage{
		Samples: o.Samples, Classes: o.Classes, ClassSizes: o.ClassSizes, Bytes: o.Bytes,
		Fingerprint: o.Fingerprint,
		Seed:        o.Seed, Steps: o.Steps, RankSamples: o.RankSamples, Positions: o.Positions,
		PrefetchBatches: o.PrefetchBatches, Warnings: o.Warnings,
	}
	if o.Output != nil {
		m.Output = &protocol.OutputMessage{Shape: o.Output.Shape, Type: o.Output.Type}
	}
	return m
}

func batchMessage(generation uint64, b *stage.Batch) protocol.BatchMessage {
	return protocol.BatchMessage{
		Generation: generation, Epoch: uint32(b.Epoch), Step: uint32(b.Step), Audit: b.Audit,
		Labels: b.Labels, Offsets: b.Offsets, Lengths: b.Lengths, IDs: b.IDs, Segments: b.Segments,
		Slots: b.Slots,
	}
}

func stall(m *protocol.AckMessage) stage.Stall {
	return stage.Stall{All: time.Duration(m.StallNanos), Python: time.Duration(m.PythonNanos)}
}
