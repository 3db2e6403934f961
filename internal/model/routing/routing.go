// Package routing decides which way a sample is read: from which of the tiers that have it, how
// long that may take before another tier is read, whether another node is asked at all, and when a
// tier is read only to renew its estimates. The decisions and what was measured of them are in
// docs/decisions/06-choice-of-tier.md.
//
// It is pure: values in, values out. It has no clock, no lock, and no state but a Circuit's, which
// its caller keeps. The engine (engine/cache, peers/breaker) and the replay of a job in virtual
// time (study/replay) call it, each with what its meters have seen, so that both decide alike.
//
// Every constant of these decisions is here, once: choose.go has those of the choice, limits.go
// those of how long a read may take, circuit.go those of other nodes, explore.go those of
// estimates, workers.go those of how much is in progress at once.
package routing

import (
	"math"
	"time"
)

// Tier is a tier that has a sample, by what its meter has seen when the read is to begin.
type Tier struct {
	// Arrival is when the sample would be here if it were read from the tier now, including what is
	// queued there: seconds from now.
	Arrival float64
	Stale   bool // the estimates are to be renewed by a read
}

// MostClasses is the largest number of this node's classes that a sample is chosen from.
const MostClasses = 6

// Read is a read that is about to begin, and the tiers that have the sample. Where there is no
// choice, what is measured of tiers does not matter.
type Read struct {
	Remote bool // another node needs the sample
	// CacheFirst is set if the source is not read where a class, or the owner, has the sample.
	CacheFirst bool
	Due        float64 // when it is needed, in seconds from now; +Inf: not soon
	// Classes are this node's classes that have the sample and respond, fastest first; Held is their
	// number. Silent is set if another one has it that does not respond.
	Classes [MostClasses]Tier
	Held    int
	Silent  bool
	// Asks is set if another node owns the sample and may be asked, which is Owner.
	Asks     bool
	Owner    Tier
	Source   Tier
	Explores bool // the source may be read to renew its estimates (MayExplore)
}

// Want is what is wanted of another node: a sample, or, where a form of it will do, that.
type Want struct {
	Size int // of the sample, in bytes
	Most int // how many bytes a form may have; 0: only the sample will do
	// Unpack is set if the sample is better: a form will do only where it does not give the sample.
	Unpack bool
}

// Answer describes what another node has sent of a sample.
type Answer struct {
	Node int // that has sent it
	// Kind is the form that it is in, a number that only what decodes it interprets; 0: as read.
	Kind   uint8
	Size   int           // in bytes
	Digest uint32        // of these bytes
	Waited time.Duration // for how long the node waited for the source, if it had to read it now
}

// What a Route may read besides classes.
const (
	Owner  = -1 - iota // the node that owns the sample
	Source             // the source
)

// Route is the way of a read.
type Route struct {
	Tier int // what is read: an index of Read.Classes, Owner, or Source
	// Asks is set if the owner is to be asked: it is Tier, or is asked if the class turns out not to
	// have the sample.
	Asks bool
	// Direct is set if the source is read although a class or another node has the sample, or
	// another node is asked although a class has it: the classes are not read.
	Direct   bool
	Chosen   bool // there was a choice
	Explores bool // the source is read only to renew its estimates
}

// Route returns the tier from which a sample is read that is not in memory (Choose).
//
// A read for another node is not a choice of this node, which owns the sample: its own copy is
// read, and the source if it has none. The node that asks has made the choice, by what requests to
// this node take.
func (r *Read) Route() Route {
	switch {
	case r.Remote && r.Held > 0:
		return Route{}
	case r.Remote, r.Held == 0 && !r.Asks:
		return Route{Tier: Source, Direct: r.Silent}
	}
	return r.choose()
}

// choose is Route where there is a choice.
func (r *Read) choose() Route {
	n := r.Held
	var arrivals [MostClasses + 2]float64
	for i := range n {
		arrivals[i] = r.Classes[i].Arrival
	}
	if r.Asks {
		arrivals[n] = r.Owner.Arrival
		n++
	}
	if arrivals[n] = r.Source.Arrival; r.CacheFirst {
		arrivals[n] = math.Inf(1)
	}
	at := Choose(r.Due, arrivals[:n+1])
	route := Route{Tier: at, Chosen: true}
	switch {
	case at == n:
		route.Tier = Source
	case at == r.Held:
		route.Tier = Owner
	}
	r.explore(&route)
	route.Asks = r.Asks && route.Tier != Source
	route.Direct = route.Tier == Source || route.Tier == Owner && (r.Held > 0 || r.Silent)
	return route
}
