package model

// Later is what an epoch after the first one needs, of a job on nodes with equal environments that
// reads its samples in random orders.
type Later struct {
	Data   float64 // MB of the samples that epochs draw from
	Node   float64 // MB that a node consumes in the epoch
	Sample float64 // mean size of a sample, MB
	Nodes  int
	// Transformers is how many threads of a node transform samples; 0: those that fill the staging
	// buffer, as in the simulator.
	Transformers int
	// Cold is set if nothing is cached: the epoch is the first one, or no policy uses the classes.
	Cold bool
	// Dealt is the share of a node's reads that others have to serve if batches are dealt to the
	// nodes that own their samples (Imbalance), and nodes hold what they own; 0: samples come at
	// random.
	Dealt float64
}

// hits is what storage classes hold of what a node reads in an epoch, in MB.
type hits struct {
	own, all []float64 // by class 1..J: on the node itself, and on any node
	cached   float64   // in any of these
}

// Load is what a resource of a node does in an epoch.
type Load struct {
	Seconds float64 // in which it is busy
	MB      float64 // that pass through it
}

// Forecast is how an epoch goes: how long it takes, and what each resource of a node does.
type Forecast struct {
	Seconds    float64
	Compute    Load
	Preprocess Load
	Source     Load // this node's share of it
	Network    Load // reads from other nodes
	Classes    []Load
}

// Epoch returns how an epoch after the first one goes if all resources work in parallel, without a
// gap: as a fluid, like TimeBound, of which it is the part that later epochs repeat. Two things are
// as they are, and not as they could be at best, which is why it predicts and does not bound:
// orders are random, so that a node finds in its own classes only the share of its reads that they
// hold of the dataset; and what is staged at the start was read by the epoch before.
//
// Of the m MB that a node reads, own class j has L_j, and the classes j of all nodes together have
// at most A_j. With the class's rate r_j, the network's b_c and the source's s, an epoch of t
// seconds has time for
//
//	s t + sum of min(A_j, r_j t)            by what classes give and the source gives, and
//	(s + b_c) t + sum of min(L_j, r_j t)    by what own classes, the network and the source give,
//
// of which each must be at least m. Where there is more time than that takes, because something
// else limits, reads go to the cheapest tier: own classes, other nodes, the source.
//
// Reads of the source take SourceWork of the processors that transform.
//
// It does not get longer if a capacity or a rate grows.
func (e *Environment) Epoch(l *Later) Forecast {
	transformers := l.Transformers
	if transformers < 1 {
		transformers = e.Classes[0].Threads
	}
	f := Forecast{
		Compute:    Load{l.Node / e.Compute, l.Node},
		Preprocess: Load{l.Node / (e.Preprocess * float64(transformers)), l.Node},
		Classes:    make([]Load, len(e.Classes)-1),
	}
	h := e.hits(l)
	source := e.sourceOf(l)
	peers := 0.0
	if l.Nodes > 1 {
		peers = e.PeerBandwidth
	}
	rates := make([]float64, len(h.own)) // of the classes, MB/s
	for j := range rates {
		rates[j] = e.ClassRate(j+1, l.Nodes)
	}
	if l.Sample > 0 { // what is read from the source at least
		reads := max(l.Node-h.cached, 0) / l.Sample
		f.Preprocess.Seconds += reads * e.SourceWork / float64(transformers)
	}
	f.Seconds = max(f.Compute.Seconds, f.Preprocess.Seconds,
		parallel(l.Node, source, rates, h.all), parallel(l.Node, source+peers, rates, h.own))

	left, others := l.Node, 0.0
	give := make([]float64, len(rates)) // what the classes can give other nodes
	for j, r := range rates {
		f.Classes[j].MB = min(h.own[j], r*f.Seconds, left)
		give[j] = min(h.all[j], r*f.Seconds) - f.Classes[j].MB
		others += give[j]
		left -= f.Classes[j].MB
	}
	f.Network.MB = max(0, min(others, peers*f.Seconds, h.cached-(l.Node-left), left))
	f.Source.MB = left - f.Network.MB
	if f.Source.MB < rounding*l.Node {
		f.Source.MB = 0
	}
	for j, r := range rates {
		if others > 0 { // each node gives others as much as it gets from them
			f.Classes[j].MB += give[j] * f.Network.MB / others
		}
		f.Classes[j].Seconds = f.Classes[j].MB / r
	}
	f.Source.Seconds = f.Source.MB / source
	if f.Network.MB > 0 {
		f.Network.Seconds = f.Network.MB / peers
	}
	return f
}

// ClassRate returns what a class gives if all the threads of this many nodes read from it, in MB/s.
func (e *Environment) ClassRate(j, nodes int) float64 {
	return e.Classes[j].Read.At(float64(e.Classes[0].Threads * max(nodes, 1)))
}

// rounding is the share of an epoch's bytes that may be an error of floating-point arithmetic.
const rounding = 1e-12

// sourceOf returns what a node gets from the source, in MB/s, while all nodes of the job read.
func (e *Environment) sourceOf(l *Later) float64 {
	rate := e.SourceRate(l.Nodes)
	if l.Sample <= 0 {
		return rate
	}
	streams := float64(e.Classes[0].Threads) * l.Sample
	return streams / (e.SourceLatency + streams/rate)
}

// hits returns what classes hold of the reads of a node if each holds as much of Data as it can.
func (e *Environment) hits(l *Later) (h hits) {
	n, sum := float64(max(l.Nodes, 1)), 0.0
	for _, c := range e.Classes[1:] {
		held := 0.0 // share of the dataset
		if !l.Cold && l.Data > 0 {
			held = min(c.Capacity/l.Data, 1)
		}
		sum += held
		own := held
		if l.Dealt > 0 {
			own = min(n*held, 1) * (1 - l.Dealt)
		}
		h.own = append(h.own, l.Node*own)
		h.all = append(h.all, l.Node*min(n*held, 1))
	}
	h.cached = l.Node * min(n*sum, 1)
	return h
}
