package policies

import (
	"iter"

	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/builder"
	"github.com/hdmlp/hdmlp/internal/placement/simulated"
)

// Frequency is HDMLP as the thesis has it (3.2.2): each node caches the samples that it reads
// most often itself, fastest class first, each class filled in the order of first access.
// Samples that a node reads equally often go by the epoch in which it first does (by ID, all
// nodes would choose the same ones, and more of the dataset would be cached nowhere), then by ID.
type Frequency struct{}

// Name is "frequency".
func (Frequency) Name() string { return "frequency" }

// About describes it.
func (Frequency) About() placement.About {
	return placement.About{
		Does:        "has each node keep what it reads most often itself, as the thesis",
		Engine:      true,
		Stages:      true,
		Copies:      placement.OwnReads,
		CountsReads: true,
		Line:        placement.Line{Colour: 0x3f8fd0},
	}
}

// Plan fills every node for itself.
func (f Frequency) Plan(in placement.Input) (*placement.Plan, error) {
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

// First lets several nodes keep nothing: which samples a node reads most often does not show in its
// first reads. One node reads all equally often, and keeps what it reads.
func (f Frequency) First(in placement.Input, lead placement.Lead) (*placement.Plan, error) {
	b, err := builder.NewLead(&in, lead)
	if err != nil {
		return nil, err
	}
	if len(in.Nodes) == 1 {
		b.KeepFirst(lead, false)
	}
	return b.FinishInOrder(f.Name(), true), in.Ended()
}

// Original fills every node's classes with the samples that it reads most often, each class by
// threads of its own, while it trains. A class is filled from one list for all of them until the
// next sample does not fit, and never with the list's last. One more pass over the classes follows
// at every later request, for as long as it finds room: it goes on in the list where the one before
// ended, and so may put a sample into the gap of an earlier class.
func (Frequency) Original() simulated.Rules {
	return simulated.Rules{
		Staging: true, Source: true, LogStarts: true,
		Loads: func(m *simulated.Machine) iter.Seq[simulated.Load] {
			return func(yield func(simulated.Load) bool) {
				for i := range m.Reads {
					order := thesisOrder(m, i)
					rooms := make([]simulated.Room, len(m.Capacity))
					next, found := 0, true
					for pass := 0; found; pass++ {
						found = pass == 0
						for j := 1; j < len(m.Capacity); j++ {
							rooms[j].Capacity = m.Capacity[j]
							begin := next
							for ; next < len(order)-1 &&
								rooms[j].Fits(m.Sizes[order[next]]); next++ {
								rooms[j].Used += m.Sizes[order[next]]
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
// frequency, then by number; and then, in blocks of the size of each class, the staging buffer's
// first (3.6), by first access, with what the node never reads last. What comes after the blocks
// stays in the order of frequency.
func thesisOrder(m *simulated.Machine, i int) []int32 {
	files := len(m.Sizes)
	reads := m.Reads[i]
	often := make([]int32, files)
	most := int32(0)
	for _, k := range reads {
		often[k]++
		most = max(most, often[k])
	}

	// A counting sort by frequency.
	begin := make([]int, most+2)
	for _, n := range often {
		begin[most-n+1]++
	}
	never := files - begin[most+1] // where those of frequency 0 begin
	for n := range most + 1 {
		begin[n+1] += begin[n]
	}
	order := make([]int32, files)
	for k, n := range often {
		order[begin[most-n]] = int32(k)
		begin[most-n]++
	}

	// block b is the shortest run whose size exceeds d_b; one that no run exceeds takes what there
	// is.
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

	// In the order of first access, every file goes to the next place of its block; the walk marks
	// what it has met by a frequency of 0, so that those never read are what is left, in their
	// order.
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
		if often[k] > 0 {
			often[k] = 0
			put(k)
		}
	}
	for _, k := range order[min(never, next):next] {
		put(k)
	}
	copy(order, sorted)
	return order
}
