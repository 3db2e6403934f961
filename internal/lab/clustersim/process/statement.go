package process

import (
	"context"
	"fmt"
	"time"
)

// Statement is what the job reports of itself to a process.
type Statement struct {
	Epochs  []Epoch // that the rank got batches of
	Classes []Class // of the node
	// Staging is the size of the rank's staging buffer in bytes, and Extra what was allocated
	// besides.
	Staging, Extra int64
	Taken          int64 // of the staging buffer
	Noted          int64 // slots in the return ring that the daemon has not taken
	Epoch, Step    int   // the batch that the rank takes next
}

// Epoch is what the job reports that the rank got of an epoch. Read counts samples of all origins.
type Epoch struct{ Epoch, Batches, Samples, Read int }

// Class is a storage class, in bytes. AtStart is what it held when the job was opened.
type Class struct {
	Name                    string
	Capacity, Used, AtStart int64
}

// LastState is State at the end. Batches after one that failed are freed only once they have
// arrived.
func (p *Process) LastState() Statement {
	if s := p.State(); s.Taken+s.Extra+s.Noted == 0 {
		return s
	}
	time.Sleep(time.Second)
	return p.State()
}

// State returns what the job reports of itself.
func (p *Process) State() Statement {
	report := p.rank.Report()
	var out Statement
	for _, r := range report.Ranks {
		if r.Rank != p.o.Request.Rank {
			continue
		}
		out.Staging = r.Staging.Size
		out.Taken = r.Staging.Used
		out.Extra = r.Staging.Extra
		out.Epoch, out.Step = r.Epoch, r.Step
		for _, e := range r.Epochs {
			read := 0
			for _, from := range e.Reads {
				read += int(from.Samples)
			}
			out.Epochs = append(out.Epochs, Epoch{e.Epoch, int(e.Batches), int(e.Samples), read})
		}
	}
	out.Noted = int64(p.untaken())
	for _, c := range report.Classes {
		out.Classes = append(out.Classes, Class{c.Name, c.Capacity, c.Used, c.Held.Bytes})
	}
	return out
}

// Audit waits until all ranks have come to the end of an epoch. It returns how many samples they
// got according to the job, and in why what the audit lacks to be complete.
func (p *Process) Audit(ctx context.Context, epoch int) (samples int, why string) {
	result, err := p.rank.Audit(ctx, epoch)
	if err != nil {
		return 0, err.Error()
	}
	if !result.Complete {
		why = fmt.Sprintf("%+v", *result)
	}
	return int(result.Samples), why
}

// Missing waits for the audit of an epoch, and returns the ranks that, according to it, have not
// come to the epoch's end, and why nothing is known of some.
func (p *Process) Missing(ctx context.Context, epoch int) (ranks []int, why string, err error) {
	result, err := p.rank.Audit(ctx, epoch)
	if err != nil {
		return nil, "", err
	}
	return result.Missing, result.Why, nil
}

// Forgotten returns what is wrong with what the node reports of nodes that are gone; "": nothing.
// For a node that has responded before, it must have the last figures. asked has these nodes;
// Forgotten adds those that respond.
func (p *Process) Forgotten(ctx context.Context, asked map[int]bool) string {
	for _, n := range p.rank.ClusterReport(ctx).Nodes {
		switch {
		case n.Responding:
			asked[n.Node] = true
		case n.Why == "" || asked[n.Node] && n.Age < 0:
			return fmt.Sprintf("of node %d, which is gone (%q), it has no figures", n.Node, n.Why)
		}
	}
	return ""
}

// Cluster returns what is wrong with what the node reports of all nodes, each with so many ranks,
// while they all have the job open; "": nothing. A rank that begins at the same moment may not have
// opened it yet: if ranks are missing, it asks twice.
func (p *Process) Cluster(ctx context.Context, nodes, ranks int) string {
	wrong, opening := p.cluster(ctx, nodes, ranks)
	if opening {
		time.Sleep(time.Second / 2)
		wrong, _ = p.cluster(ctx, nodes, ranks)
	}
	return wrong
}

func (p *Process) cluster(ctx context.Context, nodes, ranks int) (wrong string, opening bool) {
	report := p.rank.ClusterReport(ctx)
	if len(report.Nodes) != nodes {
		return fmt.Sprintf("a report of %d nodes", len(report.Nodes)), false
	}
	for i, n := range report.Nodes {
		if n.Node != i || !n.Responding || len(n.Ranks) != ranks {
			return fmt.Sprintf("node %d is reported as node %d with %d ranks: %q", i, n.Node,
				len(n.Ranks), n.Why), n.Node == i && n.Responding && len(n.Ranks) < ranks
		}
		for k, r := range n.Ranks {
			if r.Rank != i*ranks+k || !r.Open {
				return fmt.Sprintf("node %d reports rank %d, open: %v", i, r.Rank, r.Open), !r.Open
			}
		}
	}
	return "", false
}
