package job

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/catalog"
	"github.com/hdmlp/hdmlp/internal/cluster"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/lockstep"
	"github.com/hdmlp/hdmlp/internal/planner"
	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/stage"
	"github.com/hdmlp/hdmlp/internal/transform"
	"github.com/hdmlp/hdmlp/internal/transform/runner"
)

// Job is one training job on this node: its ranks are the processes that opened
// it under the same name with the same parameters.
type Job struct {
	node *Node
	log  *slog.Logger

	// Immutable once ready is closed.
	ready        chan struct{}
	err          error
	message      request.Open // of the rank that made the job
	seed         uint64       // the given one, or else the one that was drawn or agreed on
	cfg          *config.Config
	dataset      *catalog.Dataset
	version      [16]byte        // of the dataset; with several nodes, as node 0 has it
	vantage      dataset.Vantage // of the process that made the job
	order        *request.Order
	parts        *parts // by which the ranks of several nodes give epochs together; nil: they do not
	stream       *access.Stream
	need         *need
	held         int // how many epochs that are given may be known at a time
	cache        *cache.Cache
	use          *cache.Use // of the cache
	planner      *planner.Planner
	program      *transform.Program // nil: samples are delivered as they are
	preprocessor *runner.Runner     // nil: samples are delivered as they are
	output       *Output
	others       *others // nil: the job has one node
	faults       *cache.Faults
	book         *audit.Book
	stops        *lockstep.Stops
	warnings     []string
	fillRead     *stage.Ledger // source reads of the filler, and for other nodes

	// life ends with the job; its cause is why, if it failed.
	life context.Context
	end  context.CancelCauseFunc

	began    time.Time    // when Open was called
	scanned  atomic.Int64 // files that the scan of the dataset has found so far
	epochNow atomic.Int64 // the epoch that was last begun or yielded from

	mu      sync.Mutex
	refs    int // ranks that are opening it or have it open
	ranks   map[int]*Rank
	ledgers map[int]*stage.Ledger // of all ranks that ever joined
	came    []int                 // ranks of this node that have asked to open it
	changed chan struct{}         // closed and replaced when came changes

	epochs struct { // has a lock of its own: to draw an epoch takes long
		sync.Mutex
		kept []*access.Epoch // those that ranks are in, newest last
	}
}

// keptEpochs is how many epochs' permutations a job keeps: ranks and the staging
// buffers' reading ahead are at most that far apart, as a rule.
const keptEpochs = 3

// Open makes the job of the message, or joins it, as one rank. The rank's Close
// leaves it; the job ends with its last rank.
// view is the dataset as the rank's process sees it; nil: as this process does. It belongs to the caller, and its Renew
// must work until the Rank is closed.
func (n *Node) Open(ctx context.Context, m request.Open, view *dataset.View, progress request.Progress) (*Rank, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	cfg, err := n.Resolve(m.Settings)
	joins := false
	if err != nil && n.has(&m) {
		// What the job, or another one on the dataset, has taken is there for it.
		joins = true
		cfg, err = n.resolve(m.Settings, config.Machine{})
	}
	if err != nil {
		return nil, err
	}
	if joins && !n.has(&m) {
		return n.Open(ctx, m, view, progress) // it ended just now
	}
	o, err := request.ReadOrder(&m, n.checkRoom)
	if err != nil {
		return nil, err
	}
	j, made, err := n.enter(m, cfg, o)
	if err != nil {
		return nil, err
	}
	if made {
		j.order = o
		if j.err = j.assemble(ctx, view, progress); j.err != nil {
			if ctx.Err() != nil {
				j.err = ctx.Err()
			}
			j.forget() // whoever comes now tries anew
		}
		close(j.ready)
	}
	select {
	case <-j.ready:
	case <-ctx.Done():
		j.quit(m.Rank)
		return nil, ctx.Err()
	}
	err = j.err
	if !made && errors.Is(err, context.Canceled) && ctx.Err() == nil {
		j.release()
		return n.Open(ctx, m, view, progress) // whoever made it went away
	}
	if err == nil && !made {
		if err = request.Compare(j.said(), request.Said{Open: &m, Config: cfg, Order: o}, j.seed); err == nil {
			err = j.sees(ctx, &m, view)
		} else {
			j.disagree(m.Rank, err)
		}
	}
	if err == nil && !made && j.parts != nil {
		err = j.parts.rejoin(o.Part)
	}
	var r *Rank
	if err == nil {
		r, err = j.join(m.Rank, m.Verify)
	}
	if err != nil {
		j.quit(m.Rank)
		return nil, err
	}
	if view != nil {
		r.forget = j.dataset.See(view)
	}
	return r, nil
}

// sees refuses a rank whose process sees another dataset at the path than the one that made the job: it may run in another
// container. Which directory it is, and from where it is seen, tells without looking into it.
func (j *Job) sees(ctx context.Context, m *request.Open, view *dataset.View) error {
	if view == nil {
		return nil
	}
	vantage, err := dataset.VantageOf(view.Slash)
	if err != nil {
		return err
	}
	var root unix.Stat_t
	if err := unix.Fstat(int(view.Root.Fd()), &root); err != nil {
		return fmt.Errorf("look at the root of %s: %w", printable.Name(m.Dataset.Path), err)
	}
	if device, inode := j.dataset.Place(); vantage.Same(j.vantage) && root.Dev == device && root.Ino == inode {
		return nil
	}
	d, err := j.node.catalog.Open(ctx, m.Dataset, view, j.cfg, func(int64, string) {})
	if err != nil {
		return err
	}
	defer d.Close()
	mine, theirs := d.Index().Fingerprint(), j.dataset.Index().Fingerprint()
	if mine == theirs {
		return nil
	}
	return failure.Differs("dataset", hex.EncodeToString(mine[:]), hex.EncodeToString(theirs[:]), nil,
		"rank %d sees another dataset at %s than rank %d of job %s: version %x here and %x there; mount the same one for all ranks",
		m.Rank, m.Dataset.Path, j.message.Rank, m.Job, mine[:8], theirs[:8])
}

// enter returns the job of the message, as one more of those that are opening it, each of whom releases it. Who made it
// assembles it.
func (n *Node) enter(m request.Open, cfg *config.Config, o *request.Order) (j *Job, made bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, false, &failure.Error{Kind: failure.Busy, Message: "the daemon ends: start the process again"}
	}
	j = n.jobs[m.Job]
	if made = j == nil; made {
		j = &Job{
			node: n, log: n.log.With("job", m.Job), message: m, cfg: cfg, began: time.Now(),
			ready: make(chan struct{}), changed: make(chan struct{}), warnings: []string{},
			ranks: make(map[int]*Rank), ledgers: make(map[int]*stage.Ledger),
		}
		j.message.Stream.List = nil // it is the caller's
		j.stops = j.newStops()
		j.life, j.end = context.WithCancelCause(context.Background())
		if o.Part != nil {
			j.parts = newParts(j)
		}
		n.jobs[m.Job] = j
	} else if err := m.Alongside(&j.message); err != nil {
		return nil, false, err
	}
	if j.parts != nil && o.Part != nil {
		j.parts.came(o.Part)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.refs++
	if !slices.Contains(j.came, m.Rank) {
		j.came = append(j.came, m.Rank)
		close(j.changed)
		j.changed = make(chan struct{})
	}
	return j, made, nil
}

// assemble builds the job's parts.
func (j *Job) assemble(ctx context.Context, view *dataset.View, progress request.Progress) error {
	m, n := &j.message, j.node
	d, err := n.catalog.Open(ctx, m.Dataset, view, j.cfg, func(files int64, warning string) {
		if warning != "" {
			progress(request.Step{What: warning, Warning: true})
			return
		}
		j.scanned.Store(files)
		progress(request.Step{What: "scanning " + printable.Name(m.Dataset.Path), Done: files})
	})
	if err != nil {
		return err
	}
	j.dataset, j.version = d, d.Index().Fingerprint()
	if view != nil {
		if j.vantage, err = dataset.VantageOf(view.Slash); err != nil {
			return err
		}
	}
	if j.seed = drawSeed(); m.Spans() {
		if j.seed, err = j.form(ctx, j.seed, progress); err != nil {
			return j.parts.unformed(err)
		}
		if j.parts != nil {
			if err := j.shareOrders(ctx); err != nil {
				return err
			}
		}
	}
	if m.Stream.Seed != nil {
		j.seed = *m.Stream.Seed
	}
	if err := j.makeStream(); err != nil {
		return err
	}
	if err := checkFiles(j.cfg.SourceThreads); err != nil {
		return err
	}
	if err := j.compileTransforms(); err != nil {
		return err
	}
	j.book = audit.NewBook(j.ownRanks())
	j.faults = cache.NewFaults(cache.OnError(j.cfg.OnError))
	if err := j.assembleCache(ctx); err != nil {
		return err
	}
	if j.parts != nil {
		j.parts.opened(j.order.First)
	}
	return nil
}

// assembleCache joins the dataset's cache, or makes it, and plans what the job has it keep.
func (j *Job) assembleCache(ctx context.Context) error {
	madeBy, err := j.takeMemory()
	if err != nil {
		return err
	}
	j.startTransforms()
	j.fillRead = stage.NewLedger(j.cache, nil)
	var peers cache.Peers
	if j.others != nil {
		peers = j.others.peers
	}
	j.use = j.cache.Use(peers)
	if err := j.plan(ctx); err != nil {
		return err
	}
	if j.others != nil { // now, so that who has a plan sooner and asks for a sample waits until it is known who keeps it
		j.others.serve(j.cache)
	}
	if madeBy == j.cfg {
		j.adviseRoom()
	} else if text := request.Differences(madeBy, j.cfg); text != "" {
		j.warnings = append(j.warnings, "another job has the dataset open, and what it said of the caches holds: "+text)
	}
	return nil
}

// takeMemory joins the dataset's cache, if the node has the memory for that and for the rest of the job.
func (j *Job) takeMemory() (madeBy *config.Config, err error) {
	claims := j.node.claims
	if err := j.admit(); err != nil {
		return nil, err
	}
	j.cache, madeBy, err = j.dataset.JoinCache(j.cfg)
	claims.opened(j)
	if err != nil || claims.Yield == nil {
		return madeBy, err
	}
	return madeBy, claims.Yield()
}

// CheckTransforms tells what is wrong with transforms that a job would be refused for; empty: there are none.
func CheckTransforms(described json.RawMessage) error {
	_, err := compile(described)
	return err
}

func compile(described json.RawMessage) (*transform.Program, error) {
	program, err := transform.Compile(described)
	if err != nil {
		return nil, failure.Input("%v", err)
	}
	return program, nil
}

// compileTransforms prepares what the job wants done to its samples.
func (j *Job) compileTransforms() error {
	if !j.message.Transformed() {
		return nil
	}
	program, err := compile(j.message.Transforms)
	if err != nil {
		return err
	}
	out := program.Output()
	j.output = &Output{Shape: out.Shape, Type: out.Type.String()}
	j.program = program
	return nil
}

// startTransforms makes the job's preprocessor.
func (j *Job) startTransforms() {
	if j.program == nil {
		return
	}
	threads, most := j.cfg.TransformThreads, j.node.options.Machine.Processors
	if threads > most {
		j.warnings = append(j.warnings, fmt.Sprintf("transform_threads = %d: the daemon may use %d processors, so that it is %d; more would only be in each other's way", threads, most, most))
		threads = most
	}
	j.preprocessor = runner.New(j.program, runner.Options{Seed: j.seed, Threads: threads, Most: most, Memory: j.cfg.DecodeMemory})
}

// steps are the names of the job's transforms.
func (j *Job) steps() []string {
	if j.preprocessor == nil {
		return nil
	}
	return j.preprocessor.Steps()
}

// forget takes the job off the node's list, so that nobody joins it any more.
func (j *Job) forget() {
	j.node.mu.Lock()
	defer j.node.mu.Unlock()
	if j.node.jobs[j.message.Job] == j {
		delete(j.node.jobs, j.message.Job)
	}
}

// quit is release for a rank that did not come to join: the others are not to wait for it.
func (j *Job) quit(rank int) {
	j.mu.Lock()
	joined := j.ranks[rank] != nil // another process is this rank
	j.mu.Unlock()
	if j.parts != nil && !joined {
		j.parts.leave(rank)
	}
	j.release()
}

// release leaves the job; the last one ends it.
func (j *Job) release() {
	j.node.mu.Lock()
	j.mu.Lock()
	j.refs--
	last := j.refs == 0
	j.mu.Unlock()
	if last && j.node.jobs[j.message.Job] == j {
		delete(j.node.jobs, j.message.Job)
	}
	j.node.mu.Unlock()
	if !last {
		return
	}
	j.end(context.Canceled)
	if j.parts != nil {
		j.parts.close()
	}
	j.node.claims.drop(j)
	if j.planner != nil {
		j.planner.Close()
	}
	if j.use != nil {
		j.use.Close()
	}
	if j.others != nil {
		j.others.close()
	}
	if j.cache != nil {
		j.dataset.LeaveCache()
	}
	if j.preprocessor != nil {
		j.preprocessor.Close()
	}
	if j.dataset != nil {
		j.dataset.Close()
	}
}

// fail ends the job with an error, on all its ranks here.
func (j *Job) fail(err error) {
	j.log.Error("the job fails", "error", err)
	j.end(err)
}

// failure is why the job failed; nil: it has not.
func (j *Job) failure() error {
	if err := context.Cause(j.life); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// epoch returns a view of an epoch; the last few are kept, because ranks share them. nil: the process is to give it, and has not, or
// it is over.
func (j *Job) epoch(e int) *access.Epoch {
	if j.stream.Spec().Shuffle == access.Given {
		return j.stream.Epoch(e)
	}
	j.epochs.Lock()
	defer j.epochs.Unlock()
	for _, v := range j.epochs.kept {
		if v.Number() == e {
			return v
		}
	}
	v := j.stream.Epoch(e)
	j.epochs.kept = append(j.epochs.kept, v)
	if len(j.epochs.kept) > keptEpochs {
		j.epochs.kept = slices.Delete(j.epochs.kept, 0, 1)
	}
	return v
}

// drawSeed draws a seed that torch's manual_seed takes: 63 bits, and no
// overflow when an epoch is added to it.
func drawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) >> 2
}

// said is what the rank that made the job has said.
func (j *Job) said() request.Said {
	return request.Said{Open: &j.message, Config: j.cfg, Order: j.order}
}

// disagree ends the job on all its ranks here if a rank that was never in it means another order: without it the others could not
// train either, and would wait for it. One that was in the job, and comes again with another order, is refused alone: the others
// may come again as well.
func (j *Job) disagree(rank int, refused error) {
	e, ok := request.OfOrder(refused)
	if !ok {
		return
	}
	j.mu.Lock()
	was := j.ledgers[rank] != nil
	j.mu.Unlock()
	if !was {
		j.fail(&failure.Error{Kind: e.Kind, Message: "the job's ranks disagree, and all of them end: " + e.Message, Details: e.Details})
	}
}

// facts are what the nodes of a job must agree on.
func (j *Job) facts() []cluster.Fact {
	seed := "drawn"
	if given := j.message.Stream.Seed; given != nil {
		seed = strconv.FormatUint(*given, 10)
	}
	o := &j.node.options
	said := slices.Concat(
		[]request.Setting{{Key: "hdmlp's version", Value: o.Version}, {Key: "protocol", Value: o.Protocol}},
		request.Listing(j.dataset.Index()),
		[]request.Setting{{Key: "seed", Value: seed}},
		request.Shared(&j.message, j.cfg, j.order),
	)
	facts := make([]cluster.Fact, len(said))
	for i, s := range said {
		facts[i] = cluster.Fact{Key: s.Key, Value: fmt.Sprint(s.Value)}
	}
	return facts
}

// plan has the job planned.
func (j *Job) plan(ctx context.Context) (err error) {
	o := planner.Options{
		Strategy: j.node.strategy, Name: j.cfg.Policy, Stream: j.stream, First: j.order.First, Size: j.dataset.Index().Size,
		Needed: j.needed, Use: j.use, Read: j.readAhead, Turns: j.parts != nil, Staged: j.staged, Ahead: j.cfg.PrefetchBatches,
		Admit: func(bytes int64) error {
			return j.node.checkRoom(bytes, "plan of who caches what", "make memory or epochs smaller, or take policy minio")
		},
		Fail: j.fail, Log: j.log,
	}
	for _, c := range j.dataset.Classes() {
		o.Classes = append(o.Classes, planner.Class{Room: c.Room, Held: c.Store.Held(), KeepsAll: c.KeepsAll})
	}
	if j.others != nil {
		o.Me, o.Nodes = j.others.me, j.others
	}
	j.planner, err = planner.New(ctx, o)
	return err
}

// staged is how many batches the rank has staged that is furthest.
func (j *Job) staged() (most int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.ranks {
		most = max(most, r.stager.Staged())
	}
	return most
}

// readAhead charges what was read from the source for no batch of this node: to fill classes, or for other nodes.
func (j *Job) readAhead(bytes int64) { j.fillRead.Source(int(j.epochNow.Load()), bytes) }

// adviseRoom tells when the caches hold only a part of the dataset, because every
// epoch then reads the rest again.
func (j *Job) adviseRoom() {
	room, total := j.planner.Room(), j.need.bytes
	whose := "dataset's"
	switch {
	case j.order.Subset != nil:
		whose = "subset's"
	case j.stream.Spec().Shuffle == access.Given:
		whose = "first epoch's"
	}
	if room < total && j.planner.Keeps() {
		j.warnings = append(j.warnings, fmt.Sprintf("the caches have room for %s of the %s %s; the rest is read from the source in every epoch: raise memory, or give cache_dir on a fast local disk",
			size.Format(room), whose, size.Format(total)))
	}
}
