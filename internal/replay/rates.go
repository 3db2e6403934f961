package replay

import (
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// few is the share of what was delivered below which too little came from other nodes to measure
// links.
const few = 0.01

// link returns what a node receives from the others at most, in MB/s. A few answers may have come
// faster than a link that is slow carries, so that then the slowest node counts. If there was no
// answer in time, the link carries less than requests were given time for.
func (r *Run) link() float64 {
	least, most := math.Inf(1), 0.0
	for _, n := range r.report.Nodes {
		for _, m := range n.Tiers {
			if m.Tier == "peer" && m.Peak > 0 {
				least, most = min(least, m.Peak), max(most, m.Peak)
			}
		}
	}
	known := r.report.Known
	switch {
	case most > 0 && r.fewFromOthers():
		return least
	case most > 0:
		return most
	case r.Delivered["peer"] == 0 && known != nil && known.Network.Origin == perfmodel.Measured:
		return known.Network.Rate(1, float64(r.report.Bytes)/float64(r.report.Samples)/mega)
	}
	return r.fastest("peer") // of an earlier version
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

// sourceRate returns what the source delivers to all nodes, in MB/s, and the epoch in which it
// hung; -1: in none.
func (r *Run) sourceRate() (rate float64, hung int) {
	epochs := make([]stats.Speed, len(r.Epochs))
	var all stats.Speed
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
			return others / mega, r.Epochs[i].Epoch
		}
	}
	return r.rate("source", true), -1
}

// Unsure says what of the machine the run did not measure well, a sentence each.
func (r *Run) Unsure() (all []string) {
	if len(r.report.Nodes) > 1 && r.fewFromOthers() {
		all = append(all, fmt.Sprintf("Other nodes delivered %.3f MB: too little to say what the "+
			"links between nodes carry.", r.Delivered["peer"]))
	}
	if _, hung := r.sourceRate(); hung >= 0 {
		all = append(all, fmt.Sprintf("In epoch %d the source took much longer than in the others, "+
			"which give its rate: the predicted time of this epoch is without the delay.", hung))
	}
	return all
}
