package replay

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
)

// rate is how fast a part of the machine is, in MB/s.
type rate struct {
	mbps float64
	// doubt states why it is uncertain, in sentences; "": it was measured well.
	doubt string
}

// assumed returns the rate of what the run measured too little of: what was known of it otherwise,
// else what little was measured, else that it does not limit anything. why states what the run
// lacks.
func assumed(why string, known rate, origin model.Origin, measured float64) rate {
	from := map[model.Origin]string{
		model.Given:    "as the configuration says",
		model.Probed:   "as measured before the run",
		model.Measured: "by the few transfers that there were",
	}[origin]
	switch {
	case known.mbps > 0 && from != "":
	case measured < unmeasured:
		known.mbps, from = measured, "by the few transfers that there were"
	default:
		return rate{unmeasured, why + " Nothing else is known of it: what is predicted to be " +
			"transferred there takes no time in the prediction."}
	}
	return rate{known.mbps, fmt.Sprintf("%s It is taken to be %.3f MB/s, %s.", why, known.mbps, from)}
}

// few is the share below which too little was transferred to measure a rate: of the dataset, or,
// for links, of what was delivered.
const few = 0.01

// little reports whether so many MB are too few to measure a rate.
func (r *Run) little(mb float64) bool { return mb*mega < few*float64(r.report.Bytes) }

// meanSize returns the mean size of a sample in MB.
func (r *Run) meanSize() float64 {
	return float64(r.report.Bytes) / float64(r.report.Samples) / mega
}

// knownRate returns the rate of a tier by what is known of it, with this many streams.
func (r *Run) knownRate(k model.Known, streams int) (rate, model.Origin) {
	if !k.IsKnown() {
		return rate{}, ""
	}
	return rate{mbps: min(k.Rate(max(streams, 1), r.meanSize()), unmeasured)}, k.Origin
}

// knownSource returns what is known of what the source gives all nodes together.
func (r *Run) knownSource() (rate, model.Origin) {
	k, nodes := r.report.Known, len(r.report.Nodes)
	if k == nil || !k.Source.IsKnown() && len(k.Sources) == 0 {
		return rate{}, ""
	}
	e := k.Environment(model.Size{Sample: r.meanSize(), Nodes: nodes})
	known, origin := e.SourceThroughput.At(float64(nodes)), k.SourcesOrigin
	if k.Source.IsKnown() {
		one, of := r.knownRate(k.Source, 1)
		known = min(known, float64(nodes*max(k.Streams, 1))*one.mbps)
		if origin != model.Given {
			origin = of
		}
	}
	return rate{mbps: min(known, float64(nodes)*e.SourceBandwidth, unmeasured)}, origin
}

// knownAtFirst returns what nodes knew of their tiers when the job began: what they agreed on, or,
// where they planned with no numbers, what the user said, which does not change.
func (r *Run) knownAtFirst() (first model.Node) {
	now := r.report.Known
	switch {
	case r.report.Agreed != nil:
		return *r.report.Agreed
	case now == nil:
		return first
	}
	given := func(k model.Known) model.Known {
		if k.Origin == model.Given {
			return k
		}
		return model.Known{}
	}
	first.Source, first.Network = given(now.Source), given(now.Network)
	for _, c := range now.Classes {
		first.Classes = append(first.Classes, model.NodeClass{
			Name: c.Name, Path: c.Path, Read: given(c.Read),
		})
	}
	return first
}

// knownClass returns what is known of a class; its zero value if nothing is.
func (r *Run) knownClass(name string) (c model.NodeClass, streams int) {
	k := r.report.Known
	if k == nil {
		return c, 0
	}
	if i := slices.IndexFunc(k.Classes, func(c model.NodeClass) bool {
		return c.Name == name
	}); i >= 0 {
		c = k.Classes[i]
	}
	return c, k.Streams
}

// readClass returns how fast a class of a node is read.
func (r *Run) readClass(name string) rate {
	mb := 0.0
	for _, n := range r.report.Nodes {
		for _, m := range n.Tiers {
			if m.Tier == name {
				mb += float64(m.Bytes) / mega
			}
		}
	}
	if !r.little(mb) {
		return rate{mbps: r.fastest(name)}
	}
	class, streams := r.knownClass(name)
	known, origin := r.knownRate(class.Read, streams)
	return assumed(fmt.Sprintf("The run read %.3f MB from %s: too little to say at what rate it is "+
		"read.", mb, name), known, origin, r.fastest(name))
}

// readIn returns how fast a class of a node was read in an epoch, if that was enough to say; 0: it
// was not. What a job reads for the first time may come from the disk, and later from the page
// cache.
func (r *Run) readIn(name string, number int) float64 {
	var sum model.Speed
	for i := range r.report.Nodes {
		if e := epoch(&r.report.Nodes[i], number); e != nil {
			for _, m := range e.Tiers {
				if m.Tier == name {
					sum.Bytes += m.Bytes
					sum.Busy += m.Busy
				}
			}
		}
	}
	if mb := float64(sum.Bytes) / mega; !r.little(mb) && sum.Busy > 0 {
		return mb / sum.Busy
	}
	return 0
}

// writeClass returns how fast a class of a node is written, beside reads; 0: as fast as samples are
// read, so that it does not matter.
func (r *Run) writeClass(node int, name string) rate {
	of := &r.report.Nodes[node]
	class := of.Classes[slices.IndexFunc(of.Classes, named(name))]
	if mb := float64(class.Used-class.Held.Bytes) / mega; r.little(mb) {
		k, _ := r.knownClass(name)
		known, origin := r.knownRate(k.Write, k.Stores)
		got := assumed(fmt.Sprintf("The run wrote %.3f MB to %s: too little to say at what rate it "+
			"is written.", max(mb, 0), name), known, origin, unmeasured)
		if got.mbps == unmeasured {
			got.mbps = 0
		}
		return got
	}
	if w := class.Written; w != nil && w.Busy > 0 {
		return rate{mbps: float64(w.Bytes) / mega / w.Busy}
	}
	return rate{mbps: r.written(of, class)}
}

// Unsure returns what of the machine the run did not measure well, if the results depend on it; in
// sentences.
func (r *Run) Unsure(results ...*Result) (all []string) {
	// add adds a doubt if some result has more than a little of what it concerns.
	add := func(doubt string, mb func(*Result) float64) {
		if doubt != "" && !slices.Contains(all, doubt) &&
			slices.ContainsFunc(results, func(got *Result) bool {
				return got != nil && !r.little(mb(got))
			}) {
			all = append(all, doubt)
		}
	}
	source, hung := r.sourceRate()
	add(source.doubt, func(got *Result) float64 { return got.Source })
	if link := r.link(); len(r.report.Nodes) > 1 && link.doubt != "" {
		all = append(all, link.doubt)
	} else {
		add(link.doubt, func(got *Result) float64 { return got.Delivered["peer"] })
	}
	for i := range r.report.Nodes {
		for _, class := range r.report.Nodes[i].Classes {
			if class.Name == memoryClass {
				continue
			}
			add(r.readClass(class.Name).doubt, func(got *Result) float64 {
				return got.Delivered[class.Name]
			})
			add(r.writeClass(i, class.Name).doubt, func(got *Result) float64 {
				return got.Written[class.Name]
			})
		}
	}
	for _, got := range results {
		if got != nil && got.Doubt != "" {
			all = append(all, got.Doubt)
		}
	}
	if hung >= 0 {
		all = append(all, fmt.Sprintf("In epoch %d the source took much longer than in the others, "+
			"which give its rate: the predicted time of this epoch is without the delay.", hung))
	}
	return all
}
