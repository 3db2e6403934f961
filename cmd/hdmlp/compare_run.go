package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/study/compare"
)

// comparing is a comparison in progress.
type comparing struct {
	*compareOptions
	scratch string // directory of files that are not kept
	index   *source.Index
	root    string
	kept    *compare.Kept
	dir     string // of the result
	able    []plan.Policy
	left    []compare.Left
	work    compare.Work // Node is that of measured only after measure
	own     string       // directory of the nodes' caches; "": none
	cluster *devcluster.Cluster
	page    *comparePage
	config  string  // an empty configuration file
	ids     []int32 // the samples that are read; nil: all
	sizes   []float64
	share   float64
	most    []int64 // bytes that all nodes can have in each class
	settled bool    // the machine is measured, and known what is read
}

// keptFile is the name of the file with what a comparison goes on with.
const keptFile = "runs.json"

// runCompare compares. A comparison that comes with an error is of what there is.
func runCompare(ctx context.Context, o *compareOptions) (_ *compare.Comparison, err error) {
	if err := o.validate(); err != nil {
		return nil, inputError{err}
	}
	c := &comparing{compareOptions: o}
	if c.scratch, err = os.MkdirTemp("", "hdmlp-compare-"); err != nil {
		return nil, badInput("the directory of temporary files (TMPDIR): %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.scratch)) }()
	src, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	unlock, err := c.load()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	failed, err := c.run(ctx)
	switch stopped := ctx.Err() != nil; {
	case stopped && !c.settled: // there is nothing to show
		return nil, interrupted{}
	case err != nil && !stopped && (!c.settled || len(c.kept.Runs) == 0):
		return nil, err
	case stopped:
		err = nil
	}
	result, wrong := c.conclude(ctx, failed)
	return result, errors.Join(err, wrong)
}

// open opens the dataset.
func (c *comparing) open(ctx context.Context) (source.Indexed, error) {
	c.config = filepath.Join(c.scratch, "none.toml")
	if err := os.WriteFile(c.config, nil, 0o600); err != nil {
		return nil, err
	}
	at, err := c.find(ctx, c.timeout, c.paths)
	if err != nil {
		return nil, err
	}
	if c.root, err = at.root(); err != nil {
		return nil, err
	}
	for _, dir := range []string{c.cache, c.out} {
		if dir == "" {
			continue
		}
		if err := outside(at.dir, dir); err != nil {
			return nil, err
		}
	}
	scan := scanProgress{out: c.progress, start: time.Now()}
	var scanned func(int64)
	if c.progress != nil {
		scanned = scan.update
	}
	src, err := at.open(ctx, openOptions{
		progress: scanned, warn: c.warn, timeout: c.timeout,
	})
	scan.close()
	if err == nil {
		c.index = src.Index()
	}
	return src, err
}

// prepare settles what each node has, and which policies run.
func (c *comparing) prepare() error {
	if global := c.batch * c.nodes; c.index.Len() < global {
		return badInput("the dataset has %s, fewer than a batch of all nodes, %d: reduce --batch or -n",
			count(c.index.Len(), "sample"), global)
	}
	if c.samples > c.index.Len() {
		return badInput("--samples is %d, but the dataset has %s", c.samples,
			count(c.index.Len(), "sample"))
	}
	if c.samples > 0 && c.samples < c.batch*c.nodes {
		return badInput("--samples is %d, fewer than a batch of all nodes, %d", c.samples,
			c.batch*c.nodes)
	}
	if fields := c.index.Fields(); c.program != nil && len(fields) > 1 {
		return badInput("--transforms: the samples have several fields (%s): name the one that is "+
			"transformed, as in --option fields=%s", human.And(fields), fields[0])
	}
	if err := c.capacities(); err != nil {
		return err
	}
	sizes, share := compare.Part(nil, c.index.Size, c.index.Len())
	able, unable, err := compare.Unable(c.work.Job(sizes, share), c.chosen)
	if err != nil {
		return badInput("%w", err)
	}
	c.able, c.left = able, unable
	if c.named && unable != nil {
		var faults []error
		for _, l := range unable {
			faults = append(faults, fmt.Errorf("--policies: %s cannot run here: %s", l.Policy, l.Why))
		}
		return inputError{errors.Join(faults...)}
	}
	if len(able) == 0 {
		return badInput("no policy can run on this data: %s: %s", unable[0].Policy, unable[0].Why)
	}
	if !c.named {
		for _, p := range policies.All() {
			if !p.About().Engine && p != policies.Bound() {
				c.left = append(c.left, compare.Left{
					Policy: p.Name(), Why: "it runs in the simulator only (hdmlp simulate)",
				})
			}
		}
	}
	return nil
}

// capacities sets what each node's caches hold of the whole dataset: what is kept, or else what is
// asked for or free now.
func (c *comparing) capacities() error {
	keys := map[string]any{}
	if c.bytes == 0 {
		keys["memory"] = "0B"
	}
	cfg, err := resolveJob(keys, c.cache, c.config)
	if err != nil {
		return err
	}
	free, err := availableMemory()
	if err != nil {
		return fmt.Errorf("measure the available memory: %w", err)
	}
	c.work = compare.Work{
		Nodes: c.nodes, Epochs: c.epochs, Batch: c.batch, Seed: c.seed,
		StepTime: c.stepTime.Seconds(), Threads: 1,
	}
	was := c.kept.Capacity
	c.kept.Capacity = nil
	for j, class := range cfg.StorageClasses {
		disk, most := class.Path() != "", free
		capacity, asked := capacityOf(class), c.bytes
		if disk {
			asked, most = c.cacheBytes, capacity
		}
		switch {
		case len(was) == len(cfg.StorageClasses):
			capacity = was[j]
		case asked > 0:
			capacity = asked
		default:
			capacity /= int64(c.nodes) // they are on one machine
		}
		c.most = append(c.most, most)
		c.kept.Capacity = append(c.kept.Capacity, capacity)
		c.work.Capacity = append(c.work.Capacity, float64(capacity)/1e6)
		c.work.Disks = append(c.work.Disks, disk)
		known := model.NodeClass{Name: class.Kind, Path: class.Path(), Stores: class.Threads}
		known.Read, known.Write = known.Guess(), known.Guess()
		c.work.Node.Classes = append(c.work.Node.Classes, known)
	}
	c.work.Node.Source = model.GuessedSource
	return nil
}

// load takes the directory of the result, until unlock is called, and reads what an earlier
// comparison with the same settings has saved there.
func (c *comparing) load() (unlock func(), err error) {
	fingerprint := c.index.Fingerprint()
	settings := c.settings(c.root, hex.EncodeToString(fingerprint[:]))
	c.kept = compare.NewKept(settings)
	if c.dir = c.out; c.dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, badInput("--out is not given, and there is no directory for it: %w", err)
		}
		c.dir = filepath.Join(cache, "hdmlp", "compare",
			filepath.Base(c.root)+"-"+settings.Key())
	}
	if unlock, err = c.lock(); err != nil {
		return nil, err
	}
	if err = c.loadKept(settings); err != nil {
		unlock()
	}
	return unlock, err
}

// lock makes the directory of the result, in which no other comparison can be in progress until
// unlock is called. unlock removes it if it is empty.
func (c *comparing) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.dir, 0o777); err != nil {
		return nil, badInput("--out: %w", err)
	}
	probe, err := os.CreateTemp(c.dir, ".writable-")
	if err != nil {
		return nil, badInput("--out: %w", err)
	}
	err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	dir, wrong := os.Open(c.dir)
	if err = errors.Join(err, wrong); err != nil {
		return nil, badInput("--out: %w", err)
	}
	// A file system without locks has none.
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		_ = dir.Close()
		return nil, badInput("another hdmlp compare writes to %s: wait for it, or give another --out",
			c.dir)
	}
	return func() {
		_ = os.Remove(c.dir) // unless it has results
		_ = dir.Close()
	}, nil
}

// loadKept reads what is saved, unless all policies are to run again.
func (c *comparing) loadKept(settings compare.Settings) error {
	if c.again {
		return nil
	}
	path := filepath.Join(c.dir, keptFile)
	data, err := files.Read(path, mostSpec)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return badInput("--out: %w", err)
	}
	kept, err := compare.ReadKept(data)
	if err != nil {
		return badInput("%s: %w; give --again to replace it, or another --out", path, err)
	}
	if differs := settings.Differs(&kept.Settings); differs != "" {
		return badInput("%s has another comparison: %s; give another --out, or --again to replace it",
			c.dir, differs)
	}
	c.kept = kept
	return nil
}

// save writes what there is.
func (c *comparing) save() error {
	data, err := c.kept.Encode()
	if err != nil {
		return err
	}
	return files.Write(filepath.Join(c.dir, keptFile), 0o644, data)
}

// names returns the names of the policies that take part.
func (c *comparing) names() []string { return policies.Names(c.able) }

// run measures the machine, if that is not saved, and runs the policies that are missing. failed
// has the reasons of those that failed.
func (c *comparing) run(ctx context.Context) (failed map[string]string, err error) {
	failed = map[string]string{}
	missing := c.kept.Missing(c.names())
	if n := len(c.able) - len(missing); n > 0 {
		c.tell(fmt.Sprintf("kept of %d policies that ran before: %d (%s); --again runs them again",
			len(c.able), n, human.Name(c.dir)))
	}
	known := c.kept.Samples > 0
	if n := max(c.samples, c.kept.Samples); n > 0 && len(missing) > 0 {
		if err := c.part(n); err != nil {
			return nil, err
		}
	}
	if len(missing) > 0 {
		stop, err := c.start()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if !known {
		if err := c.measure(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.use([]byte(c.kept.Environment)); err != nil {
		return nil, err
	}
	estimate, err := c.choose(ctx, missing)
	if err != nil {
		return nil, err
	}
	if err := c.part(c.kept.Samples); err != nil {
		return nil, err
	}
	c.settled = true
	if !known {
		c.kept.Estimate = estimate
		if err := c.save(); err != nil {
			return nil, err
		}
	}
	if len(missing) > 0 {
		c.tell(c.announcement(len(missing), estimate))
	}
	for i, name := range missing {
		bar := c.bar(name, i+1, len(missing))
		run, err := c.policy(ctx, name, bar)
		bar.close()
		switch {
		case ctx.Err() != nil:
			return failed, ctx.Err()
		case err != nil:
			failed[name] = err.Error()
			c.tell(fmt.Sprintf("%s failed: %v", name, err))
			continue
		}
		c.tell(fmt.Sprintf("%d of %d  %s: %s", i+1, len(missing), name, human.Clock(run.Runtime)))
		c.kept.Runs[name] = *run
		if err := c.save(); err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// part sets which samples are read, and reports it if the caches of that part are too large.
func (c *comparing) part(samples int) error {
	c.ids = compare.Sample(samples, c.index.Len(), c.seed)
	c.sizes, c.share = compare.Part(c.ids, c.index.Size, c.index.Len())
	for j, whole := range c.kept.Capacity {
		need := int64(float64(whole)*c.share) * int64(c.nodes)
		if need <= c.most[j] {
			continue
		}
		flag, free := "--memory", "of memory are available"
		if c.work.Disks[j] {
			flag, free = "--cache-size", "are free on the disk of --cache (less disk_reserve)"
		}
		return badInput("%s is %s, for %.3g %% of the dataset on %s %s, but %s %s",
			flag, human.Format(whole), 100*c.share, count(c.nodes, "node"), human.Format(need),
			human.Format(c.most[j]), free)
	}
	return nil
}

// announcement describes what will be done, and how long it will take, in seconds.
func (c *comparing) announcement(runs int, estimate float64) string {
	part := ""
	if c.kept.Samples < c.index.Len() {
		part = fmt.Sprintf(" of %s", thousands(c.index.Len()))
	}
	text := fmt.Sprintf("%s, %s, %s%s on %s: about %s", plural(runs, "policy", "policies"),
		count(c.epochs, "epoch"), count(c.kept.Samples, "sample"), part, count(c.nodes, "node"),
		roughly(estimate))
	if limit := c.limit(); limit > 0 && estimate > limit {
		text += fmt.Sprintf(", more than --time %v: there are no fewer samples than two batches of "+
			"all nodes; reduce --policies or --epochs", c.time)
	}
	return text
}

// start starts the nodes. stop ends them.
func (c *comparing) start() (stop func() error, err error) {
	var undo []func() error
	stop = func() error {
		var all error
		for i := len(undo) - 1; i >= 0; i-- {
			all = errors.Join(all, undo[i]())
		}
		return all
	}
	fail := func(err error) (func() error, error) { return nil, errors.Join(err, stop()) }
	if c.page, err = createComparePage(filepath.Join(c.scratch, "page")); err != nil {
		return fail(err)
	}
	undo = append(undo, c.page.Close)
	if c.cache != "" {
		if c.own, err = os.MkdirTemp(c.cache, "hdmlp-compare-"); err != nil {
			return fail(badInput("--cache: %w", err))
		}
		undo = append(undo, func() error { return os.RemoveAll(c.own) })
	}
	if c.cluster, err = devcluster.New(c.compareOptions.cluster()); err != nil {
		return fail(devError(err))
	}
	var reaper *exec.Cmd
	undo = append(undo, func() error {
		err := c.cluster.Close()
		if reaper != nil {
			_ = reaper.Wait() // Close has made it end
		}
		return err
	})
	if reaper, err = startReaper(c.cluster.StateFile(), c.scratch, c.own); err != nil {
		return fail(err)
	}
	network := "network namespaces"
	if c.cluster.OnLoopback() != nil {
		network = "loopback addresses"
	}
	if was := c.kept.Network; was != "" && was != network {
		return fail(badInput("%s has runs on nodes that are %s; here they are %s: give another "+
			"--out, or --again", c.dir, was, network))
	}
	c.kept.Network = network
	return stop, nil
}

// measure measures the machine, on all nodes together.
func (c *comparing) measure(ctx context.Context) error {
	c.tell(fmt.Sprintf("measuring this machine for %v", c.probeTime))
	bar := probeBar{out: c.progress, time: c.probeTime}
	bar.update("source, caches, network and transforms")
	defer bar.close()
	result := filepath.Join(c.scratch, "environment.toml")
	err := c.nodesRun(ctx, func(node int) *comparedNode {
		s := c.spec(node)
		s.Probe = &comparedProbe{
			Seconds: c.probeTime.Seconds(), Transforms: c.transforms, Cache: c.cache,
		}
		s.Arguments = c.arguments(node, 1)
		delete(s.Arguments, "cache_dir")
		delete(s.Arguments, "cache_size")
		s.Result = result
		return s
	}, nil)
	if err != nil {
		return fmt.Errorf("measure this machine (--probe-time %v): %w", c.probeTime, err)
	}
	data, err := files.Read(result, envfile.MaxBytes)
	c.kept.Environment = string(data)
	return err
}

// use takes what was measured.
func (c *comparing) use(environment []byte) error {
	known, err := envfile.Decode(environment)
	if err != nil {
		return fmt.Errorf("what was measured of the machine: %w", err)
	}
	classes := c.work.Node.Classes
	for i := range classes {
		for _, k := range known.Node.Classes {
			if k.Name == classes[i].Name || (k.Path == "") == (classes[i].Path == "") {
				classes[i].Read, classes[i].Write = k.Read, k.Write
			}
		}
	}
	c.work.Node = known.Node
	c.work.Node.Classes = classes
	c.work.Threads, c.work.Read = known.Threads, known.Work
	return nil
}

// choose chooses how many samples are read, unless that is known, and returns how long these
// policies are expected to take, in seconds.
func (c *comparing) choose(ctx context.Context, missing []string) (estimate float64, err error) {
	e := compare.Estimator{
		Work: c.work, Policies: missing, Sizes: c.index.Size, Of: c.index.Len(),
	}
	seconds := func(samples int) (float64, error) { return e.Seconds(ctx, samples) }
	if c.kept.Samples = max(c.kept.Samples, c.samples); c.kept.Samples > 0 {
		return seconds(c.kept.Samples)
	}
	least := min(2*c.batch*c.nodes, c.index.Len())
	choice, err := compare.Choose(c.limit(), least, c.index.Len(), seconds)
	c.kept.Samples = choice.Samples
	return choice.Seconds, err
}

// conclude simulates, and writes the result. An error that comes with it says that something is
// missing.
func (c *comparing) conclude(ctx context.Context, failed map[string]string) (
	*compare.Comparison, error,
) {
	r := &compare.Comparison{
		Title:    "Policies on " + c.root,
		Settings: c.kept.Settings, Samples: c.kept.Samples, Of: c.index.Len(),
		OfMB: float64(c.index.Bytes()) / 1e6, Shared: c.nodes > 1, Estimate: c.kept.Estimate,
		Rows: c.kept.Rows(c.names()), Left: c.left, Dir: c.dir,
		Notes: []string{},
	}
	if r.Left == nil {
		r.Left = []compare.Left{}
	}
	for _, s := range c.sizes {
		r.MB += s
	}
	for i := range r.Rows {
		r.Rows[i].Failed = failed[r.Rows[i].Policy]
	}
	r.Facts = c.facts(r)
	for _, row := range r.Rows {
		if m := row.Measured; m != nil && !m.Audited {
			r.Notes = append(r.Notes, fmt.Sprintf("The audit of %s found an epoch that was not complete.",
				row.Policy))
		}
	}
	// What there is shall be shown after an interruption, too, without a long wait for it.
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(afterInterrupt, cancel) })()
	bar := newSimulationBar(c.progress, len(r.Rows))
	err := r.Simulate(within, &c.work, c.sizes, c.share, bar.done)
	bar.close()
	stopped := ctx.Err() != nil
	if r.Interrupted = stopped; err != nil && !stopped {
		return nil, err
	}
	_, err = r.Write(c.dir)
	switch {
	case err != nil:
		r.Dir = ""
		return r, err
	case stopped:
		return r, interrupted{}
	case len(failed) > 0:
		return r, fmt.Errorf("%s failed: %s", plural(len(failed), "policy", "policies"),
			strings.Join(sortedKeys(failed), ", "))
	}
	return r, nil
}

// afterInterrupt is how long simulations may take after an interruption.
const afterInterrupt = 2 * time.Second
