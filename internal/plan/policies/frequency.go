package policies

import (
	"iter"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// Frequency is the policy of HDMLP in the thesis (3.2.2): each node caches the samples that it
// reads most often itself, fastest class first, each class filled in the order of first access.
// Ties are broken by the epoch of the first read (by ID alone, all nodes would choose the same
// samples, and more of the dataset would not be cached), then by ID.
type Frequency struct{}

// Name returns "frequency".
func (Frequency) Name() string { return "frequency" }

// About describes the policy.
func (Frequency) About() plan.About {
	return plan.About{
		Does:        "has each node keep what it reads most often itself, as in the thesis",
		Engine:      true,
		Stages:      true,
		Copies:      plan.OwnReads,
		CountsReads: true,
		Line:        plan.Line{Colour: 0x3f8fd0},
	}
}

// Plan fills each node's classes independently.
func (f Frequency) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	b.FillOwn(builder.NewReads(b), 1)
	b.Tidy()
	if len(in.Nodes) > 1 {
		b.KeepLater() // by ID, all nodes would choose the same ones
	}
	b.FillUnread()
	b.OwnFastest()
	return b.Finish(f.Name(), true, false), in.Ended()
}

// First keeps nothing on several nodes: a node's first reads do not show which samples it reads
// most often. A single node reads all equally often, and keeps what it reads.
func (f Frequency) First(in plan.Input,
	window plan.BootstrapWindow,
) (*plan.Plan, error) {
	b, err := builder.NewWindow(&in, window)
	if err != nil {
		return nil, err
	}
	if len(in.Nodes) == 1 {
		b.KeepFirst(window, false)
	}
	return b.FinishInOrder(f.Name(), true), in.Ended()
}

// Original fills every node's classes with the samples that it reads most often, each class by its
// own threads, during training. All classes are filled from one list, each until the next sample
// does not fit, and never with the last of the list. Another pass over the classes follows at every
// later request, as long as something fits: it continues in the list where the previous pass ended,
// and so may put a sample into the gap of an earlier class.
func (Frequency) Original() simulated.Rules {
	return simulated.Rules{
		Staging: true, Source: true, LogStarts: true,
		Loads: func(m *simulated.Machine) iter.Seq[simulated.Load] {
			return func(yield func(simulated.Load) bool) {
				for i := range m.Reads {
					order := thesisOrder(m, i)
					spaces := make([]simulated.Space, len(m.Capacity))
					next, found := 0, true
					for pass := 0; found; pass++ {
						found = pass == 0
						for j := 1; j < len(m.Capacity); j++ {
							spaces[j].Capacity = m.Capacity[j]
							begin := next
							for ; next < len(order)-1 &&
								spaces[j].Fits(m.Sizes[order[next]]); next++ {
								spaces[j].Used += m.Sizes[order[next]]
							}
							found = found || next > begin
							if (pass == 0 || next > begin) &&
								!yield(simulated.Load{
									Node:    i,
									Class:   j,
									Samples: order[begin:next],
									Later:   pass,
								}) {
								return
							}
						}
					}
				}
			}
		},
	}
}

// thesisOrder returns all samples in the order in which node i caches them: by descending
// frequency, then by number; and then, within blocks of the size of each class, the staging
// buffer's first (3.6), by first access, with samples that the node never reads last. Samples after
// the blocks stay in the order of frequency.
func thesisOrder(m *simulated.Machine, i int) []int32 {
	files := len(m.Sizes)
	reads := m.Reads[i]
	counts := make([]int32, files)
	most := int32(0)
	for _, k := range reads {
		counts[k]++
		most = max(most, counts[k])
	}

	// A counting sort by frequency.
	begin := make([]int, most+2)
	for _, n := range counts {
		begin[most-n+1]++
	}
	never := files - begin[most+1] // start of those of frequency 0
	for n := range most + 1 {
		begin[n+1] += begin[n]
	}
	order := make([]int32, files)
	for k, n := range counts {
		order[begin[most-n]] = int32(k)
		begin[most-n]++
	}

	// block b is the shortest run whose size exceeds d_b, or all remaining samples if none does.
	blockOf := make([]int8, files)
	ends := make([]int, 0, len(m.Capacity))
	next := 0
	for b := range m.Capacity {
		for size := 0.0; next < files && size <= m.Capacity[b]; next++ {
			size += m.Sizes[order[next]]
			blockOf[order[next]] = int8(b)
		}
		ends = append(ends, next)
	}
	for _, k := range order[next:] {
		blockOf[k] = -1
	}

	// In the order of first access, every file is moved to the next position of its block. The loop
	// marks the files that it has seen with a frequency of 0, so that those that are never read
	// remain, in their order.
	sorted := make([]int32, next)
	place := make([]int, len(ends))
	copy(place[1:], ends)
	put := func(k int32) {
		if b := blockOf[k]; b >= 0 {
			sorted[place[b]] = k
			place[b]++
		}
	}
	for _, k := range reads {
		if counts[k] > 0 {
			counts[k] = 0
			put(k)
		}
	}
	for _, k := range order[min(never, next):next] {
		put(k)
	}
	copy(order, sorted)
	return order
}
