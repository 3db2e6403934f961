package process

import (
	"context"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Account returns what the node reports of the job.
func (p *Process) Account() *judge.Account {
	rep := p.rank.Report()
	a := &judge.Account{
		Source: amount(rep.Source), Tiers: map[string]judge.Amount{},
		Within: map[string]judge.Amount{}, Odd: p.odd(rep),
		Reading: rep.Waiting != nil, Planning: rep.Planning,
		Positions: rep.Positions, Needed: int(rep.Needed),
	}
	for _, r := range rep.Ranks {
		for _, e := range r.Epochs {
			pass := judge.Pass{
				Rank: r.Rank, Epoch: e.Epoch, Batches: int(e.Batches), Samples: int(e.Samples),
				Reads:  map[string]judge.Amount{},
				Waited: time.Duration(e.StallSeconds() * float64(time.Second)),
			}
			for tier, read := range e.Reads {
				pass.Reads[tier] = amount(read)
			}
			a.Passes = append(a.Passes, pass)
		}
	}
	for _, n := range rep.Peers {
		a.Failed += int(n.Failed)
	}
	for _, e := range rep.Epochs {
		direct := amount(e.Direct)
		a.Direct.Samples += direct.Samples
		a.Direct.Bytes += direct.Bytes
		for _, t := range e.Tiers {
			sum := a.Within[t.Tier]
			sum.Samples, sum.Bytes = sum.Samples+int(t.Samples), sum.Bytes+int(t.Bytes)
			a.Within[t.Tier] = sum
		}
	}
	for _, t := range rep.Tiers {
		a.Tiers[t.Tier] = amount(report.Amount{Samples: t.Samples, Bytes: t.Bytes})
	}
	for _, c := range rep.Classes {
		a.Held = append(a.Held, judge.Holding{
			Name: c.Name, Capacity: int(c.Capacity), Used: int(c.Used), AtStart: int(c.Held.Bytes),
		})
	}
	return a
}

// Sum returns what the node reports of the job over all nodes.
func (p *Process) Sum(ctx context.Context) (*judge.Sum, error) {
	reports, err := p.o.Node.ClusterReports(ctx, p.o.Request.Job)
	if err != nil {
		return nil, err
	}
	if len(reports) != 1 {
		return nil, fmt.Errorf("%d reports of the job", len(reports))
	}
	r := reports[0]
	s := &judge.Sum{
		Nodes: len(r.Nodes), Batches: int(r.Total.Batches), Source: amount(r.Total.Source),
		Reads: map[string]judge.Amount{}, Bound: int(r.Bound),
		Waited: time.Duration(r.Total.StallSeconds() * float64(time.Second)),
	}
	for tier, read := range r.Total.Reads {
		s.Reads[tier] = amount(read)
	}
	for _, n := range r.Nodes {
		s.Ranks += len(n.Ranks)
	}
	for _, c := range r.Classes {
		s.Capacity += int(c.Capacity)
	}
	return s, nil
}

func amount(a report.Amount) judge.Amount {
	return judge.Amount{Samples: int(a.Samples), Bytes: int(a.Bytes)}
}

// odd returns what in a report is due to faults only, or is not as it was requested.
func (p *Process) odd(r *report.Report) (all []string) {
	say := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	for _, n := range r.Peers { // those that have ended are gone
		say(n.Alive && n.Bypassed, "%+v", n)
	}
	for _, c := range r.Classes {
		say(c.Silent > 0 || c.Hangs != nil || c.LongestWrite > 0, "%+v", c)
		say(c.Returned != nil && c.Returned.Segments > 0, "%+v", c)
	}
	m := &p.o.Request
	say(r.Job != m.Job || r.WorldSize != m.WorldSize || r.Planned != m.Stream.Epochs ||
		r.Steps != p.steps || r.Shuffle != m.Stream.Shuffle || r.Scheme != m.Stream.Scheme ||
		r.Tail != m.Stream.Tail || r.DropLast != m.Stream.DropLast ||
		r.GlobalBatch != m.Stream.GlobalBatch || r.Seed != *m.Stream.Seed ||
		r.Assembling, "another job is reported: %+v", r)
	return all
}

// sum returns the audit sum of samples of an epoch.
func sum(epoch int, ids []uint32) (all uint64) {
	for _, id := range ids {
		z := (uint64(epoch)<<32 | uint64(id)) + 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		all += z ^ z>>31
	}
	return all
}
