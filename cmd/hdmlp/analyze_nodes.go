package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/instrument"
	"github.com/hdmlp/hdmlp/internal/study/measure/survey"
)

// joinTime is how long the commands of a job's nodes look for each other: all of them run already.
const joinTime = 30 * time.Second

// others are the commands that measure the other nodes of a job. They find each other while their
// scripts run, and each ends its script if another one is gone.
type others struct {
	o       *scriptOptions
	end     context.CancelCauseFunc // of this node's script, and of all measurements
	joining sync.WaitGroup

	job instrument.Job     // of several nodes, if found is not nil
	own *analysis.Measured // of this node; nil until all nodes were measured

	mu    sync.Mutex    // guards the following
	group *survey.Group // nil: the job has one node, or the others were not found
	done  bool          // all was measured: others may go
}

// lostError reports that another node's command is gone.
type lostError struct{ node int }

func (e *lostError) Error() string {
	return fmt.Sprintf("hdmlp analyze on node %d ended before everything was measured; its own "+
		"output says why", e.node)
}

// join begins to look for the others, until ctx ends.
func (n *others) join(ctx context.Context, job instrument.Job) {
	n.job = job
	n.joining.Go(func() {
		host := job.Host
		if job.Node == 0 {
			host = "" // a host's own name often means loopback
		}
		c, err := jobConfig(nil, n.o.cache, "")
		if err != nil {
			n.end(err)
			return
		}
		g, err := survey.Join(ctx, survey.NodesOptions{
			Node: job.Node, Nodes: job.Nodes, Address: net.JoinHostPort(host, strconv.Itoa(job.Port)),
			Interface: c.Interface, Secret: []byte(job.Secret), Wait: joinTime,
			Sample: probedSample, Progress: func(string) {},
			Facts: []survey.Fact{
				{Key: "hdmlp's version", Value: version},
				{Key: "--time", Value: n.o.time.String()},
				{Key: "--validate", Value: strconv.FormatBool(n.o.validate)},
			},
		})
		if err != nil {
			n.end(badInput("the commands on the job's %d nodes cannot work together: %w", job.Nodes,
				err))
			return
		}
		n.mu.Lock()
		n.group = g
		n.mu.Unlock()
		n.o.tell(fmt.Sprintf("node %d of %d: found the commands of the others", job.Node, job.Nodes))
		g.Watch(func(node int) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if !n.done {
				n.end(&lostError{node})
			}
		})
	})
}

// probedSample is the size of samples with which the network is measured, in bytes: what nodes read
// from each other is not known when they meet.
const probedSample = 1 << 18

// found returns the group, after the search for it; nil: the job has one node.
func (n *others) found() *survey.Group {
	n.joining.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.group
}

// leave leaves the group; the other nodes are notified.
func (n *others) leave() {
	if g := n.found(); g != nil {
		_ = g.Close()
	}
}

// finish has other nodes leave without an error from now on: the last step of all nodes follows,
// which fails by itself if one is missing.
func (n *others) finish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done = true
}

// part is what nodes must know of each other before the source is measured.
type part struct {
	Samples, Ranks int
	MB             float64
	NoSamples      bool
	NoSize         bool
	Files          bool // the files of samples are known
}

// share makes the dataset, ranks and nodes of this node's part those of the whole job. It reports
// whether all nodes know their files, so that the source can be measured.
func (n *others) share(ctx context.Context, g *survey.Group, m *analysis.Measured,
	files bool,
) (bool, error) {
	d := &m.Dataset
	all, err := survey.Tell(ctx, g, part{
		Samples: d.Samples, Ranks: m.Ranks, MB: d.MB, NoSamples: d.NoSamples, NoSize: d.NoSize,
		Files: files,
	})
	if err != nil {
		return false, n.gone(ctx, err)
	}
	d.Samples = 0
	d.MB = 0
	m.Ranks = 0
	m.Nodes = g.Nodes
	for _, p := range all {
		d.Samples += p.Samples
		d.MB += p.MB
		m.Ranks += p.Ranks
		d.NoSamples, d.NoSize = d.NoSamples || p.NoSamples, d.NoSize || p.NoSize
		files = files && p.Files
	}
	return files, nil
}

// together returns what was measured of all nodes.
func (n *others) together(ctx context.Context, g *survey.Group,
	m *analysis.Measured,
) (*analysis.Measured, error) {
	n.own = m
	all, err := survey.Tell(ctx, g, m)
	if err != nil {
		return nil, n.gone(ctx, err)
	}
	return analysis.OfNodes(all), nil
}

// inShort summarises what a node other than node 0 measured.
func (n *others) inShort() string {
	text := fmt.Sprintf("node %d of %d", n.job.Node, n.job.Nodes)
	for _, rate := range []struct {
		name string
		*analysis.Rate
	}{
		{"the job as it is", n.own.AsIs},
		{"training", n.own.Training},
		{"preparation", instrument.Best(n.own.Preparation)},
	} {
		if rate.Rate != nil {
			text += fmt.Sprintf(", %s %.4g samples/s", rate.name, rate.Median)
			if rate.Few {
				text += " (measured too rarely for an interval)"
			}
		}
	}
	return text + "; node 0 prints the conclusion"
}

// gone returns why a step of all nodes failed: that of ctx, if it ended.
func (n *others) gone(ctx context.Context, err error) error {
	if end := endOf(ctx); end != nil {
		return end
	}
	return fmt.Errorf("another node ended before everything was measured: %w", err)
}
