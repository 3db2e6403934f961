package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/node/budget"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/coordinator"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/order"
	"github.com/hdmlp/hdmlp/internal/node/planner"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/transform/runner"
)

// Node is what all jobs of a node share.
type Shared struct {
	Budget     *budget.Budget
	Strategy   planner.Strategy
	Processors int // limit for transforms
	// Version and Protocol are those of the software, and must be the same on all nodes of a job.
	Version  string
	Protocol int
	// Network is how nodes reach each other; nil: the system's network.
	Network coordinator.Network
	// Samples, if not nil, wraps the listener that serves this node's samples. It lets tests play
	// corrupting nodes.
	Samples func(net.Listener) net.Listener
}

// Spec describes the job to put together.
type Spec struct {
	Request *request.Open // the request of the rank that makes the job
	Config  *config.Config
	Said    *request.Order
	Dataset *catalog.Dataset // closed with the assembly
	// Turns exchanges the orders that ranks on several nodes supply; nil: they supply none.
	Turns *order.Turns
	Life  context.Context // ends with the job
	End   context.CancelCauseFunc
	Local coordinator.Job
	// Produces: the job prepares the batches of a group.
	Produces bool
	// Drawn is the seed of a job that is given none, unless another node decides it; nil: it is
	// drawn.
	Drawn *uint64
	// Listening, if not nil, is called with the address on which node 0 listens for other nodes.
	Listening func(net.Addr)
	// Ranks waits until all ranks of this node have joined, and returns them.
	Ranks func(context.Context) ([]int, error)
	// Stays reports whether the job is not about to end: no rank of this node is leaving it.
	Stays    func() bool
	Progress request.Progress
	Log      *slog.Logger
}

// Assembly is a job and everything that it works with.
type Assembly struct {
	Job    *job.Job
	Config *config.Config // in force: derived sizes may be smaller than in Spec
	Order  *order.Order
	// Coordinator is nil if the job has one node.
	Coordinator *coordinator.Coordinator

	node         *Shared
	spec         Spec
	parts        job.Parts
	agreed       coordinator.Agreement
	claim        *budget.Claim  // nil: not admitted yet
	cached       bool           // whether the dataset's cache was joined
	live         *catalog.Live  // what is known of the node; nil: the cache was not joined
	preprocessor *runner.Runner // nil: samples are delivered unchanged
	forms        bool           // the job takes samples in other forms than as read
	recipe       cache.Recipe   // what its transforms begin with; nil: nothing that forms hold
}

// Assemble puts together a job. If it fails, nothing is left running or open.
func Assemble(ctx context.Context, n *Shared, s Spec) (*Assembly, error) {
	a := &Assembly{node: n, spec: s, Config: s.Config}
	a.parts = job.Parts{
		Life: s.Life, End: s.End, Dataset: s.Dataset, Stops: job.NewStops(s.Request, s.Log),
		Unusable: job.NewUnusable(s.Config.OnError),
		Admit:    n.Budget.Check, Log: s.Log,
	}
	if err := a.assemble(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func (a *Assembly) assemble(ctx context.Context) error {
	said, err := a.agree(ctx)
	if err != nil {
		return err
	}
	index := a.spec.Dataset.Index()
	if a.Order, err = order.New(a.spec.Request, said, a.agreed.Seed, index,
		a.spec.Turns); err != nil {
		return err
	}
	if err = a.reorder(ctx); err != nil {
		return err
	}
	files, err := budget.Files(a.Config.SourceThreads)
	if err != nil {
		return err
	}
	c := job.Config{
		Request: a.spec.Request,
		Seed:    a.agreed.Seed,
		Version: a.agreed.Version,
		Ranks:   a.ranks(),
		// of the rank that makes the job
		Warnings: slices.Clone(a.Config.Warnings),
	}
	transform, err := a.compile(&c)
	if err != nil {
		return err
	}
	join := catalog.Join{
		Config: a.Config, MostFiles: files, Nodes: a.nodes(),
		Slow:     func(dir string) { a.spec.Progress(request.CacheWaits(dir)) },
		Waits:    func() { a.spec.Progress(request.CachesOfAnotherWait) },
		Suits:    func(by *config.Config) bool { return request.Differences(by, a.Config) == "" },
		Stays:    a.spec.Stays,
		FormRoom: a.formRoom(), Processors: a.node.Processors,
	}
	if err := a.spec.Dataset.AwaitEnd(ctx, join); err != nil {
		return err
	}
	if err := a.admit(&c); err != nil {
		return err
	}
	join.Config = a.Config // as it was admitted
	joined, madeBy, err := a.spec.Dataset.JoinCache(ctx, join)
	if err != nil {
		return err
	}
	a.cached = true
	a.claim.Opened()
	if yield := a.node.Budget.Yield; yield != nil {
		if err := yield(); err != nil {
			return err
		}
	}
	if transform != nil {
		transform()
	}
	a.parts.Order = a.Order
	a.parts.Cache = joined
	a.parts.Memory = a.claim
	if a.Coordinator != nil {
		a.parts.Nodes, a.parts.Peers = a.Coordinator, a.Coordinator.Peers()
	}
	a.live = a.spec.Dataset.Live(a.nodes(), joined)
	if a.Coordinator != nil {
		a.live.Network = a.Coordinator.Peers()
		a.live.Network.Know(a.live.Start().Network)
	}
	if a.forms {
		a.parts.Use = joined.UseForms(a.parts.Peers, a.makesForms(), a.recipe)
	} else {
		a.parts.Use = joined.Use(a.parts.Peers)
	}
	a.parts.Planning = a.planning()
	c.Policy, c.Staging = a.Config.Policy, a.Config.StagingBuffer
	c.Entries = a.Config.Entries != ""
	c.Prefetch = a.Config.PrefetchBatches
	c.Produces = a.spec.Produces
	c.FixedPrefetch = !request.Derived(a.Config, "prefetch_batches")
	if a.Job, err = job.New(ctx, c, a.parts); err != nil {
		return err
	}
	a.live.SetTraining(a.Job)
	// Serve before the job is open: a node that has a plan sooner, and asks for a sample, then waits
	// until this node has determined what it is to keep.
	if a.Coordinator != nil {
		a.Coordinator.Serve(joined, a.Job.Planner().ReadsOnce, a.Job.ReadAhead)
	}
	if madeBy == a.Config {
		a.adviseCapacity()
	} else if text := request.Differences(madeBy, a.Config); text != "" {
		a.Job.Warn("another job opened this dataset first, and its cache settings apply until all " +
			"jobs on the dataset have ended: " + text + ". Give these jobs the same settings, or " +
			"start this one after them")
	}
	if err := a.Job.Preload(ctx, a.Config.PreloadTimeout, a.spec.Progress); err != nil {
		return err
	}
	a.Job.Opened()
	return nil
}

// reorder puts the epochs into the order in which the policy reads them.
func (a *Assembly) reorder(ctx context.Context) error {
	byName := a.node.Strategy.Policy
	if byName == nil {
		byName = policies.ByName
	}
	p, err := byName(a.Config.Policy)
	if err != nil {
		return failure.Input("%v", err)
	}
	if _, orders := p.(plan.Orderer); !orders {
		return nil
	}
	nodes := []plan.Node{{Ranks: a.ranks(), Capacity: request.Nominal(a.Config)}}
	if a.Coordinator != nil {
		if nodes, err = a.Coordinator.Nominal(ctx, nodes[0].Capacity); err != nil {
			return err
		}
	}
	return planner.Refused(a.Order.Reorder(p, nodes))
}

// agree settles what must be the same on all nodes, and returns what the ranks say of the order.
func (a *Assembly) agree(ctx context.Context) (*request.Order, error) {
	said, given := a.spec.Said, a.spec.Request.Stream.Seed
	a.agreed = coordinator.Agreement{
		Seed:    DrawSeed(),
		Version: a.spec.Dataset.Index().Fingerprint(),
	}
	if a.spec.Drawn != nil {
		a.agreed.Seed = *a.spec.Drawn
	}
	if a.spec.Request.Spans() {
		if err := a.form(ctx, given); err != nil {
			return nil, a.spec.Turns.Unformed(err)
		}
		if a.spec.Turns != nil {
			first, all, err := a.spec.Turns.Open(ctx, a.Coordinator, a.node.Budget.Check)
			if err != nil {
				return nil, err
			}
			shared := *said
			shared.Part, shared.Epochs = &first, [][]int32{all}
			said, a.agreed.Seed = &shared, first.Seed
		}
	}
	if given != nil {
		a.agreed.Seed = *given
	}
	return said, nil
}

// form finds the other nodes, and agrees with them.
func (a *Assembly) form(ctx context.Context, seed *uint64) error {
	ranks, err := a.spec.Ranks(ctx)
	if err != nil {
		return err
	}
	m := a.spec.Request
	cfg := a.Config
	c := a.spec.Request.Cluster
	o := coordinator.Options{
		Job: m.Job, WorldSize: m.WorldSize, Nodes: c.Nodes, Node: c.Node, Ranks: ranks,
		Address: c.Address, Loader: c.Loader, Secret: c.Secret,
		Seed: a.agreed.Seed, Facts: a.facts(), Remedy: request.Remedy,
		Index: a.spec.Dataset.Index(),
		Port:  cfg.Port, Interface: cfg.Interface, Network: a.node.Network,
		Listening: a.spec.Listening,
		Timeout:   cfg.StartTimeout, SourceTimeout: cfg.SourceTimeout,
		TLS: cfg.TLS, Cert: cfg.TLSCert, Key: cfg.TLSKey, CA: cfg.TLSCA,
		Local: a.spec.Local, Stops: a.parts.Stops, Wrap: a.node.Samples, Log: a.spec.Log,
		Progress: func(text string, warning bool) {
			a.spec.Progress(request.Step{What: text, Warning: warning})
		},
	}
	if seed != nil {
		o.Seed = *seed
	}
	if a.Config.OnError != "raise" { // else the error ends the streams of all ranks
		o.Faults = a.parts.Unusable
	}
	a.Coordinator, a.agreed, err = coordinator.Form(ctx, o)
	return err
}

// facts returns the agreement keys and this node's values.
func (a *Assembly) facts() (facts []coordinator.Fact) {
	seed := "drawn"
	if given := a.spec.Request.Stream.Seed; given != nil {
		seed = strconv.FormatUint(*given, 10)
	}
	for _, s := range slices.Concat(
		[]request.Setting{
			{Key: "hdmlp's version", Value: a.node.Version},
			{Key: "protocol", Value: a.node.Protocol},
		},
		request.Listing(a.spec.Dataset.Index()),
		[]request.Setting{{Key: "seed", Value: seed}},
		request.Shared(a.spec.Request, a.Config, a.spec.Said),
	) {
		facts = append(facts, coordinator.Fact{Key: s.Key, Value: fmt.Sprint(s.Value)})
	}
	return facts
}

// ranks returns the ranks of this node.
func (a *Assembly) ranks() []int {
	if a.Coordinator != nil {
		return a.Coordinator.Ranks()[a.Coordinator.Me()]
	}
	ranks := make([]int, a.spec.Request.WorldSize)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// planning returns what the job's planner has on this node.
func (a *Assembly) planning() planner.Local {
	l := planner.Local{Strategy: a.node.Strategy, Known: a.live.Known}
	for _, c := range a.spec.Dataset.Classes() {
		l.Classes = append(l.Classes,
			planner.Class{Capacity: c.Capacity, Held: c.Store.Held(), KeepsAll: c.KeepsAll})
	}
	if a.Coordinator != nil {
		l.Me, l.Nodes = a.Coordinator.Me(), a.Coordinator
	}
	return l
}

// adviseCapacity adds a warning if the caches hold only a part of the dataset, because every epoch
// then reads the rest again, or if a directory can hold nothing of it, for this job and the next.
func (a *Assembly) adviseCapacity() {
	capacity, total := a.Job.Planner().Capacity(), a.Order.Bytes()
	whose := "dataset's"
	switch {
	case a.Order.Said().Subset != nil:
		whose = "subset's"
	case a.Order.Given():
		whose = "first epoch's"
	}
	if !a.Job.Planner().Keeps() {
		return
	}
	opened := a.spec.Dataset.Classes()
	if read := a.Order.Read(); read < total {
		a.Job.Warn(fmt.Sprintf("policy = %s trains only on what the configured sizes of the caches "+
			"hold, %s of the dataset's %s, and never on the rest: %s", a.Config.Policy,
			human.Format(read), human.Format(total), moreCapacity(a.Config, opened)))
		total = read
	}
	if capacity < total {
		part, all := human.Format(capacity), human.Format(total)
		if part == all { // rounded
			part, all = fmt.Sprint(capacity), fmt.Sprintf("%d bytes", total)
		}
		a.Job.Warn(fmt.Sprintf("the caches can hold %s of the %s %s; the rest is read from the source "+
			"in every epoch: %s", part, whose, all, moreCapacity(a.Config, opened)))
		return
	}
	for i := range opened {
		if c := &opened[i]; c.Path != "" && c.Capacity <= 0 && total > 0 {
			a.Job.Warn(fmt.Sprintf("nothing can be cached in %s: its disk has less free space than is "+
				"to be left free; free space on it, or reduce disk_reserve", c.Path))
		}
	}
}

// moreCapacity returns what to do so that caches hold more. opened are the configured classes, with
// the capacities that they have on this node.
func moreCapacity(cfg *config.Config, opened []catalog.Class) string {
	for i, c := range cfg.StorageClasses {
		switch {
		case cfg.Entries != "" && c.Path() != "" && c.Capacity() <= 0 && i < len(opened):
			return fmt.Sprintf("free space on the disk of %s, which has %s for the dataset after "+
				"disk_reserve, or raise the capacity of another [[storage_class]] in %s, or add one",
				c.Path(), human.Format(opened[i].Capacity), cfg.Entries)
		case cfg.Entries != "":
		case c.Path() == "" || i >= len(opened):
		case c.Capacity() > 0:
			return fmt.Sprintf("raise memory, or the capacity of %s (cache_size)", c.Path())
		default:
			return fmt.Sprintf("raise memory, or free space on the disk of %s, which has %s for "+
				"the dataset after disk_reserve", c.Path(), human.Format(opened[i].Capacity))
		}
	}
	if cfg.Entries != "" {
		return "raise the capacity of a [[storage_class]] in " + cfg.Entries + ", or add one"
	}
	return "raise memory, or set cache_dir to a directory on a fast local disk"
}

// Close takes the job apart. No rank may have it open.
func (a *Assembly) Close() {
	a.spec.End(context.Canceled)
	if a.spec.Turns != nil {
		a.spec.Turns.Close()
	}
	if a.claim != nil {
		a.claim.Drop()
	}
	if a.parts.Use != nil {
		a.parts.Use.Stop() // the planner may be making room
	}
	if a.Job != nil {
		if a.Coordinator != nil {
			a.Coordinator.Leave(a.Job.Summary().Nodes[0])
		}
		a.Job.Close()
		if err := a.live.Store(a.staging(), a.transformThreads()); err != nil {
			a.spec.Log.Info("what was measured of this machine is not stored: the next job on the "+
				"dataset measures it again", "error", err)
		}
	}
	if a.parts.Use != nil {
		a.parts.Use.Close()
	}
	if a.Coordinator != nil {
		a.Coordinator.Close()
	}
	if a.cached {
		a.spec.Dataset.LeaveCache()
	}
	if a.preprocessor != nil {
		a.preprocessor.Close()
	}
	a.spec.Dataset.Close()
}

// DrawSeed returns a random seed that torch.manual_seed accepts: below 2^62, so that adding an
// epoch does not overflow 63 bits.
func DrawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) >> 2
}
