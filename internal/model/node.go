package model

import (
	"errors"
	"fmt"
	"slices"
)

// Value is a number of the model, and where it comes from. 0 is not known.
type Value struct {
	Number float64 `json:"value"`
	Origin Origin  `json:"origin"`
}

// Node is what is known of a node and its connections at a time: each number of the model, with
// where it comes from. It is what a running job reports, what nodes tell each other before they
// plan, and what is stored for the next run. Environment makes the model's input of it.
type Node struct {
	Compute       Value `json:"compute_mbps"`        // c: consumed by the training on this node
	Preprocess    Value `json:"preprocess_mbps"`     // beta: transformed by one thread
	SourceNetwork Value `json:"source_network_mbps"` // b_fs
	// Network describes reads from another node.
	Network Known `json:"network"`
	// Source describes reads of this node from the source while as many nodes read as the job has.
	Source Known `json:"source"`
	// Sources is t(gamma), with a point for each number of nodes for which it is known besides.
	Sources       Curve       `json:"sources,omitempty"`
	SourcesOrigin Origin      `json:"sources_origin,omitempty"`
	Classes       []NodeClass `json:"classes,omitempty"` // own classes 1..J, fastest first
	// Streams is how many samples the node reads at the same time.
	Streams int `json:"streams"`
}

// NodeClass is what is known of an own class.
type NodeClass struct {
	Name   string `json:"name"`
	Path   string `json:"path,omitempty"` // of its directory; "": it is in memory
	Read   Known  `json:"read"`
	Write  Known  `json:"write"`
	Stores int    `json:"threads"` // p_j: samples written to it at the same time
}

// Guess returns what is assumed of reads and writes until one of them has ended.
func (c *NodeClass) Guess() Known {
	if c.Path == "" {
		return GuessedMemory
	}
	return GuessedClass
}

// Size is what an Environment depends on besides what is known of tiers.
type Size struct {
	Sample   float64   // mean size of a sample, MB
	Nodes    int       // of the job
	Staging  float64   // capacity of the staging buffers of the node, MB
	Capacity []float64 // of the classes 1..J, MB
}

const (
	// unlimited is the rate of what is not known and not guessed, MB/s: too high to matter.
	unlimited = 1e6
	// mostStreams is the largest number of streams.
	mostStreams = 1 << 16
	// longestRead is the largest latency, in seconds, and fastest the largest rate, in MB/s.
	longestRead = 3600
	slowest     = 1e9 // seconds per MB
	fastest     = 1e9
	smallest    = 1e-6 // least mean size of a sample, MB
)

// streams are the numbers of streams for which curves have points.
var streams = []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}

// one returns how long a read takes alone, and by how much each further stream delays it, in
// seconds, for samples of size MB. A read alone takes at least as long as each further stream
// delays others: reads of which the tier was never without others tell only the latter, and more
// streams cannot have a lower throughput.
func (c Coefficients) one(size float64) (alone, more float64) {
	size = max(size, smallest)
	more = max(size*c.Queued, 0)
	return max(c.Latency+size*c.PerMB, size/fastest, more), more
}

// Rate returns the throughput of p streams that read samples of size MB, in MB/s: r_j(p).
func (c Coefficients) Rate(p int, size float64) float64 {
	alone, more := c.one(size)
	return float64(p) * max(size, smallest) / (alone + float64(p-1)*more)
}

// Curve returns r_j(p) for samples of size MB and up to most streams; more than these were not
// observed, and are taken to deliver no more.
func (c Coefficients) Curve(size float64, most int) Curve {
	if _, more := c.one(size); more == c.Latency+size*c.PerMB {
		return Constant(c.Rate(1, size))
	}
	var curve Curve
	for _, p := range streams {
		if p < most {
			curve = append(curve, Point{p, c.Rate(p, size)})
		}
	}
	return append(curve, Point{max(most, 1), c.Rate(max(most, 1), size)})
}

// FromCurve returns the coefficients that describe a throughput best. A curve has no information
// about latency, nor about streams beyond its points, for which it is constant; so a curve of one
// point is a constant rate.
func FromCurve(curve Curve, size float64) Coefficients {
	size = max(size, smallest)
	if len(curve) == 1 {
		return Coefficients{PerMB: 1 / curve[0].MBps, Queued: 1 / curve[0].MBps}
	}
	// The time of a read of p streams, p*size/r(p), is a line in p.
	var n, sp, st, spp, spt float64
	for _, c := range curve {
		p := float64(c.Clients)
		t := p * size / c.MBps
		w := 1 / (t * t) // relative errors
		n += w
		sp += w * p
		st += w * t
		spp += w * p * p
		spt += w * p * t
	}
	slope := max((n*spt-sp*st)/(n*spp-sp*sp), 0)
	alone := max((st-slope*sp)/n+slope, size/fastest)
	return Coefficients{PerMB: alone / size, Queued: min(slope, alone) / size}
}

// Environment returns the model's input. Numbers that are not known do not limit anything.
func (n *Node) Environment(s Size) Environment {
	rate := func(v Value) float64 {
		if v.Number > 0 {
			return v.Number
		}
		return unlimited
	}
	most := max(n.Streams, 1)
	latency, total := n.Source.shared(s.Sample)
	nodes := float64(max(s.Nodes, 1))
	sources := n.Sources
	if len(sources) == 0 || n.SourcesOrigin != Given && !n.Source.Origin.guessed() {
		sources = sources.with(Point{max(s.Nodes, 1), min(total*nodes, fastest)})
	}
	e := Environment{
		Compute:          rate(n.Compute),
		Preprocess:       rate(n.Preprocess),
		PeerBandwidth:    n.Network.Rate(most, s.Sample),
		SourceBandwidth:  rate(n.SourceNetwork),
		SourceThroughput: sources,
		SourceLatency:    latency,
		Classes: []Class{{
			Capacity: s.Staging, Threads: most, Read: Constant(unlimited),
			Write: Constant(unlimited),
		}},
	}
	for j, c := range n.Classes {
		class := Class{
			Threads: max(c.Stores, 1), Read: c.Read.Curve(s.Sample, most),
			Write: c.Write.Curve(s.Sample, max(c.Stores, 1)),
		}
		if j < len(s.Capacity) {
			class.Capacity = s.Capacity[j]
		}
		e.Classes = append(e.Classes, class)
	}
	return e
}

// shared divides the time of a read into what only this read waits for, in seconds, and the rate of
// what all reads share, in MB/s.
func (c Coefficients) shared(size float64) (latency, rate float64) {
	size = max(size, smallest)
	alone, more := c.one(size)
	more = min(max(more, size/unlimited), alone)
	return alone - more, size / more
}

// with returns the curve with a point added or replaced. The point is newer than the others: those
// with which the curve would fall (see Falls) are left out.
func (c Curve) with(p Point) Curve {
	out := Curve{p}
	least, most := p.MBps, p.MBps
	for _, q := range slices.Backward(c) {
		if q.Clients < p.Clients && q.MBps*(1-mostFall) <= least {
			out = append(out, q)
			least = min(least, q.MBps)
			most = max(most, q.MBps)
		}
	}
	slices.Reverse(out)
	for _, q := range c {
		if q.Clients > p.Clients && q.MBps >= most*(1-mostFall) {
			out = append(out, q)
			most = max(most, q.MBps)
		}
	}
	return out
}

// Certain reports whether plans may follow what is known: no tier that they compare is guessed,
// except memory, which is faster than all others.
func (n *Node) Certain(nodes int) bool {
	if n.Source.Origin.guessed() || nodes > 1 && n.Network.Origin.guessed() {
		return false
	}
	return !slices.ContainsFunc(n.Classes, func(c NodeClass) bool {
		return c.Path != "" && c.Read.Origin.guessed()
	})
}

func (o Origin) guessed() bool { return o == Guessed || o == "" }

// origins are the possible origins, the most certain first.
var origins = []Origin{Given, Measured, Probed, Guessed}

// certainty returns how certain an origin is, most certain first.
func (o Origin) certainty() int {
	if i := slices.Index(origins, o); i >= 0 {
		return i
	}
	return len(origins)
}

// maxClasses and maxPoints limit what a node can report.
const (
	maxClasses = 64
	maxPoints  = 1024
)

// Validate returns an error if a number is impossible. It names each by its name in reports.
func (n *Node) Validate() error {
	var errs []error
	origin := func(key string, o Origin) {
		if o != "" && !slices.Contains(origins, o) {
			errs = append(errs, fmt.Errorf("%s has the unknown origin %.20q", key, string(o)))
		}
	}
	value := func(key string, v Value) {
		if !(v.Number >= 0 && v.Number <= fastest) {
			errs = append(errs, fmt.Errorf("%s is %v MB/s; it must be from 0 to %g", key, v.Number,
				float64(fastest)))
		}
		origin(key, v.Origin)
	}
	known := func(key string, k Known) {
		for _, c := range []struct {
			name        string
			value, most float64
		}{
			{"latency_s", k.Latency, longestRead},
			{"s_per_mb", k.PerMB, slowest},
			{"s_per_mb_queued", k.Queued, slowest},
		} {
			if !(c.value >= 0 && c.value <= c.most) {
				errs = append(errs, fmt.Errorf("%s.%s is %v s; it must be from 0 to %g", key, c.name,
					c.value, c.most))
			}
		}
		origin(key, k.Origin)
	}
	value("compute_mbps", n.Compute)
	value("preprocess_mbps", n.Preprocess)
	value("source_network_mbps", n.SourceNetwork)
	known("network", n.Network)
	known("source", n.Source)
	origin("sources_origin", n.SourcesOrigin)
	if len(n.Sources) > 0 {
		errs = append(errs, n.Sources.validate("sources"))
	}
	if len(n.Sources) > maxPoints || len(n.Classes) > maxClasses {
		errs = append(errs, fmt.Errorf("%d points of sources and %d classes; allowed: %d and %d",
			len(n.Sources), len(n.Classes), maxPoints, maxClasses))
	}
	for j, c := range n.Classes[:min(len(n.Classes), maxClasses)] {
		known(fmt.Sprintf("classes.%d.read", j), c.Read)
		known(fmt.Sprintf("classes.%d.write", j), c.Write)
		if c.Stores < 0 || c.Stores > mostStreams {
			errs = append(errs, fmt.Errorf("classes.%d.threads is %d", j, c.Stores))
		}
	}
	if n.Streams < 0 || n.Streams > mostStreams {
		errs = append(errs, fmt.Errorf("streams is %d", n.Streams))
	}
	return errors.Join(errs...)
}
