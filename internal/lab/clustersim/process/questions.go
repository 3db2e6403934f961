package process

import (
	"context"
	"slices"

	"github.com/hdmlp/hdmlp/internal/node/request"
)

// Explain returns what the job reports of a rank's batch: its samples and their labels.
func (p *Process) Explain(epoch, step, rank int) (ids, labels []int, err error) {
	x, err := p.rank.Explain(epoch, step, rank)
	if err != nil {
		return nil, nil, err
	}
	ids = []int{}
	for _, id := range x.IDs {
		ids = append(ids, int(id))
	}
	return ids, x.Labels, nil
}

// Granted makes requests that are wrong in a job with so many samples and ranks, and returns those
// that are not refused.
func (p *Process) Granted(samples, ranks int) (wrong []string) {
	refused := func(what string, err error) {
		if err == nil {
			wrong = append(wrong, what)
		}
	}
	explain := func(epoch, step, rank int) error {
		_, err := p.rank.Explain(epoch, step, rank)
		return err
	}
	refused("a batch of a rank after the last", explain(0, 0, ranks))
	refused("a batch of an epoch before the first", explain(-1, 0, 0))
	refused("a batch before an epoch's first", explain(0, -1, 0))
	refused("a batch after an epoch's last", explain(0, p.steps, 0))
	refused("to begin after an epoch's end", p.rank.Check(0, p.steps+1))
	for _, id := range []int{-1, samples} {
		_, err := p.rank.Unusable(id, "it does not exist")
		refused("a sample that does not exist cannot be decoded", err)
	}
	_, err := p.rank.Audit(context.Background(), -1)
	refused("an audit of an epoch before the first", err)
	if p.o.Part == nil {
		_, err = p.rank.Audit(context.Background(), p.o.Request.Stream.Epochs)
		refused("an audit of an epoch after the last", err)
	}
	list, err := List(nil)
	if err != nil {
		return append(wrong, err.Error())
	}
	defer list.Close() //nolint:errcheck // it is memory
	refused("the order of an epoch before the first", p.rank.Give(request.Give{Epoch: -1}, list))
	if p.o.Part != nil {
		p.ungiven(refused, samples)
	}
	return wrong
}

// ungiven gives parts of epochs that must be refused: of the latest epoch in another order, and of
// the next one with a sample that does not exist.
func (p *Process) ungiven(refused func(what string, err error), samples int) {
	give := func(epoch int, numbers []int) error {
		list, err := List(numbers)
		if err != nil {
			return err
		}
		defer list.Close() //nolint:errcheck // it is memory
		return p.rank.Give(request.Give{Epoch: epoch, Entries: len(numbers)}, list)
	}
	mine := p.o.Part(p.given)
	if other := slices.Clone(mine); len(other) > 1 && other[0] != other[1] {
		other[0], other[1] = other[1], other[0]
		refused("another order of an epoch that is known", give(p.given, other))
	}
	if p.o.Request.WorldSize > 1 {
		other := slices.Clone(mine)
		other[0] = samples
		refused("an order with a sample that does not exist", give(p.given+1, other))
	}
}
