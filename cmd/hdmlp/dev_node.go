package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

// comparedNode is what a node of a comparison is to do, in a file that `hdmlp compare` writes.
type comparedNode struct {
	Kind       string   `json:"kind"`
	IndexDir   string   `json:"index_dir"`
	Extensions []string `json:"extensions"`
	Options    []string `json:"options"`
	Paths      []string `json:"paths"`
	Version    string   `json:"version"`          // of the dataset
	Page       string   `json:"page"`             // the file that all nodes map
	SourceRate float64  `json:"source_rate_mbps"` // of all nodes together; 0: no limit
	Nodes      int      `json:"nodes"`
	Result     string   `json:"result"` // the file that is written at the end

	// Probe asks for measurements of the machine instead of a run; nil: a run.
	Probe *comparedProbe `json:"probe,omitempty"`

	Policy      string          `json:"policy"`
	Epochs      int             `json:"epochs"`
	Batch       int             `json:"batch"` // of all nodes together
	Seed        uint64          `json:"seed"`
	StepSeconds float64         `json:"step_s"`
	Part        string          `json:"part"` // file with samples, i32; "": all of them
	Transforms  json.RawMessage `json:"transforms,omitempty"`
	Arguments   map[string]any  `json:"arguments"`
	ConfigFile  string          `json:"config_file"`
	Environment string          `json:"environment"` // file; "": none
	Order       string          `json:"order"`       // file that the samples are written to
}

// comparedProbe are the measurements that nodes take together.
type comparedProbe struct {
	Seconds    float64 `json:"seconds"`
	Transforms string  `json:"transforms"`
	Cache      string  `json:"cache"`
}

// flags returns what the dataset is opened with.
func (s *comparedNode) flags() datasetFlags {
	return datasetFlags{
		kind: s.Kind, indexDir: s.IndexDir, extensions: s.Extensions, options: s.Options,
	}
}

// comparedResult is what a node measured.
type comparedResult struct {
	Runtime float64         `json:"runtime_s"`
	Opening float64         `json:"opening_s"`
	Epochs  []float64       `json:"epochs_s"`
	Reads   int64           `json:"source_reads"`
	Cached  int64           `json:"cached_reads"`
	Applies bool            `json:"page_cache"`
	Audited bool            `json:"audited"`
	Steps   int             `json:"steps"`
	Report  *report.Report  `json:"report"`
	Cluster json.RawMessage `json:"cluster,omitempty"` // of node 0
}

const mostSpec = 16 << 20

func newDevNodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "node SPEC",
		Short:  "Run a policy, or measure, as a node of `hdmlp compare`",
		Hidden: true, // `hdmlp compare` starts it
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := files.Read(args[0], mostSpec)
			if err != nil {
				return err
			}
			spec := new(comparedNode)
			if err := json.Unmarshal(data, spec); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return spec.run(cmd.Context())
		},
	}
}

// place returns which node this is, and where node 0 is, by what the cluster's environment says.
func (s *comparedNode) place() (number int, address string, err error) {
	if s.Nodes == 1 {
		return 0, "", nil
	}
	if number, err = strconv.Atoi(os.Getenv("GROUP_RANK")); err != nil {
		return 0, "", fmt.Errorf("GROUP_RANK: %w", err)
	}
	return number, net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")), nil
}

func (s *comparedNode) run(ctx context.Context) error {
	number, address, err := s.place()
	if err != nil {
		return err
	}
	page, err := openComparePage(s.Page)
	if err != nil {
		return err
	}
	defer page.Close()
	if _, err := host.RaiseFileLimit(); err != nil {
		return err
	}
	limits := &compareLimits{
		page: page, rate: s.SourceRate, version: s.Version, counts: new(pageCounts),
	}
	if s.Environment != "" {
		if limits.environment, err = files.Read(s.Environment, mostSpec); err != nil {
			return err
		}
	}
	if s.Part != "" {
		if limits.part, err = readPart(s.Part); err != nil {
			return err
		}
	}
	if s.Probe != nil {
		return s.probe(ctx, number, address, limits)
	}
	return s.train(ctx, number, address, limits)
}

// probe measures the machine, as `hdmlp probe` does, and writes the environment to Result.
func (s *comparedNode) probe(ctx context.Context, number int, address string,
	limits *compareLimits,
) error {
	o := probeOptions{
		datasetFlags: s.flags(), paths: s.Paths, transforms: s.Probe.Transforms, out: s.Result,
		time:  time.Duration(s.Probe.Seconds * float64(time.Second)),
		nodes: s.Nodes, node: number, address: address, wrap: limits.wrap,
		opened: func() {}, progress: func(string) {}, tell: func(string) {},
		warn: func(text string) { fmt.Fprintln(os.Stderr, "warning: "+text) },
	}
	var err error
	if o.config, err = jobConfig(s.Arguments, s.Probe.Cache, s.ConfigFile); err != nil {
		return err
	}
	a, err := runProbe(ctx, o)
	if err != nil || a == nil {
		return err
	}
	return a.unmeasured()
}

// node returns a node like a daemon's, whose sources have the limits.
func (l *compareLimits) node(log *slog.Logger) *node.Node {
	o := nodeOptions(log, shareProcessors())
	o.Kinds.Sources = nil
	for _, k := range sources() {
		o.Kinds.Sources = append(o.Kinds.Sources, withRetries(l.compared(k)))
	}
	return node.New(o, log)
}

// request returns the request of this node's rank.
func (s *comparedNode) request(ctx context.Context, number int, address string) (
	m request.Open, view *source.View, err error,
) {
	flags := s.flags()
	found, err := flags.find(ctx, 0, s.Paths)
	if err != nil {
		return m, nil, err
	}
	root, err := found.root()
	if err != nil {
		return m, nil, err
	}
	m = request.Open{
		Job: "compare-" + s.Policy, Rank: number, WorldSize: s.Nodes,
		Dataset: source.Spec{Kind: found.kind.Name, Path: root, Options: found.values},
		Stream: request.Stream{
			Seed: &s.Seed, Epochs: s.Epochs, GlobalBatch: s.Batch, Shuffle: "torch",
			Scheme: "strided", Tail: "pad",
		},
		Transforms: s.Transforms,
		Settings:   request.Settings{Arguments: s.Arguments, ConfigFile: s.ConfigFile},
	}
	if s.Nodes > 1 {
		m.Cluster = &request.Cluster{
			Nodes: s.Nodes, Node: number, LocalWorldSize: 1, Address: address, Secret: secret(),
		}
	}
	return m, found.view, nil
}

// readPart reads a list of samples.
func readPart(path string) (ids []int32, err error) {
	data, err := os.ReadFile(path)
	for ; err == nil && len(data) >= 4; data = data[4:] {
		ids = append(ids, int32(binary.LittleEndian.Uint32(data)))
	}
	return ids, err
}

// train runs the policy as a daemon would, for a rank that takes batches as a training process
// does, and writes what was measured.
func (s *comparedNode) train(ctx context.Context, number int, address string,
	limits *compareLimits,
) (err error) {
	begun := time.Now()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	here := limits.node(log)
	defer func() { err = errors.Join(err, here.Close()) }()
	m, view, err := s.request(ctx, number, address)
	if err != nil {
		return err
	}
	rank, err := here.Open(ctx, m, view, func(request.Step) {})
	if err != nil {
		return err
	}
	defer rank.Close()
	out := &comparedResult{Opening: time.Since(begun).Seconds(), Steps: rank.Opened().Steps}
	t := &training{spec: s, rank: rank, page: limits.page, node: number, out: out}
	if err := t.run(ctx); err != nil {
		return err
	}
	out.Reads, out.Cached = limits.counts.reads.Load(), limits.counts.cached.Load()
	out.Applies = limits.counts.applies.Load()
	if number == 0 {
		if err := t.collect(ctx); err != nil {
			return err
		}
	}
	// The other nodes answer node 0 until then.
	if err := limits.page.barrier(ctx, s.Nodes); err != nil {
		return err
	}
	out.Report = rank.Report()
	data, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return files.Write(s.Result, 0o600, data)
}

// training takes a rank's batches as a training process does: it holds a batch while it computes,
// returns the batch's memory, waits for the other ranks, and takes the next one.
type training struct {
	spec  *comparedNode
	rank  *node.Rank
	page  *comparePage
	node  int
	out   *comparedResult
	order *os.File
}

// takenBatch is what is kept of a batch that was emitted.
type takenBatch struct {
	epoch, step int
	audit       uint64
	slots       []uint32
	order       []byte
}

// emitted is how many batches may be on their way to the consumer.
const emitted = 1 << 16

func (t *training) run(ctx context.Context) (err error) {
	if t.order, err = os.Create(t.spec.Order); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.order.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := t.page.barrier(ctx, t.spec.Nodes); err != nil { // all jobs are open
		return err
	}
	batches, ended := make(chan takenBatch, emitted), make(chan error, 1)
	go func() {
		ended <- t.rank.Run(ctx, 0, 0, func(b *stage.Batch) error {
			select {
			case batches <- kept(b):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	err = t.consume(ctx, batches, ended)
	if err != nil {
		cancel()
		t.rank.Raised()
		return errors.Join(err, drained(ended))
	}
	return <-ended
}

// drained waits for the end of a run that was cancelled.
func drained(ended <-chan error) error {
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// kept returns what is needed of a batch, which belongs to the stager.
func kept(b *stage.Batch) takenBatch {
	k := takenBatch{epoch: b.Epoch, step: b.Step, audit: b.Audit}
	k.slots = append(k.slots, b.Slots...)
	k.order = binary.LittleEndian.AppendUint32(k.order, uint32(len(b.IDs)))
	for _, id := range b.IDs {
		k.order = binary.LittleEndian.AppendUint32(k.order, id)
	}
	return k
}

// consume takes all batches.
func (t *training) consume(ctx context.Context, batches <-chan takenBatch, ended chan error) error {
	steps, last := t.out.Steps, time.Now()
	begun := last
	step := time.Duration(t.spec.StepSeconds * float64(time.Second))
	var sum uint64
	for k := range steps * t.spec.Epochs {
		b, stall, err := t.next(ctx, batches, ended)
		if err != nil {
			return err
		}
		if b.step == 0 {
			sum = 0
		}
		sum += b.audit
		t.rank.Yielded(b.epoch, b.step, stage.Stall{All: stall}, sum)
		if _, err := t.order.Write(b.order); err != nil {
			return err
		}
		if step > 0 {
			if err := await(ctx, monotonic()+step.Nanoseconds()); err != nil {
				return err
			}
		}
		for _, slot := range b.slots {
			if _, err := t.rank.Return(slot); err != nil {
				return err
			}
		}
		if err := t.page.barrier(ctx, t.spec.Nodes); err != nil {
			return err
		}
		t.page.steps(t.node).Store(int64(k + 1))
		if b.step == steps-1 {
			now := time.Now()
			t.out.Epochs = append(t.out.Epochs, now.Sub(last).Seconds())
			last = now
			if err := t.audit(ctx, b.epoch); err != nil {
				return err
			}
		}
	}
	t.out.Runtime = time.Since(begun).Seconds()
	return nil
}

// next returns the next batch, and how long the process was blocked for it.
func (t *training) next(ctx context.Context, batches <-chan takenBatch, ended chan error) (
	b takenBatch, stall time.Duration, err error,
) {
	select {
	case b = <-batches:
		return b, 0, nil
	default:
	}
	begun := time.Now()
	t.rank.Wait()
	select {
	case b = <-batches:
		return b, time.Since(begun), nil
	case err := <-ended:
		ended <- context.Canceled // the error is returned once
		if err == nil {
			err = errors.New("the stream ended before its last batch")
		}
		return b, 0, err
	case <-ctx.Done():
		return b, 0, ctx.Err()
	}
}

// audit audits an epoch that all ranks have come to the end of, on node 0: nodes keep the audits of
// some epochs only.
func (t *training) audit(ctx context.Context, epoch int) error {
	if t.node > 0 {
		return nil
	}
	a, err := t.rank.Audit(ctx, epoch)
	if err != nil {
		return fmt.Errorf("audit of epoch %d: %w", epoch, err)
	}
	t.out.Audited = (epoch == 0 || t.out.Audited) && a.Complete
	return nil
}

// collect takes the report of all nodes.
func (t *training) collect(ctx context.Context) (err error) {
	if t.spec.Nodes == 1 {
		t.out.Cluster, err = json.Marshal(t.rank.Report())
	} else {
		t.out.Cluster, err = json.Marshal(t.rank.ClusterReport(ctx))
	}
	return err
}
