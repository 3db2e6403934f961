package job

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/planner"
	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/staging"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// Claims is the memory that the jobs of a node may take, and have not taken yet, beside storage classes: staging buffers, also of ranks
// that are yet to come, and what decoding may take. Its methods are safe for concurrent use.
type Claims struct {
	// Yield, if not nil, gives up what is cached for no job, where that is in the way of what jobs may take. Set before use.
	Yield func() error

	admission sync.Mutex // held while a job is checked

	mu   sync.Mutex // guards what follows
	jobs map[*Job]*claim
}

// claim is a job's part.
type claim struct {
	buffer  int64 // of one rank
	ranks   int   // of this node
	buffers map[int]*staging.Buffer
	decode  int64
	orders  int64 // of epochs that are yet to be given
	class   int64 // of memory classes that are yet to be opened, which then count themselves
}

func (c *claim) staging() int64 { return c.buffer * int64(c.ranks) }

// NewClaims returns the claims of a node without jobs.
func NewClaims() *Claims { return &Claims{jobs: make(map[*Job]*claim)} }

// Outstanding is how many bytes the jobs may still take. What decoding takes at the moment counts as not taken: it comes and goes.
func (c *Claims) Outstanding() int64 { return c.sum(func(*Job) bool { return true }) }

// beside is Outstanding without a job, and with the storage classes that others are about to open.
func (c *Claims) beside(j *Job) (sum int64) {
	sum = c.sum(func(other *Job) bool { return other != j })
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, part := range c.jobs {
		if other != j {
			sum = addSizes(sum, part.class)
		}
	}
	return sum
}

// opened notes that the job's storage classes are open.
func (c *Claims) opened(j *Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if part := c.jobs[j]; part != nil {
		part.class = 0
	}
}

func (c *Claims) sum(counts func(*Job) bool) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	for j, part := range c.jobs {
		if !counts(j) {
			continue
		}
		sum += part.decode + part.orders + part.staging()
		for _, b := range part.buffers {
			sum -= min(b.Resident(), part.buffer)
		}
	}
	return sum
}

func (c *Claims) set(j *Job, part *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs[j] = part
}

func (c *Claims) drop(j *Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.jobs, j)
}

// staged notes that a rank has its buffer; nil: that it has left.
func (c *Claims) staged(j *Job, rank int, b *staging.Buffer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	part := c.jobs[j]
	switch {
	case part == nil:
	case b == nil:
		delete(part.buffers, rank)
	default:
		part.buffers[rank] = b
	}
}

// summand is a part of the memory that a job needs.
type summand struct {
	bytes int64
	what  string
}

// decodeShare is the share of the memory that other jobs leave which a derived decode_memory has at most: one in so many.
const decodeShare = 32

// admit checks that the node has the memory for the job, all of it that the job may ever take here: its memory class, the staging
// buffers of all its ranks of this node, decoding, and its plan; beside what other jobs of the daemon may still take, and what is in use. Pages
// are taken as they are used, and exceeding a limit triggers the OOM killer. So the sum is checked at the start. What is derived is made smaller
// where the sum would not fit; where that is not enough, or all is given, the job is refused.
func (j *Job) admit() error {
	n := j.node
	n.claims.admission.Lock()
	defer n.claims.admission.Unlock()
	part := &claim{buffer: j.largestBuffer(), ranks: len(j.ownRanks()), buffers: make(map[int]*staging.Buffer), orders: j.orderMemory()}
	if j.program != nil {
		part.decode = j.cfg.DecodeMemory
	}
	defer n.claims.set(j, part)
	measure := n.options.Machine.AvailableMemory
	if measure == nil {
		return nil
	}
	available, err := measure()
	if err != nil {
		return fmt.Errorf("job %s: how much memory there is: %w", printable.Name(j.message.Job), err)
	}
	class := j.classMemory()
	defer func() { part.class = class }()
	others, plan := addSizes(n.claims.beside(j), n.catalog.Promised()), j.planMemory()
	sum := func() int64 {
		return addSizes(addSizes(class, part.staging()), addSizes(addSizes(addSizes(part.decode, plan), part.orders), others))
	}
	shrinkDecode := func(least int64) {
		part.decode = max(least, min(part.decode, config.LeastDecodeMemory))
		smaller := *j.cfg
		smaller.DecodeMemory = part.decode
		j.cfg = &smaller
	}
	derived := part.decode > 0 && request.Derived(j.cfg, "decode_memory")
	// A share of what others leave, so that a process can open loader after loader.
	if share := (available - others) / decodeShare; derived && others > 0 && share < part.decode {
		shrinkDecode(share)
	}
	if over := sum() - available; over > 0 && class > 0 && request.Derived(j.cfg, "memory") {
		less := min(over, class-1) // a class of 1 byte holds nothing
		class -= less
		j.shrink(class)
	}
	if over := sum() - available; over > 0 && derived {
		shrinkDecode(part.decode - over)
	}
	if sum() <= available {
		return nil
	}
	return failure.Over(j.refusal(sum(), available, class, part, []summand{
		{class, "for the memory class (memory)"},
		{part.staging(), fmt.Sprintf("for staging buffers (%d of %s: staging_buffer)", part.ranks, size.Format(part.buffer))},
		{part.decode, "for decoding (decode_memory)"},
		{plan, "for the plan of who caches what (policy), and tables of the samples"},
		{part.orders, "for the orders of epochs that are yet to be given, and tables of them"},
		{others, "that other jobs of this daemon may still take"},
	}), sum(), available)
}

// refusal says what the sum is, what there is, and what to set.
func (j *Job) refusal(need, available, class int64, part *claim, summands []summand) string {
	var list []string
	for _, s := range summands {
		if s.bytes > 0 {
			list = append(list, size.Format(s.bytes)+" "+s.what)
		}
	}
	where := ""
	if bound := j.node.options.Machine.MemoryBound; bound != nil {
		where = bound()
	}
	advice := "make staging_buffer or the batch smaller"
	if part.decode > 0 {
		advice = "make staging_buffer, decode_memory or the batch smaller"
	}
	if left := available - (need - class); class > 0 && left > 0 {
		advice = "set memory to " + size.Format(left) + " or less, " + advice
	} else if class > 0 {
		advice = "set memory to less, and " + advice
	}
	left := "nothing is available"
	if available > 0 {
		left = fmt.Sprintf("%s (%d bytes) are available", size.Format(available), available)
	}
	return fmt.Sprintf("not enough memory for job %s: %s (%d bytes) needed, which are %s; %s%s; %s, or raise the limit",
		j.message.Job, size.Format(need), need, strings.Join(list, ", "), left, where, advice)
}

// classMemory is what memory classes may take for the job's dataset, if their stores are not open already.
func (j *Job) classMemory() (sum int64) {
	if j.dataset.Cached() {
		return 0
	}
	for _, c := range j.cfg.StorageClasses {
		if c.InMemory() {
			sum = addSizes(sum, min(c.Capacity, j.dataset.Index().Bytes()))
		}
	}
	return sum
}

// planMemory is what it takes to make the plan, where one is made, and to keep books of the samples.
func (j *Job) planMemory() int64 {
	nodes := 1
	if j.others != nil {
		nodes = j.others.nodes()
	}
	plan := planner.Memory(j.stream, j.order.First, nodes)
	tables := int64(j.dataset.Index().Len()) * int64(cache.BytesPerSample+storageclass.BytesPerSample*len(j.cfg.StorageClasses))
	return addSizes(plan, tables)
}

// shrink makes the derived memory class smaller.
func (j *Job) shrink(capacity int64) {
	smaller := *j.cfg
	smaller.Memory = capacity
	smaller.StorageClasses = slices.Clone(smaller.StorageClasses)
	for i := range smaller.StorageClasses {
		if c := &smaller.StorageClasses[i]; c.InMemory() {
			c.Capacity = capacity
		}
	}
	j.cfg = &smaller
}

// addSizes is a+b, at most the largest number there is: both come from users.
func addSizes(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// largestBuffer is the size of the largest staging buffer of the node's ranks.
func (j *Job) largestBuffer() (largest int64) {
	for _, rank := range j.ownRanks() {
		bytes, _ := j.bufferSize(rank)
		largest = max(largest, bytes)
	}
	return largest
}

// bufferSize is the size of a rank's staging buffer, and a warning where that is not what was asked for.
func (j *Job) bufferSize(rank int) (bytes int64, warning string) {
	sample := j.need.mean
	if j.program != nil {
		sample = j.program.Expected(sample)
	}
	samples := float64(j.stream.RankSamples(rank)) / float64(max(j.stream.Steps(), 1))
	if spec := j.stream.Spec(); spec.Shuffle == access.Given { // batches may differ much
		samples = float64(spec.GlobalBatch / spec.WorldSize)
	}
	batch := int64(samples * sample)
	bytes = j.cfg.StagingBuffer
	switch {
	case bytes == 0:
		bytes = max(smallestBuffer, batchesStaged*batch)
		if j.program != nil && j.program.Ragged() { // how much that is, is a guess
			bytes = min(bytes, max(mostRagged, 2*batch))
		}
	case bytes < 2*batch:
		warning = fmt.Sprintf("staging_buffer = %d bytes is less than two batches of about %d bytes: it is made %d", bytes, batch, 2*batch)
		bytes = 2 * batch
	}
	return bytes, warning
}

// checkRoom refuses what the memory has no room for, beside what jobs may still take. advice says how less is needed.
func (n *Node) checkRoom(bytes int64, what, advice string) error {
	measure := n.options.Machine.AvailableMemory
	if measure == nil {
		return nil
	}
	available, err := measure()
	if err != nil {
		return fmt.Errorf("%s: how much memory there is: %w", what, err)
	}
	promised := addSizes(n.claims.Outstanding(), n.catalog.Promised())
	left := max(available-promised, 0)
	if bytes <= left {
		return nil
	}
	return failure.Over(fmt.Sprintf("%s: %s needed; %s of memory are available, of which jobs may still take %s; %s, or give the job more memory",
		what, size.Format(bytes), size.Format(available), size.Format(promised), advice), bytes, left)
}
