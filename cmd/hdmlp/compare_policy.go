package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/distance"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/study/compare"
	"github.com/hdmlp/hdmlp/internal/study/replay"
)

// spec returns what all nodes are given.
func (c *comparing) spec(node int) *comparedNode {
	return &comparedNode{
		Kind: c.kind, IndexDir: c.indexDir, Extensions: c.extensions, Options: c.options,
		Paths: c.paths, Version: c.kept.Settings.Version,
		Page: filepath.Join(c.scratch, "page"), SourceRate: c.sourceMBps,
		Nodes: c.nodes, Epochs: c.epochs, Batch: c.batch * c.nodes, Seed: c.seed,
		StepSeconds: c.stepTime.Seconds(), Transforms: c.program, ConfigFile: c.config,
		Result: c.file("result", node), Order: c.file("order", node),
	}
}

// file returns the path of a node's file.
func (c *comparing) file(name string, node int) string {
	return filepath.Join(c.scratch, fmt.Sprintf("%s-%d", name, node))
}

// arguments returns the configuration of a node whose caches hold that share of what they would of
// the whole dataset.
func (c *comparing) arguments(node int, share float64) map[string]any {
	keys := map[string]any{"memory": "0B"}
	for j, mb := range c.work.Capacity {
		bytes := fmt.Sprintf("%dB", int64(mb*1e6*share))
		if c.work.Disks[j] {
			keys["cache_dir"], keys["cache_size"] = c.directory(node), bytes
		} else {
			keys["memory"] = bytes
		}
	}
	return keys
}

// directory returns the directory of a node's cache.
func (c *comparing) directory(node int) string {
	return filepath.Join(c.own, fmt.Sprintf("node-%d", node))
}

// nodesRun runs the program on all nodes until all have ended. If one fails, the others are ended,
// and the last of what it printed is the error.
func (c *comparing) nodesRun(ctx context.Context, spec func(node int) *comparedNode,
	started func(),
) error {
	r := &nodesRunning{nodes: c.nodes}
	stop := context.AfterFunc(ctx, func() { r.fail(ctx.Err()) })
	defer stop()
	for node := range c.nodes {
		data, err := json.Marshal(spec(node))
		path := c.file("spec", node)
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err == nil {
			err = r.start(node,
				c.cluster.Node(node).Command(0, "/proc/self/exe", "dev", "node", path))
		}
		if err != nil {
			r.fail(fmt.Errorf("node %d: %w", node, err))
			break
		}
	}
	if started != nil {
		started()
	}
	r.all.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// nodesRunning are the processes of a run.
type nodesRunning struct {
	nodes int
	all   sync.WaitGroup

	mu       sync.Mutex // guards the following
	commands []*devcluster.Cmd
	err      error // the first; no more processes are started
}

// start starts a node's process, unless another one has failed.
func (r *nodesRunning) start(node int, cmd *devcluster.Cmd) error {
	output := new(outputTail)
	cmd.Stdout, cmd.Stderr = output, output
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.commands = append(r.commands, cmd)
	r.all.Go(func() {
		if err := cmd.Wait(); err != nil {
			r.fail(output.err(node, r.nodes, err))
		}
	})
	return nil
}

// fail keeps the first error, and ends all processes.
func (r *nodesRunning) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	for _, cmd := range r.commands {
		_ = cmd.Process.Kill() // it may have ended
	}
}

// outputTail keeps the end of what a process prints.
type outputTail struct {
	mu   sync.Mutex // guards text
	text []byte
}

const mostOutput = 4096

func (w *outputTail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if over := len(w.text) - mostOutput; over > 0 {
		w.text = w.text[over:]
	}
	return len(p), nil
}

// err returns the error of a process that has ended with one: its last message.
func (w *outputTail) err(node, nodes int, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.TrimSpace(string(w.text))
	if all := strings.Split(text, "hdmlp: "); len(all) > 1 {
		text = all[len(all)-1]
	}
	if text == "" {
		text = err.Error()
	}
	if nodes == 1 {
		return errors.New(text)
	}
	return fmt.Errorf("node %d: %s", node, text)
}

// policy runs a policy on all nodes.
func (c *comparing) policy(ctx context.Context, name string, bar *compareBar) (
	*compare.Run, error,
) {
	clear(c.page.memory)
	part := ""
	if c.ids != nil {
		var list []byte
		for _, id := range c.ids {
			list = binary.LittleEndian.AppendUint32(list, uint32(id))
		}
		part = filepath.Join(c.scratch, "part")
		if err := os.WriteFile(part, list, 0o600); err != nil {
			return nil, err
		}
	}
	if err := c.emptyCaches(); err != nil {
		return nil, err
	}
	for node := range c.nodes {
		if err := os.WriteFile(c.file("environment", node), c.environment(node), 0o600); err != nil {
			return nil, err
		}
	}
	err := c.nodesRun(ctx, func(node int) *comparedNode {
		s := c.spec(node)
		s.Policy, s.Part = name, part
		s.Arguments = c.arguments(node, c.share)
		s.Arguments["policy"] = name
		s.Environment = c.file("environment", node)
		return s
	}, func() { bar.watch(c.page.steps(0).Load) })
	if err != nil {
		return nil, err
	}
	results := make([]comparedResult, c.nodes)
	for node := range results {
		data, err := files.Read(c.file("result", node), 1<<30)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &results[node]); err != nil {
			return nil, fmt.Errorf("result of node %d: %w", node, err)
		}
	}
	run := c.merge(name, results)
	if err := c.order(run, results[0].Steps); err != nil {
		return nil, err
	}
	c.replay(ctx, run, results[0].Cluster, disksOf(results[0].Report))
	return run, c.emptyCaches()
}

// environment returns what was measured, with the cache directory of the node.
func (c *comparing) environment(node int) []byte {
	if c.own == "" {
		return []byte(c.kept.Environment)
	}
	quote := func(path string) []byte { return []byte(fmt.Sprintf("%q", path)) }
	return bytes.ReplaceAll([]byte(c.kept.Environment), quote(c.cache), quote(c.directory(node)))
}

// emptyCaches makes the caches' directories anew.
func (c *comparing) emptyCaches() error {
	if c.own == "" {
		return nil
	}
	for node := range c.nodes {
		if err := os.RemoveAll(c.directory(node)); err != nil {
			return err
		}
		if err := os.Mkdir(c.directory(node), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// merge returns what the nodes measured together.
func (c *comparing) merge(name string, nodes []comparedResult) *compare.Run {
	run := &compare.Run{
		Policy: name, Tiers: map[string]float64{}, Audited: nodes[0].Audited,
		Epochs: nodes[0].Epochs, At: time.Now().Format(time.RFC3339),
	}
	var reads, cached int64
	applies := false
	for _, n := range nodes {
		run.Runtime = max(run.Runtime, n.Runtime)
		run.Opening = max(run.Opening, n.Opening)
		run.Before = max(run.Before, n.Report.BeforeTraining)
		reads, cached = reads+n.Reads, cached+n.Cached
		applies = applies || n.Applies
		run.SourceMB += float64(n.Report.Source.Bytes) / 1e6
		disks := disksOf(n.Report)
		for _, rank := range n.Report.Ranks {
			for _, e := range rank.Epochs {
				for tier, a := range e.Reads {
					run.Tiers[tierOf(tier, disks)] += float64(a.Bytes) / 1e6
				}
			}
		}
	}
	// Caches are filled before training while the job opens.
	computed := float64(nodes[0].Steps*c.epochs) * c.stepTime.Seconds()
	run.Stall = max(run.Runtime-computed, 0)
	run.Runtime += run.Before
	run.Stall += run.Before
	switch {
	case !applies:
		run.Cached = -1
	case reads > 0:
		run.Cached = float64(cached) / float64(reads)
	}
	return run
}

// disksOf returns of each class of a node, by name, whether it is on a disk.
func disksOf(r *report.Report) map[string]bool {
	disks := map[string]bool{}
	for _, class := range r.Classes {
		disks[class.Name] = class.Path != ""
	}
	return disks
}

// tierOf returns the tier of a comparison for that of a report.
func tierOf(name string, disks map[string]bool) string {
	switch name {
	case "source":
		return compare.Source
	case "peer":
		return compare.Peers
	case report.Writeback:
		return compare.Memory
	}
	if disks[name] {
		return compare.Disk
	}
	return compare.Memory
}

// order measures the order that was delivered.
func (c *comparing) order(run *compare.Run, steps int) error {
	spec := access.Spec{
		Samples: c.kept.Samples, Seed: c.seed, Epochs: c.epochs, WorldSize: c.nodes,
		GlobalBatch: c.batch * c.nodes, Tail: access.Pad,
	}
	asked, err := access.New(spec)
	if err != nil {
		return err
	}
	if asked.Steps() != steps {
		return fmt.Errorf("an epoch had %d batches instead of %d", steps, asked.Steps())
	}
	batches := make([][][]int32, c.nodes)
	full, last := make([]int, c.nodes), make([]int, c.nodes)
	for node := range batches {
		data, err := os.ReadFile(c.file("order", node))
		if err == nil {
			batches[node], err = readOrder(data, c.kept.Samples)
		}
		if err == nil && len(batches[node]) != steps*c.epochs {
			err = fmt.Errorf("%d batches instead of %d", len(batches[node]), steps*c.epochs)
		}
		if err != nil {
			return fmt.Errorf("order of node %d: %w", node, err)
		}
		full[node], last[node] = len(batches[node][0]), len(batches[node][steps-1])
	}
	run.SameBatches = sameBatches(asked, batches)
	spec.Tail = access.Keep // without what pads an epoch, so that its samples are the dataset's
	stream, err := access.New(spec)
	if err != nil {
		return err
	}
	order := distance.Others(stream, full, last, c.epochs)
	for node, all := range batches {
		for k, b := range all[:steps*order.Epochs()] {
			order.Add(k/steps, k%steps, node, b)
		}
	}
	run.Seen, run.Distance = order.Result()
	return nil
}

// sameBatches reports whether the batches of all nodes together have the samples of the stream's
// global batches.
func sameBatches(stream *access.Stream, batches [][][]int32) bool {
	steps := stream.Steps()
	for e := range stream.Spec().Epochs {
		epoch := stream.Epoch(e)
		for step := range steps {
			var asked, got []int32
			for rank := range batches {
				asked = epoch.Batch(asked, rank, step)
				got = append(got, batches[rank][e*steps+step]...)
			}
			slices.Sort(asked)
			slices.Sort(got)
			if !slices.Equal(asked, got) {
				return false
			}
		}
	}
	return true
}

// readOrder reads what a node wrote of its batches: of each the number of samples, and the samples,
// all u32.
func readOrder(data []byte, samples int) (batches [][]int32, err error) {
	cut := errors.New("it ends in the middle of a batch")
	for len(data) > 0 {
		if len(data) < 4 {
			return nil, cut
		}
		ids := make([]int32, 0, min(int(binary.LittleEndian.Uint32(data)), samples))
		end := 4 + 4*int(binary.LittleEndian.Uint32(data))
		if len(data) < end {
			return nil, cut
		}
		for at := 4; at < end; at += 4 {
			id := int32(binary.LittleEndian.Uint32(data[at:]))
			if id < 0 || int(id) >= samples {
				return nil, fmt.Errorf("there is no sample %d", id)
			}
			ids = append(ids, id)
		}
		batches, data = append(batches, ids), data[end:]
	}
	return batches, nil
}

// sizeOf returns the bytes of a sample of those that are read.
func (c *comparing) sizeOf(id int) int64 {
	if c.ids != nil {
		id = int(c.ids[id])
	}
	return c.index.Size(id)
}

// replay predicts the run from what it measured of itself, where package replay can.
func (c *comparing) replay(ctx context.Context, run *compare.Run, cluster []byte,
	disks map[string]bool,
) {
	p, err := policies.ByName(run.Policy)
	if _, own := p.(plan.Orderer); own || err != nil {
		run.Unplayed = "the policy reads in an order of its own, which replay does not have"
		return
	}
	ran, err := replay.Read(cluster)
	if err != nil {
		run.Unplayed = err.Error()
		return
	}
	result, err := ran.Simulate(ctx, c.sizeOf, replay.AsItRan)
	if err != nil {
		run.Unplayed = err.Error()
		return
	}
	if n := len(result.Epochs); n < c.epochs {
		run.Unplayed = fmt.Sprintf("the run's report has %d of its %d epochs", n, c.epochs)
		return
	}
	run.Replayed = &compare.Replayed{
		Runtime: run.Before, SourceMB: result.Source, Tiers: map[string]float64{},
	}
	for _, s := range result.Epochs {
		run.Replayed.Runtime += s
	}
	for tier, mb := range result.Delivered {
		run.Replayed.Tiers[tierOf(tier, disks)] += mb
	}
}
