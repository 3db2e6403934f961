package replay

import (
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/model"
)

// link returns what a node receives from the others at most. A few answers may have come faster
// than a link that is slow carries, so that then the slowest node counts. If there was no answer in
// time, the link carries less than requests were given time for, as recorded in the environment.
func (r *Run) link() rate {
	least, most := math.Inf(1), 0.0
	for _, n := range r.report.Nodes {
		for _, m := range n.Tiers {
			if m.Tier == "peer" && m.Peak > 0 {
				least, most = min(least, m.Peak), max(most, m.Peak)
			}
		}
	}
	measured := most
	if most == 0 { // of an earlier version
		measured = r.fastest("peer")
	}
	why := "The run had one node: it does not say what a link between nodes carries."
	if len(r.report.Nodes) > 1 {
		if !r.fewFromOthers() {
			return rate{mbps: measured}
		}
		why = fmt.Sprintf("Other nodes delivered %.3f MB: too little to say what the links between "+
			"nodes carry.", r.Delivered["peer"])
	}
	if most > 0 {
		return assumed(why, rate{}, "", least)
	}
	var known rate
	var origin model.Origin
	if k := r.report.Known; k != nil {
		known, origin = r.knownRate(k.Network, 1)
	}
	return assumed(why, known, origin, measured)
}

func (r *Run) fewFromOthers() bool {
	all := 0.0
	for _, mb := range r.Delivered {
		all += mb
	}
	return r.Delivered["peer"] < few*all
}

// late is by how much, in seconds and as a factor, the source must take longer in an epoch than at
// its rate in the others for the epoch to say nothing about its rate: the source hung.
const late = 2

// sourceRate returns what the source delivers to all nodes, and the epoch in which it hung; -1: in
// none.
func (r *Run) sourceRate() (_ rate, hung int) {
	epochs := make([]model.Speed, len(r.Epochs))
	var all model.Speed
	for i, ran := range r.Epochs {
		for j := range r.report.Nodes {
			for _, m := range epoch(&r.report.Nodes[j], ran.Epoch).Tiers {
				if m.Tier == "source" {
					epochs[i].Bytes += m.Bytes
					epochs[i].Busy = max(epochs[i].Busy, m.Busy)
				}
			}
		}
		all.Bytes += epochs[i].Bytes
		all.Busy += epochs[i].Busy
	}
	for i, e := range epochs {
		others := float64(all.Bytes-e.Bytes) / (all.Busy - e.Busy) // bytes per second
		takes := float64(e.Bytes) / others
		if all.Busy > e.Busy && 10*float64(all.Bytes-e.Bytes) > float64(e.Bytes) &&
			takes > 0 && e.Busy > late*takes && e.Busy > late+takes {
			return rate{mbps: others / mega}, r.Epochs[i].Epoch
		}
	}
	measured := r.rate("source", true)
	if r.little(r.SourceMB) {
		known, origin := r.knownSource()
		return assumed(fmt.Sprintf("The run read %.3f MB from the source: too little to say at what "+
			"rate that is read.", r.SourceMB), known, origin, measured), -1
	}
	return rate{mbps: measured}, -1
}
