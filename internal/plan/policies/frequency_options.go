package policies

import (
	"iter"
	"slices"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// frequencyOptions are those of the thesis's class FrequencyPrefetcher (4.1.4, 5.2.1).
var frequencyOptions = []option.Option{
	{
		Key: "in_order", Kind: option.Switch, Default: "true",
		Help: "Whether classes are filled in the order of first reads, and not of how often",
	},
	{
		Key: "cleanup_read", Kind: option.Switch, Default: "false",
		Help: "Whether a node drops what training has read for the last time, and fills the space",
	},
}

// Options implements plan.Optional. Values that are not the defaults are for the simulator.
func (Frequency) Options() []option.Option { return frequencyOptions }

// With implements plan.Optional.
func (f Frequency) With(values option.Values) plan.Policy {
	o := FrequencyWith{CleanupRead: option.Get[bool](values, "cleanup_read")}
	if inOrder, given := values["in_order"]; given {
		o.ByFrequency = !inOrder.(bool)
	}
	if o == (FrequencyWith{}) {
		return f
	}
	return o
}

// FrequencyWith is Frequency with options, for the simulator.
type FrequencyWith struct {
	Frequency
	// ByFrequency, the option in_order = false, fills each class in the order of how often the node
	// reads its samples, most often first, and not in that of their first reads.
	ByFrequency bool
	// CleanupRead, the option cleanup_read, has a node drop a sample from its classes when training
	// has read it for the last time, and fill the space with the samples that follow in the order of
	// how often the node reads them.
	CleanupRead bool
}

// Name returns the policy's name, with its options.
func (f FrequencyWith) Name() string {
	return plan.Named("frequency", frequencyOptions, strconv.FormatBool(!f.ByFrequency),
		strconv.FormatBool(f.CleanupRead))
}

// About describes the policy.
func (f FrequencyWith) About() plan.About {
	about := f.Frequency.About()
	about.Engine = false
	about.Line = plan.Line{Colour: 0x3f8fd0, Dashed: true}
	if f.CleanupRead {
		about.Line.Colour = 0x1f5f8f
	}
	if f.CleanupRead && f.ByFrequency {
		about.Line.Colour = 0x8fbfe8
	}
	return about
}

// Plan is that of Frequency, but for the order of filling.
func (f FrequencyWith) Plan(in plan.Input) (*plan.Plan, error) {
	p, err := f.Frequency.Plan(in)
	if err != nil {
		return nil, err
	}
	p.Policy = f.Name()
	if !f.ByFrequency {
		return p, nil
	}
	for n := range p.Nodes {
		counts, _ := ownReads(&in, n)
		for _, ids := range p.Nodes[n].Classes {
			slices.SortStableFunc(ids, func(a, b int32) int { return int(counts[b]) - int(counts[a]) })
		}
	}
	return p, in.Ended()
}

// Run returns how the simulator executes the policy's plans.
func (f FrequencyWith) Run(in plan.Input, p *plan.Plan) (simulated.Run, error) {
	if !f.CleanupRead {
		return simulated.Run{}, nil
	}
	next := func(node int) []int32 {
		counts, first := ownReads(&in, node)
		for _, ids := range p.Nodes[node].Classes {
			for _, k := range ids {
				counts[k] = 0 // planned already
			}
		}
		ids := slices.DeleteFunc(first, func(k int32) bool { return counts[k] == 0 })
		slices.SortStableFunc(ids, func(a, b int32) int { return int(counts[b]) - int(counts[a]) })
		return ids
	}
	return simulated.Run{Drop: next}, nil
}

// ownReads returns how often the node reads each sample, and what it reads in the order of first
// reads.
func ownReads(in *plan.Input, node int) (counts []int32, first []int32) {
	counts = make([]int32, in.Stream.Spec().Samples)
	to, _, err := in.Check()
	if err != nil { // the policy has planned for the input
		return counts, nil
	}
	var ids []int32
	for e := in.From; e < to && in.Ended() == nil; e++ {
		epoch := in.Stream.Epoch(e)
		for step := range in.Stream.Steps() {
			for _, rank := range in.Nodes[node].Ranks {
				ids = epoch.Batch(ids[:0], rank, step)
				for _, k := range ids {
					if counts[k]++; counts[k] == 1 {
						first = append(first, k)
					}
				}
			}
		}
	}
	return counts, first
}

// Original is that of Frequency with the options. With cleanup_read, a sample that is requested for
// the last time makes room at once, and another pass over the classes follows, as at every request,
// from where the previous one ended in the list: also samples that the node does not need any more
// are loaded, and are not dropped again.
func (f FrequencyWith) Original() simulated.Rules {
	rules := f.Frequency.Original()
	rules.Drop = f.CleanupRead
	rules.Loads = func(m *simulated.Machine) iter.Seq[simulated.Load] {
		return func(yield func(simulated.Load) bool) {
			for i := range m.Reads {
				order := thesisOrder(m, i)
				if f.ByFrequency {
					order = mostReadFirst(m, i)
				}
				if !originalPasses(m, i, order, f.CleanupRead, yield) {
					return
				}
			}
		}
	}
	return rules
}

// mostReadFirst returns all samples by how often node i reads them, then by number.
func mostReadFirst(m *simulated.Machine, i int) []int32 {
	counts := make([]int32, len(m.Sizes))
	for _, k := range m.Reads[i] {
		counts[k]++
	}
	order := simulated.Range{To: len(m.Sizes)}.All()
	slices.SortStableFunc(order, func(a, b int32) int { return int(counts[b]) - int(counts[a]) })
	return order
}

// originalPasses yields what node i loads from the list: before training, and at its requests,
// which count from 1. It returns false if yield does.
func originalPasses(m *simulated.Machine, i int, order []int32, cleanup bool,
	yield func(simulated.Load) bool,
) bool {
	spaces := make([]simulated.Space, len(m.Capacity))
	for j := range spaces {
		spaces[j].Capacity = m.Capacity[j]
	}
	classOf := make([]int8, len(m.Sizes)) // 0: it is in none
	next := 0
	fill := func(pass int) (found, more bool) {
		for j := 1; j < len(m.Capacity); j++ {
			begin := next
			for ; next < len(order)-1 && spaces[j].Fits(m.Sizes[order[next]]); next++ {
				spaces[j].Used += m.Sizes[order[next]]
				classOf[order[next]] = int8(j)
			}
			if pass > 0 && next == begin {
				continue
			}
			found = true
			if !yield(simulated.Load{
				Node: i, Class: j, Samples: order[begin:next], Later: pass,
			}) {
				return found, false
			}
		}
		return found, true
	}
	reads := m.Reads[i]
	last := make([]int32, len(m.Sizes))
	for at, k := range reads {
		last[k] = int32(at)
	}
	found, more := fill(0)
	for at, k := range reads {
		if !more {
			return false
		}
		dropped := cleanup && int(last[k]) == at && classOf[k] > 0
		if dropped {
			spaces[classOf[k]].Used -= m.Sizes[k]
			classOf[k] = 0
		}
		if !found && !dropped {
			continue // as the pass before, this one would find nothing
		}
		found, more = fill(at + 1)
	}
	return more
}
