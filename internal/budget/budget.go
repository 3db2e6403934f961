// Package budget is the memory of a node, among its jobs: what each may take, and has not taken
// yet, beside storage classes. A job whose sum would not fit is refused before it takes anything,
// because pages are taken as they are used, and exceeding a limit triggers the OOM killer.
//
// All methods of Budget and Claim are safe for concurrent use.
package budget

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/size"
	"github.com/hdmlp/hdmlp/internal/staging"
)

// Budget is the memory of a node. The zero value refuses nothing; what is set, is set before use.
type Budget struct {
	// Available measures what there is; nil: that is not known, and nothing is refused.
	Available func() (int64, error)
	// Bound says in words what bounds it; nil: nothing is said.
	Bound func() string
	// Promised is how many bytes the open storage classes in memory may still take; nil: none are
	// open.
	Promised func() int64
	// Yield, if not nil, gives up what is cached for no job, where that is in the way of what jobs
	// may take.
	Yield func() error

	admission sync.Mutex // held while a job is checked

	mu     sync.Mutex // guards what follows
	claims map[*Claim]struct{}
}

// Claim is what a job may take.
type Claim struct {
	budget *Budget
	buffer int64 // of one rank
	ranks  int   // of this node
	decode int64
	orders int64 // of epochs that are yet to be given

	// budget.mu guards what follows.
	class   int64 // of memory classes that are yet to be opened, which then count themselves
	buffers map[int]*staging.Buffer
}

// Demand is what a job needs, at most.
type Demand struct {
	Job     string // its name
	Buffer  int64  // of a rank of this node that needs the largest staging buffer
	Ranks   int    // of this node
	Decodes bool   // what decoding takes is in the configuration
	Orders  int64  // for orders of epochs that are yet to be given
	Plan    int64  // for the plan, and tables of the samples
	Class   int64  // for its memory class, if that is not open already
}

func (c *Claim) staging() int64 { return c.buffer * int64(c.ranks) }

// Outstanding is how many bytes the jobs may still take. What decoding takes at the moment counts
// as not taken: it comes and goes.
func (b *Budget) Outstanding() (sum int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.claims {
		sum += c.decode + c.orders + c.staging()
		for _, buffer := range c.buffers {
			sum -= min(buffer.Resident(), c.buffer)
		}
	}
	return sum
}

// opening is how many bytes the storage classes may take that are about to be opened.
func (b *Budget) opening() (sum int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.claims {
		sum = Add(sum, c.class)
	}
	return sum
}

func (b *Budget) promised() int64 {
	if b.Promised == nil {
		return 0
	}
	return b.Promised()
}

// Opened notes that the job's storage classes are open.
func (c *Claim) Opened() {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	c.class = 0
}

// Drop takes the claim back.
func (c *Claim) Drop() {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	delete(c.budget.claims, c)
}

// Staged notes that a rank has its buffer; nil: that it has left.
func (c *Claim) Staged(rank int, buffer *staging.Buffer) {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	if buffer == nil {
		delete(c.buffers, rank)
	} else {
		c.buffers[rank] = buffer
	}
}

// Check refuses what the memory has no room for, beside what jobs may still take. advice says how
// less is needed.
func (b *Budget) Check(bytes int64, what, advice string) error {
	if b.Available == nil {
		return nil
	}
	available, err := b.Available()
	if err != nil {
		return fmt.Errorf("%s: how much memory there is: %w", what, err)
	}
	promised := Add(b.Outstanding(), b.promised())
	left := max(available-promised, 0)
	if bytes <= left {
		return nil
	}
	return failure.Over(fmt.Sprintf("%s: %s needed; %s of memory are available, of which jobs "+
		"may still take %s; %s, or give the job more memory",
		what, size.Format(bytes), size.Format(available), size.Format(promised), advice), bytes,
		left)
}

// summand is a part of the memory that a job needs.
type summand struct {
	bytes int64
	what  string
}

// decodeShare is the share of the memory that other jobs leave which a derived decode_memory has at
// most: one in so many.
const decodeShare = 32

// Admit checks that the node has the memory for a job, all of it that the job may ever take here:
// its memory class, the staging buffers of all its ranks of this node, decoding, and its plan;
// beside what other jobs may still take, and what is in use. What is derived is made smaller where
// the sum would not fit: the configuration that comes back says so. Where that is not enough, or
// all is given, the job is refused.
func (b *Budget) Admit(d Demand, cfg *config.Config) (*Claim, *config.Config, error) {
	b.admission.Lock()
	defer b.admission.Unlock()
	c := &Claim{
		budget:  b,
		buffer:  d.Buffer,
		ranks:   d.Ranks,
		buffers: make(map[int]*staging.Buffer),
		orders:  d.Orders,
	}
	if d.Decodes {
		c.decode = cfg.DecodeMemory
	}
	cfg, err := b.admit(c, d, cfg)
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claims == nil {
		b.claims = make(map[*Claim]struct{})
	}
	b.claims[c] = struct{}{}
	return c, cfg, nil
}

// admit is Admit of a claim that is not made yet. b.admission is held.
func (b *Budget) admit(c *Claim, d Demand, cfg *config.Config) (*config.Config, error) {
	if b.Available == nil {
		return cfg, nil
	}
	available, err := b.Available()
	if err != nil {
		return nil, fmt.Errorf("job %s: how much memory there is: %w", request.Name(d.Job), err)
	}
	c.class = d.Class
	others := Add(Add(b.Outstanding(), b.opening()), b.promised())
	sum := func() int64 {
		return Add(Add(c.class, c.staging()), Add(Add(Add(c.decode, d.Plan), c.orders), others))
	}
	shrinkDecode := func(least int64) {
		c.decode = max(least, min(c.decode, config.LeastDecodeMemory))
		smaller := *cfg
		smaller.DecodeMemory = c.decode
		cfg = &smaller
	}
	derived := c.decode > 0 && request.Derived(cfg, "decode_memory")
	// A share of what others leave, so that a process can open loader after loader.
	if share := (available - others) / decodeShare; derived && others > 0 && share < c.decode {
		shrinkDecode(share)
	}
	if over := sum() - available; over > 0 && c.class > 0 && request.Derived(cfg, "memory") {
		c.class -= min(over, c.class-1) // a class of 1 byte holds nothing
		cfg = shrink(cfg, c.class)
	}
	if over := sum() - available; over > 0 && derived {
		shrinkDecode(c.decode - over)
	}
	if sum() <= available {
		return cfg, nil
	}
	return nil, failure.Over(b.refusal(sum(), available, c, d.Job, []summand{
		{c.class, "for the memory class (memory)"},
		{c.staging(), fmt.Sprintf("for staging buffers (%d of %s: staging_buffer)",
			c.ranks, size.Format(c.buffer))},
		{c.decode, "for decoding (decode_memory)"},
		{d.Plan, "for the plan of who caches what (policy), and tables of the samples"},
		{c.orders, "for the orders of epochs that are yet to be given, and tables of them"},
		{others, "that other jobs of this daemon may still take"},
	}), sum(), available)
}

// refusal says what the sum is, what there is, and what to set.
func (b *Budget) refusal(need, available int64, c *Claim, job string, summands []summand) string {
	var list []string
	for _, s := range summands {
		if s.bytes > 0 {
			list = append(list, size.Format(s.bytes)+" "+s.what)
		}
	}
	where := ""
	if b.Bound != nil {
		where = b.Bound()
	}
	advice := "make staging_buffer or the batch smaller"
	if c.decode > 0 {
		advice = "make staging_buffer, decode_memory or the batch smaller"
	}
	if left := available - (need - c.class); c.class > 0 && left > 0 {
		advice = "set memory to " + size.Format(left) + " or less, " + advice
	} else if c.class > 0 {
		advice = "set memory to less, and " + advice
	}
	left := "nothing is available"
	if available > 0 {
		left = fmt.Sprintf("%s (%d bytes) are available", size.Format(available), available)
	}
	return fmt.Sprintf("not enough memory for job %s: %s (%d bytes) needed, which are %s; %s%s; "+
		"%s, or raise the limit",
		job, size.Format(need), need, strings.Join(list, ", "), left, where, advice)
}

// shrink makes the derived memory class of a configuration smaller.
func shrink(cfg *config.Config, capacity int64) *config.Config {
	smaller := *cfg
	smaller.Memory = capacity
	smaller.StorageClasses = slices.Clone(smaller.StorageClasses)
	for i := range smaller.StorageClasses {
		if c := &smaller.StorageClasses[i]; c.InMemory() {
			c.Capacity = capacity
		}
	}
	return &smaller
}

// Add is a+b, at most the largest number there is: both come from users.
func Add(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
