package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/source"
)

// The network: of a cluster with 10 Gb/s per node.
const (
	delay = 100 * time.Microsecond
	rate  = 1250 << 20 // bytes per second
)

// Phase is what a part of a job took.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"` // of virtual time
	// Messages and Bytes are what nodes sent: all together, node 0, and of the others the one that
	// sent most. A message is a write to a connection, or a datagram.
	Messages      Share `json:"messages"`
	Bytes         Share `json:"bytes"`
	ReceivedBytes Share `json:"received_bytes"`
	// Memory is in bytes, at the end of the phase: of all nodes, of node 0, of another one.
	Memory Share `json:"memory_bytes"`
	// Peak is the most of what only node 0 needs, in bytes, in the course of the phase.
	Peak int64 `json:"peak_bytes"`
	// Processor is the real time of processors for all nodes together, in seconds.
	Processor float64 `json:"processor_seconds"`
}

// Share is an amount of all nodes, and of single ones.
type Share struct {
	All   int64 `json:"all"`
	Zero  int64 `json:"node_0"`
	Other int64 `json:"another"`
}

// Figures are what a job of a number of nodes took.
type Figures struct {
	Nodes  int     `json:"nodes"`
	Phases []Phase `json:"phases"`
}

// each are phases in which each node decodes what all others sent. All nodes of the job do that in
// one process here, so they are left out if it has more than mostEach.
var each = []string{"a question of each to all", "audit an epoch"}

const mostEach = 256

// cluster is a job in progress.
type cluster struct {
	network *networktest.Network
	nodes   []*node
	up      []bool
	figures Figures
}

// Run runs a job of a number of nodes, at least four, in a bubble of testing/synctest.
func Run(nodes int, say func(Phase)) (*Figures, error) {
	c := &cluster{network: networktest.New(), figures: Figures{Nodes: nodes}}
	c.network.Delay(delay)
	index, err := index()
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		c.network.Limit(ip(i), rate)
		n := &node{number: i, host: c.network.Host(ip(i)), nodes: nodes}
		c.nodes, c.up = append(c.nodes, n), append(c.up, true)
	}
	ctx := context.Background()
	last, silent := nodes-1, nodes-2
	for _, p := range []struct {
		name string
		run  func() error
	}{
		{"form", func() error {
			return c.each(func(n *node) error { return n.form(ctx, index) })
		}},
		{"agree on a plan", func() error {
			return c.each(func(n *node) error { return n.agree(ctx) })
		}},
		{"run for 30 s", func() error {
			time.Sleep(30 * time.Second)
			return c.unchanged()
		}},
		{"a question to all", func() error { return c.reports(c.nodes[1]) }},
		{"a question of each to all", func() error { return c.each(c.reports) }},
		{"audit an epoch", func() error {
			return c.each(func(n *node) error {
				parts, err := n.AuditParts(ctx, 0)
				if err == nil {
					_, _, err = n.Audit(ctx, 0, parts)
				}
				return err
			})
		}},
		{"a rank stops", func() error {
			c.nodes[1].stop()
			return c.wait("the stop", func(n *node) bool { return n.heard.Load() >= 1 })
		}},
		{"a rank of each other node stops", func() error {
			for _, n := range c.nodes {
				if n.number != 1 {
					n.stop()
				}
			}
			return c.wait("all stops",
				func(n *node) bool { return n.heard.Load() == int64(nodes) })
		}},
		{"a daemon is killed", func() error {
			c.up[last] = false
			c.network.Kill(c.nodes[last].host)
			return c.wait("a killed node", func(n *node) bool { return n.gone[last].Load() })
		}},
		{"a host is silent", func() error {
			c.up[silent] = false
			c.network.Cut(ip(silent))
			return c.wait("a silent node", func(n *node) bool { return n.gone[silent].Load() })
		}},
		{"it is back", func() error {
			c.up[silent] = true
			c.network.Join(ip(silent))
			return c.wait("the node's return", func(n *node) bool {
				for other := range c.nodes {
					if n.gone[other].Load() != (other == last) {
						return false
					}
				}
				return true
			})
		}},
		{"all leave", func() error {
			err := c.each(func(n *node) error {
				n.Leave(n.report())
				n.Close()
				return nil
			})
			c.nodes[last].Close()
			return err
		}},
	} {
		if nodes > mostEach && slices.Contains(each, p.name) {
			continue
		}
		if err := c.phase(p.name, p.run, say); err != nil {
			return &c.figures, fmt.Errorf("%s, with %d nodes: %w", p.name, nodes, err)
		}
	}
	time.Sleep(time.Minute) // what failure detection has begun ends by itself
	return &c.figures, nil
}

// index returns the index of a dataset with as many excerpts as one can have.
func index() (*source.Index, error) {
	b := source.NewBuilder([]string{"a"}, []string{".x"})
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Path: "a", Class: 0})
	for i := range 64 {
		b.Sample(fmt.Sprintf("%04d.x", i), 1000, 0, 0)
	}
	x, err := b.Build()
	if err != nil {
		return nil, err
	}
	contents := make([][16]byte, 64)
	for i := range contents {
		for j := range contents[i] {
			contents[i][j] = byte(97*i + 31*j)
		}
	}
	return x.WithContents(contents)
}

// each runs f for all nodes that are up, at once.
func (c *cluster) each(f func(n *node) error) error {
	errs := make([]error, len(c.nodes))
	var all sync.WaitGroup
	for i, n := range c.nodes {
		if c.up[i] {
			all.Go(func() { errs[i] = f(n) })
		}
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the others' are like it
		}
	}
	return nil
}

// reports has a node ask all others for reports.
func (c *cluster) reports(n *node) error {
	for other, r := range n.Reports(context.Background(), n.report()) {
		if !r.Responding {
			return fmt.Errorf("node %d has no report of node %d: %s", n.number, other, r.Why)
		}
	}
	return nil
}

// longest is how long a phase may take.
const longest = 5 * time.Minute

// wait waits until holds is true for all nodes that are up.
func (c *cluster) wait(what string, holds func(n *node) bool) error {
	began := time.Now()
	for {
		waits := -1
		for i, n := range c.nodes {
			if c.up[i] && !holds(n) {
				waits = i
			}
		}
		if waits < 0 {
			return nil
		}
		if time.Since(began) > longest {
			return fmt.Errorf("node %d does not know %s after %v", waits, what, longest)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// unchanged returns an error if a node was notified that another one is gone.
func (c *cluster) unchanged() error {
	for _, n := range c.nodes {
		if losses := n.losses.Load(); losses > 0 {
			return fmt.Errorf("node %d was told %d times that a node is gone", n.number, losses)
		}
	}
	return nil
}

// phase runs a part of the job and measures it.
func (c *cluster) phase(name string, run func() error, say func(Phase)) error {
	p := Phase{Name: name}
	sent := make([]networktest.Traffic, len(c.nodes))
	received := make([]networktest.Traffic, len(c.nodes))
	for i := range c.nodes {
		sent[i], received[i] = c.network.Traffic(ip(i))
	}
	meter := Start()
	began := time.Now()
	err := run()
	p.Seconds = time.Since(began).Seconds()
	time.Sleep(time.Second) // what the phase has begun
	used := meter.Stop()
	for i := range c.nodes {
		s, r := c.network.Traffic(ip(i))
		s, r = s.Sub(sent[i]), r.Sub(received[i])
		p.Messages.add(i, s.Messages)
		p.Bytes.add(i, s.Bytes)
		p.ReceivedBytes.add(i, r.Bytes)
	}
	p.Processor, p.Peak = used.Processor, used.Peak
	each := (used.All - used.Zero) / int64(len(c.nodes))
	p.Memory = Share{All: used.All, Zero: used.Zero + each, Other: each}
	c.figures.Phases = append(c.figures.Phases, p)
	say(p)
	return errors.Join(err)
}

// add adds a node's amount.
func (s *Share) add(node int, amount int64) {
	s.All += amount
	if node == 0 {
		s.Zero += amount
	} else {
		s.Other = max(s.Other, amount)
	}
}
