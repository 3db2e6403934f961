package policies

import (
	"strconv"

	"github.com/hdmlp/hdmlp/internal/lib/option"
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
	// Even, the option even_lists, means the lists of Linux before 4.7. LRU has no options.
	Even bool
	// Shuffled, an option of Sequential, is how many epochs are read in new orders first; 0: none.
	// What they leave on the active list is read again in every later epoch.
	Shuffled int
}

var pageCacheOptions = []option.Option{
	{
		Key: "even_lists", Kind: option.Switch, Default: "false",
		Help: "Whether the active list is at most as long as the inactive one, as before Linux 4.7",
	},
	{
		Key: "shuffled", Kind: option.Int, Default: "0", Max: 1 << 20,
		Help: "epochs that are read in new orders first; they leave files on the active list",
	},
}

// Options implements plan.Optional.
func (p PageCache) Options() []option.Option {
	switch {
	case p.LRU:
		return nil
	case p.Sequential:
		return pageCacheOptions
	}
	return pageCacheOptions[:1]
}

// With implements plan.Optional.
func (p PageCache) With(values option.Values) plan.Policy {
	p.Even = option.Get[bool](values, "even_lists")
	p.Shuffled = option.Get[int](values, "shuffled")
	return p
}

// Name returns "pagecache", "pagecache_lru" or "pagecache_sequential", with its options.
func (p PageCache) Name() string {
	name := "pagecache"
	switch {
	case p.LRU:
		name = "pagecache_lru"
	case p.Sequential:
		name = "pagecache_sequential"
	}
	return plan.Named(name, p.Options(), strconv.FormatBool(p.Even), strconv.Itoa(p.Shuffled))
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

// Order returns, if sequential, each node's part of an epoch in the order of the files, from the
// first epoch that is not Shuffled.
func (p PageCache) Order(in plan.Input) (*access.Order, error) {
	if !p.Sequential || in.Stream.Spec().Scheme == access.Whole {
		return nil, nil
	}
	if err := builder.NeedDrawn(p.Name(), &in, true); err != nil {
		return nil, err
	}
	order := reorder.Sorted(&in, p.Name())
	sorted := order.Draw
	order.Draw = func(of *access.Epoch) []int32 {
		if of.Number() < p.Shuffled {
			return of.Samples()
		}
		return sorted(of)
	}
	return &order, nil
}

// Run returns how the simulator executes the policy's plans.
func (p PageCache) Run(in plan.Input, _ *plan.Plan) (simulated.Run, error) {
	rule := pagecache.TwoLists
	switch {
	case p.LRU:
		rule = pagecache.LRU
	case p.Even:
		rule = pagecache.EvenLists
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
