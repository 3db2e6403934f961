package process

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/request"
)

// Explain returns what the job says of a rank's batch: its samples and their labels.
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
	return wrong
}
