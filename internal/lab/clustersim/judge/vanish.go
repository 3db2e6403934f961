package judge

import (
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// decisions are what the batches of a launch show of the samples that its job leaves out or
// substitutes because their files were missing for a while. A decision holds for all ranks:
//
//   - at once for batches whose preparation its own node begins then;
//   - after news for those of other nodes, unless the network keeps it from these.
//
// When a batch is begun is known if the script sets how many are prepared ahead of those that the
// rank has taken.
type decisions struct {
	court  *court
	launch int
	// found is, by sample and node, when one of its ranks first got a batch without the sample.
	found map[int]map[int]time.Duration
	took  map[int]int // by rank, batches of its stream
	// from is, by rank and sample, the batch of its stream from which on all are without the sample.
	from map[int]map[int]int
}

func newDecisions(c *court, launch int) *decisions {
	return &decisions{
		court: c, launch: launch, found: map[int]map[int]time.Duration{}, took: map[int]int{},
		from: map[int]map[int]int{},
	}
}

// began notes that a stream begins.
func (d *decisions) began(e Event) {
	d.took[e.Rank], d.from[e.Rank] = 0, map[int]int{}
	d.bind(e, 0)
}

// got judges a batch: whether it has the samples that are due, but for those whose files have been
// missing by then, and none for which it is known that the job leaves it out.
func (d *decisions) got(e Event, of *epoch) {
	gone := d.gone(e.At)
	lacks, ok := of.without(of.share(e.Rank, e.Step), e.IDs, gone)
	if !ok {
		d.court.wrong(e, "the wrong samples for %v, of which %v may be left out or substituted",
			of.share(e.Rank, e.Step), gone)
	}
	for id, from := range d.from[e.Rank] {
		if d.took[e.Rank] >= from && slices.Contains(e.IDs, id) {
			node, at := d.first(id)
			d.court.wrong(e, "sample %d, although node %d has left it out of batches since %v", id, node,
				at)
		}
	}
	d.took[e.Rank]++
	node := e.Rank / d.court.script.Launches[d.launch].Ranks
	for _, id := range lacks {
		if d.found[id] == nil {
			d.found[id] = map[int]time.Duration{}
		}
		if _, known := d.found[id][node]; !known {
			d.found[id][node] = e.At
		}
	}
	d.bind(e, d.court.script.Prefetch+1)
}

// bind notes which samples the rank gets no more in batches that are begun from now on: those after
// the next ones, which are already prepared.
func (d *decisions) bind(e Event, next int) {
	if d.court.script.Prefetch == 0 {
		return
	}
	for id := range d.found {
		if _, bound := d.from[e.Rank][id]; !bound && d.known(id, e) {
			d.from[e.Rank][id] = d.took[e.Rank] + next
		}
	}
}

// known reports whether it is known on the node of an event's rank that a sample is left out.
func (d *decisions) known(id int, e Event) bool {
	node := e.Rank / d.court.script.Launches[d.launch].Ranks
	if _, own := d.found[id][node]; own {
		return true
	}
	for _, at := range d.found[id] {
		if e.At >= at+news && !d.court.deaf(d.launch, e.At) {
			return true
		}
	}
	return false
}

// first returns on which node a rank first got a batch without a sample, and when.
func (d *decisions) first(id int) (node int, at time.Duration) {
	node = -1
	for n, t := range d.found[id] {
		if node < 0 || t < at || t == at && n < node {
			node, at = n, t
		}
	}
	return node, at
}

// gone returns the samples whose files have been missing for a while in the launch, up to a time.
func (d *decisions) gone(at time.Duration) (ids []int) {
	s := d.court.script
	for _, e := range s.Events {
		if e.Kind == script.Vanish && e.Launch == d.launch && e.At.D() <= at {
			ids = append(ids, e.To%s.Samples)
		}
	}
	return ids
}

// deaf reports whether the network may have kept nodes in a launch, up to a time, from hearing what
// others know: until a minute after a fault, or for good after a node has died.
func (c *court) deaf(launch int, at time.Duration) bool {
	return slices.ContainsFunc(c.script.Events, func(e script.Event) bool {
		short := e.Kind == script.Delay && e.Amount <= script.ShortDelay
		return e.Launch == launch && slices.Contains(network, e.Kind) && !short && e.At.D() <= at &&
			(e.Kind == script.Die || e.At.D()+e.For.D()+time.Minute > at)
	})
}

// without returns the samples that a batch shows to be left out, of those that are gone. ok is
// false if the batch is not one that share may be delivered as.
func (e *epoch) without(share, ids, gone []int) (lacks []int, ok bool) {
	for _, id := range share {
		switch {
		case e.missing[id]:
		case len(ids) > 0 && ids[0] == id:
			ids = ids[1:]
			continue
		case slices.Contains(gone, id):
			lacks = append(lacks, id)
		default:
			return lacks, false
		}
		if e.script.OnError == "substitute" {
			if len(ids) == 0 {
				return lacks, false
			}
			passed, ok := e.passed(id, ids[0], gone)
			if !ok {
				return lacks, false
			}
			lacks, ids = append(lacks, passed...), ids[1:]
		}
	}
	return lacks, len(ids) == 0
}

// passed returns the samples that were not substituted for one because they are gone, if standIn
// was. ok is false if it may not be.
func (e *epoch) passed(id, standIn int, gone []int) (list []int, ok bool) {
	for i := 1; i < e.script.Samples; i++ {
		next := (id + i) % e.script.Samples
		switch {
		case e.missing[next] || e.chosen != nil && !e.chosen[next]:
		case next == standIn:
			return list, true
		case !slices.Contains(gone, next):
			return list, false
		default:
			list = append(list, next)
		}
	}
	return list, false
}

// delivered returns how many samples ranks got of the batches from a step on that an audit is of,
// each when they last took it.
func delivered(audit Event, from int, events []Event) (samples int) {
	last := map[[2]int]int{} // by rank and step
	for _, e := range events {
		if e.Kind == Got && e.Epoch == audit.Epoch && e.Step >= from {
			last[[2]int{e.Rank, e.Step}] = len(e.IDs)
		}
	}
	for _, n := range last {
		samples += n
	}
	return samples
}
