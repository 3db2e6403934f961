package survey

import (
	"math"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

// nearest returns the curve whose samples' size is nearest to the mean of the dataset; nil if there
// is none.
func (s *survey) nearest(curves []measure.Curve) *measure.Curve {
	var best *measure.Curve
	distance := math.Inf(1)
	for i := range curves {
		if d := math.Abs(math.Log(curves[i].Size / s.Mean)); d < distance {
			best, distance = &curves[i], d
		}
	}
	return best
}

// known returns what curves say of a tier, or the guess if there are none.
func (s *survey) known(guess model.Known, curves ...measure.Curve) model.Known {
	var rates []model.Rate
	for _, c := range curves {
		for _, p := range c.Points {
			if p.Rate.Median > 0 {
				rates = append(rates, model.Rate{
					Size: c.Size, Streams: p.Streams, MBps: p.Rate.Median,
				})
			}
		}
	}
	if len(rates) == 0 {
		return guess
	}
	grows := s.nearest(curves).Grows
	c := model.FromRates(rates, s.Mean, grows)
	if bound := mostOf(curves); grows && bound > 0 {
		// The tier delivers no more than it does for other sizes.
		c.Queued = min(max(c.Queued, 1/bound), c.Latency/s.Mean+c.PerMB)
	}
	return model.Known{Coefficients: c, Origin: model.Probed}
}

// mostOf returns the highest throughput of curves, if one of several streams has stopped growing;
// otherwise 0.
func mostOf(curves []measure.Curve) float64 {
	most, ended := 0.0, false
	for _, c := range curves {
		most = max(most, c.Best().Rate.Median)
		ended = ended || !c.Grows && len(c.Points) > 1
	}
	if !ended {
		return 0
	}
	return most
}

// node returns what the model has of this node.
func (s *survey) node() model.Node {
	n := model.Node{Source: model.GuessedSource, Streams: 1}
	curves := s.Source
	if len(curves) > 0 {
		if s.Page != nil {
			curves = append([]measure.Curve{*s.Page}, curves...)
		}
		n.Source = s.known(model.GuessedSource, curves...)
		best := s.nearest(s.Source).Best()
		n.Streams = best.Streams
		n.Sources = model.Constant(best.Rate.Median)
		n.SourcesOrigin = model.Probed
	}
	n.Network = s.known(model.GuessedPeer, s.Network...)
	if len(s.Sources) > 0 {
		n.Sources, n.SourcesOrigin = nil, model.Probed
		for _, t := range s.Sources {
			n.Sources = append(n.Sources, model.Point{
				Clients: t.Nodes, MBps: t.Point.Rate.Median,
			})
		}
		n.Sources = n.Sources.Rising()
		// The source's reads are those of a node while all read.
		if last := n.Sources[len(n.Sources)-1]; n.Source.Origin == model.Probed {
			alone := n.Source.Latency/s.Mean + n.Source.PerMB
			slowest := float64(last.Clients) / last.MBps
			n.Source.PerMB += max(slowest-alone, 0)
			n.Source.Queued = min(slowest, n.Source.Latency/s.Mean+n.Source.PerMB)
		}
	}
	s.Threads = s.o.Threads
	if s.Transforms != nil {
		best := s.Transforms.Best()
		s.Threads = best.Streams
		n.Preprocess = model.Value{
			Number: best.Rate.Median / float64(best.Streams), Origin: model.Probed,
		}
	}
	for i, c := range s.o.Classes {
		r := &s.Classes[i]
		n.Classes = append(n.Classes, model.NodeClass{
			Name: c.Kind.Name, Path: c.Path, Stores: max(c.Threads, 1),
			Read:  s.known(model.GuessedClass, r.Read...),
			Write: s.known(model.GuessedClass, r.Write...),
		})
	}
	return n
}

// Work returns what a read of a sample from the source takes of a processor, in seconds, with as
// many streams as are fastest; 0: it was not measured. The classes of sizes have as many samples
// each.
func (r *Result) Work() float64 {
	sum := 0.0
	for i := range r.Source {
		sum += r.Source[i].Best().Work
	}
	return sum / max(float64(len(r.Source)), 1)
}
