package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

// errOneNode is why what needs several nodes is skipped.
var errOneNode = errors.New("there is one node; start hdmlp probe on several nodes at the same " +
	"time, with torchrun, srun or hdmlp dev cluster")

// lost takes account of an error in a step of all nodes. If nodes are gone, the measurements with
// others end. It returns ctx's error only.
func (s *survey) lost(what string, err error) error {
	if err == nil || s.group == nil {
		return nil
	}
	if step := (*StepError)(nil); errors.As(err, &step) {
		s.skip(what, err)
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	s.skip("what needs all nodes", err)
	s.group = nil
	return nil
}

func (s *survey) measureNodes(ctx context.Context) error {
	if s.group == nil {
		if s.o.Group == nil && s.Nodes == 1 {
			s.skip("source of several nodes", errOneNode)
			s.skip("network", errOneNode)
		}
		return nil
	}
	if err := s.measureSources(ctx); err != nil || s.group == nil {
		return err
	}
	return s.measureNetwork(ctx)
}

// plan is what all nodes must do alike in a step. Node 0 gives it.
type plan struct {
	Streams, Operations int
	Window              time.Duration
}

// agree returns node 0's plan.
func (s *survey) agree(ctx context.Context, mine plan) (plan, error) {
	all, err := Tell(ctx, s.group, mine)
	if err != nil {
		return plan{}, err
	}
	return all[0], nil
}

func (s *survey) measureSources(ctx context.Context) error {
	all := Sizes{Mean: s.Mean}
	for _, class := range s.sizes {
		all.IDs = append(all.IDs, class.IDs...)
	}
	part := s.share(weighSources)
	p := plan{Streams: 1, Operations: 100}
	p.Window = part / time.Duration(Steps(s.group.Nodes)*(measure.Rounds+4))
	if c := s.nearest(s.Source); c != nil {
		best := c.Best()
		p.Streams = best.Streams
		// A window has some reads of each stream.
		each := float64(best.Streams) * c.Size / best.Rate.Median
		p.Window = max(p.Window, time.Duration(2*each*float64(time.Second)))
		// No sample is read twice, because it would then be in memory.
		whole := 0.8 * float64(len(all.IDs)) * s.Mean / best.Rate.Median / (measure.Rounds + 1)
		p.Window = max(min(p.Window, time.Duration(whole*float64(time.Second))), time.Millisecond)
		total := p.Window.Seconds() * (measure.Rounds + 1)
		p.Operations = int(1.5*total*best.Rate.Median/s.Mean) + 8*best.Streams
	}
	p, err := s.agree(ctx, p)
	if err != nil {
		return s.lost("source of several nodes", err)
	}
	p.Streams = min(p.Streams, s.streams(all))
	totals, err := s.group.Sources(ctx, s.source.Read(all, p.Streams), measure.SteadyOptions{
		Streams: p.Streams, Operations: p.Operations, Window: p.Window, Windows: measure.Rounds,
	}, func(n int) {
		s.o.Progress(fmt.Sprintf("source, %d %s reading at once", n, plural(n, "node")))
	})
	for _, t := range totals {
		if t.Point.Rate.Median > 0 {
			s.Sources = append(s.Sources, t)
		}
	}
	return s.lost("source of several nodes", err)
}

func (s *survey) measureNetwork(ctx context.Context) error {
	part := s.share(weighNetwork)
	steps := time.Duration((len(NetworkStreams) + 1) * (measure.Rounds + 4))
	p, err := s.agree(ctx, plan{Window: max(part/steps, 5*time.Millisecond)})
	if err != nil {
		return s.lost("network", err)
	}
	curves, err := s.group.Network(ctx, p.Window, measure.Rounds, func(streams int) {
		s.o.Progress(fmt.Sprintf("network, %d %s", streams, plural(streams, "stream")))
	})
	for _, c := range curves {
		if len(c.Points) > 0 && c.Best().Rate.Median > 0 {
			s.Network = append(s.Network, c)
		}
	}
	return s.lost("network", err)
}

// conclude makes the model's node of the results, over all nodes.
func (s *survey) conclude(ctx context.Context) error {
	s.Node = s.node()
	if s.group == nil {
		return nil
	}
	all, err := Tell(ctx, s.group, s.Node)
	if err != nil {
		return s.lost("values of all nodes", err)
	}
	for n := range all {
		if err := all[n].Validate(); err != nil {
			s.skip(fmt.Sprintf("values of node %d", n), err)
			return nil
		}
	}
	s.Node = model.Merge(all, s.Mean)
	return nil
}
