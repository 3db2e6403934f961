package process

import (
	"context"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// changes make a request of one rank invalid for a dataset with so many samples.
func changes(samples int) []func(*request.Open) (list []int) {
	subset := func(ids ...int) func(*request.Open) []int {
		return func(m *request.Open) []int {
			m.Stream.Subset = &request.Subset{Count: len(ids)}
			return ids
		}
	}
	given := func(g request.Given, list ...int) func(*request.Open) []int {
		return func(m *request.Open) []int {
			m.Stream.Shuffle, m.Stream.Given = "given", &g
			return list
		}
	}
	stream := func(change func(*request.Stream)) func(*request.Open) []int {
		return func(m *request.Open) []int {
			change(&m.Stream)
			return nil
		}
	}
	return []func(*request.Open) []int{
		subset(0, samples), subset(-1, 0), subset(),
		given(request.Given{Batches: 1, Entries: 1, Epochs: 1}, 2, 0), // a batch of 2
		given(request.Given{Batches: 2, Entries: 1, Epochs: 1}, 1, 0, 0),
		given(request.Given{Batches: 1, Entries: 1, Epochs: 1}, 1, samples),
		given(request.Given{Batches: 1, Entries: 1, Epochs: 1}, 1, -1),
		given(request.Given{Batches: 1, Entries: 1, Epochs: 1, First: -1}, 1, 0),
		given(request.Given{Batches: 1, Entries: 1, Epochs: 2}, 1, 0), // a list of one epoch
		given(request.Given{Entries: 1, Epochs: 1}, 0),
		stream(func(s *request.Stream) { s.GlobalBatch = 0 }),
		stream(func(s *request.Stream) { s.Epochs = -1 }),
		stream(func(s *request.Stream) { s.Epochs = 1 << 40 }),
		stream(func(s *request.Stream) { s.GlobalBatch, s.DropLast = samples+1, true }),
		stream(func(s *request.Stream) { s.Shuffle = "given" }), // no order follows
		stream(func(s *request.Stream) { s.Shuffle = "shuffled" }),
		stream(func(s *request.Stream) { s.Scheme = "any" }),
		stream(func(s *request.Stream) { s.Tail = "long" }),
		func(m *request.Open) []int {
			m.WorldSize = 1 << 40
			return nil
		},
	}
}

// Invalid makes requests that are invalid, each a change of m, which one rank may make of a dataset
// with so many samples. It returns those that are not refused.
func Invalid(ctx context.Context, n *node.Node, m request.Open, samples int) (granted []string) {
	for i, change := range changes(samples) {
		changed := m
		numbers := change(&changed)
		list, err := List(numbers)
		if err != nil {
			return append(granted, err.Error())
		}
		if changed.Stream.Subset != nil || changed.Stream.Given != nil {
			changed.Stream.List = list
		}
		changed.Job = fmt.Sprint(m.Job, i)
		rank, err := n.Open(ctx, changed, nil, func(request.Step) {})
		_ = list.Close()
		if err == nil {
			rank.Close()
			granted = append(granted, fmt.Sprintf("number %d, %+v", i, changed.Stream))
		}
	}
	return granted
}
