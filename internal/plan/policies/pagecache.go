package policies

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/pagecache"
	"github.com/hdmlp/hdmlp/internal/plan/reorder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// PageCache keeps nothing itself: what a node reads again comes from Linux's page cache, if that
// still has it (package pagecache). It is what loaders have that do not cache, such as torch's and
// DALI's, and the baseline of CoorDL (3.3.1, 5.1). The memory is class 1.
type PageCache struct {
	// LRU means a plain LRU list instead of Linux's two.
	LRU bool
	// Sequential means that each node reads its part of an epoch in the order of the files, and
	// shuffles what it has in memory, as DALI's reader does by default.
	Sequential bool
}

// Name returns "pagecache", "pagecache_lru" or "pagecache_sequential".
func (p PageCache) Name() string {
	switch {
	case p.LRU:
		return "pagecache_lru"
	case p.Sequential:
		return "pagecache_sequential"
	}
	return "pagecache"
}

// About describes the policy.
func (p PageCache) About() plan.About {
	about := plan.About{
		Does:   "keeps nothing, but Linux's page cache keeps what was read lately",
		Stages: true,
		Line:   plan.Line{Colour: 0x6b4f2a},
	}
	switch {
	case p.LRU:
		about.Does = "as pagecache, with the page cache as one LRU list"
		about.Line = plan.Line{Colour: 0xa9927a, Dashed: true}
	case p.Sequential:
		about.Does = "as pagecache, with each epoch's files read in their order, as DALI"
		about.Line.Dashed = true
	}
	return about
}

// Plan returns a plan without copies.
func (p PageCache) Plan(in plan.Input) (*plan.Plan, error) {
	planned, err := builder.Nothing(p.Name(), true, in)
	if err == nil {
		planned.CacheFirst = true
	}
	return planned, err
}

// Order returns, if sequential, each node's part of an epoch in the order of the files.
func (p PageCache) Order(in plan.Input) (*access.Order, error) {
	if !p.Sequential || in.Stream.Spec().Scheme == access.Whole {
		return nil, nil
	}
	if err := builder.NeedDrawn(p.Name(), &in, true); err != nil {
		return nil, err
	}
	order := reorder.Sorted(&in, p.Name())
	return &order, nil
}

// Run returns how the simulator executes the policy's plans.
func (p PageCache) Run(in plan.Input, _ *plan.Plan) (simulated.Run, error) {
	rule := pagecache.TwoLists
	if p.LRU {
		rule = pagecache.LRU
	}
	return simulated.Run{
		Cache: func(node int) simulated.Cache {
			memory := int64(0)
			if c := in.Nodes[node].Capacity; len(c) > 0 {
				memory = c[0]
			}
			return pagecache.New(rule, memory, in.Stream.Spec().Samples, in.Size)
		},
	}, nil
}
