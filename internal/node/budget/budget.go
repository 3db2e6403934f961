// Package budget tracks a node's memory among its jobs: what each job may still take, apart from
// what it has taken already and from open storage classes. A job whose total would not fit is
// refused before it takes anything: pages are committed only as they are used, so exceeding a limit
// later would trigger the OOM killer.
//
// All methods of Budget and Claim are safe for concurrent use.
package budget

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// Budget is the memory of a node. The zero value refuses nothing. Its exported fields must be set
// before first use.
type Budget struct {
	// Available returns the available memory in bytes. If nil, nothing is refused.
	Available func() (int64, error)
	// Bound describes what limits the available memory, for error messages. It may be nil.
	Bound func() string
	// Promised returns how many bytes the open storage classes in memory may still take. It may be
	// nil if none are open.
	Promised func() int64
	// Yield, if not nil, evicts what is cached for no job if it competes with what jobs may take.
	Yield func() error

	admission sync.Mutex // held while a job is admitted

	mu     sync.Mutex // guards the following
	claims map[*Claim]struct{}
}

// Claim is the memory that one job may take.
type Claim struct {
	budget *Budget
	buffer int64 // bytes of one rank's staging buffer
	ranks  int   // number of ranks on this node
	decode int64
	orders int64 // bytes for orders of epochs that have not been supplied yet

	// Guarded by budget.mu:
	class   int64 // memory classes about to be opened; once open, they are counted by Promised
	buffers map[int]*staging.Buffer
}

// Demand is the most that a job needs. Sizes are in bytes.
type Demand struct {
	Job     string // name
	Buffer  int64  // the largest staging buffer of a rank on this node
	Ranks   int    // number of ranks on this node
	Decodes bool   // whether it decodes; the configuration has the size
	Orders  int64  // orders of epochs that have not been supplied yet
	Plan    int64  // the plan and the sample tables
	Class   int64  // the memory class, unless it is already open
}

func (c *Claim) staging() int64 { return c.buffer * int64(c.ranks) }

// Outstanding returns how many bytes the jobs may still take. The memory in use for decoding counts
// as not yet taken, because it varies.
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

// opening returns how many bytes the storage classes that are about to be opened may take.
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

// Opened records that the job's storage classes are open.
func (c *Claim) Opened() {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	c.class = 0
}

// Drop releases the claim.
func (c *Claim) Drop() {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	delete(c.budget.claims, c)
}

// Staged records the staging buffer of a rank, or, if buffer is nil, that the rank has left.
func (c *Claim) Staged(rank int, buffer *staging.Buffer) {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	if buffer == nil {
		delete(c.buffers, rank)
	} else {
		c.buffers[rank] = buffer
	}
}

// Check returns an error if the available memory, less what jobs may still take, is smaller than
// bytes. what names the purpose; advice describes how to need less.
func (b *Budget) Check(bytes int64, what, advice string) error {
	if b.Available == nil {
		return nil
	}
	available, err := b.Available()
	if err != nil {
		return fmt.Errorf("%s: measure available memory: %w", what, err)
	}
	promised := Add(b.Outstanding(), b.promised())
	left := max(available-promised, 0)
	if bytes <= left {
		return nil
	}
	return failure.Over(fmt.Sprintf("%s: %s needed, but of %s of available memory %s is reserved "+
		"by jobs; %s, or give the job more memory",
		what, human.Format(bytes), human.Format(available), human.Format(promised), advice), bytes,
		left)
}

// summand is one part of the memory that a job needs.
type summand struct {
	bytes int64
	what  string
}

// decodeShare bounds a derived decode_memory to 1/decodeShare of the memory that other jobs leave.
const decodeShare = 32

// Admit reserves all the memory that a job may ever take on this node: its memory class, the
// staging buffers of its ranks on this node, decoding, and its plan. Reservations of other jobs and
// memory in use are accounted for. If the total does not fit, derived sizes are reduced, and the
// returned configuration has the reduced values. If that is not enough, or all sizes were set by
// the user, Admit returns an error.
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

// admit computes the sizes of claim c for Admit. b.admission must be held.
func (b *Budget) admit(c *Claim, d Demand, cfg *config.Config) (*config.Config, error) {
	if b.Available == nil {
		return cfg, nil
	}
	available, err := b.Available()
	if err != nil {
		return nil, fmt.Errorf("job %s: measure available memory: %w", request.Name(d.Job), err)
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
	// Leave a share to later jobs, so that one process can open several loaders.
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
			c.ranks, human.Format(c.buffer))},
		{c.decode, "for decoding (decode_memory)"},
		{d.Plan, "for the placement plan (policy) and sample tables"},
		{c.orders, "for the orders of epochs not yet supplied"},
		{others, "reserved by other jobs of this daemon"},
	}), sum(), available)
}

// refusal returns a message that says what is needed, what is available, and what to change.
func (b *Budget) refusal(need, available int64, c *Claim, job string, summands []summand) string {
	var list []string
	for _, s := range summands {
		if s.bytes > 0 {
			list = append(list, human.Format(s.bytes)+" "+s.what)
		}
	}
	where := ""
	if b.Bound != nil {
		where = b.Bound()
	}
	advice := "reduce staging_buffer or the batch size"
	if c.decode > 0 {
		advice = "reduce staging_buffer, decode_memory or the batch size"
	}
	if left := available - (need - c.class); c.class > 0 && left > 0 {
		advice = "set memory to " + human.Format(left) + " or less, " + advice
	} else if c.class > need/100 { // else that would not help
		advice = "reduce memory, and " + advice
	}
	left := "no memory is available"
	if available > 0 {
		left = fmt.Sprintf("%s (%d bytes) are available", human.Format(available), available)
	}
	return fmt.Sprintf("not enough memory for job %s: %s (%d bytes) needed: %s; %s%s; %s, or "+
		"raise the limit",
		job, human.Format(need), need, strings.Join(list, ", "), left, where, advice)
}

// shrink returns a copy of cfg whose memory class has the given capacity.
func shrink(cfg *config.Config, capacity int64) *config.Config {
	smaller := *cfg
	smaller.Memory = capacity
	smaller.StorageClasses = slices.Clone(smaller.StorageClasses)
	for i := range smaller.StorageClasses {
		if c := &smaller.StorageClasses[i]; c.Memory {
			*c = c.WithCapacity(capacity)
		}
	}
	return &smaller
}

// Add returns a+b, or math.MaxInt64 if that overflows: sizes come from users.
func Add(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
