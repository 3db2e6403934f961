// Package clustersim simulates a whole cluster in one process and in virtual time: the real
// coordinators, planners, jobs, caches, stagers and staging buffers of up to 16 nodes, over a
// network in memory, disks and a source with faults, and processes that play training. A script
// describes what happens, and package judge decides whether the outcome is right.
//
// Run must be called in a bubble of testing/synctest.
package clustersim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/faultdisk"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/machine"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/origin"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/plans"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/node"
)

const (
	// deadline is when a launch that has not ended hangs, in virtual time.
	deadline = time.Hour
	// drainTime is how long what a node left running may take to end once it is closed.
	drainTime = time.Minute
)

// world is what a script's job runs in.
type world struct {
	script  *script.Script
	dir     string // for cache directories and configuration files
	log     *slog.Logger
	network *networktest.Network
	origin  *origin.Origin
	other   *origin.Origin // of a second job's dataset
	list    *os.File       // the samples of the subset
	history *judge.History
	began   time.Time // of the launch
	group   []*member

	mu     sync.Mutex // guards the following
	nodes  map[int]*box
	active []*fault
	kept   map[int]map[string]int64 // by node and class, what it held when last seen, in bytes
}

// box is a machine of the world.
type box struct {
	*machine.Machine
	host *networktest.Host
	disk *faultdisk.Disk
}

// Outcome is what a script led to.
type Outcome struct {
	Events []judge.Event
	Reads  map[int][]int // how often each node read each sample from the source
	Errors []string      // violations
}

// Run runs a script, and judges what happened. dir is an empty directory for it.
func Run(s *script.Script, dir string, log *slog.Logger) (*Outcome, error) {
	order, err := recorded(s, dir)
	if err != nil {
		return nil, err
	}
	w, err := play(s, dir, log)
	if w == nil {
		return nil, err
	}
	out := &Outcome{Events: w.history.Events(), Reads: w.origin.Reads()}
	if order != nil {
		out.Errors = judge.Shuffled(s, order)
	}
	out.Errors = append(out.Errors, judge.Judge(s, judge.Orders(s, order), out.Events, out.Reads)...)
	for _, m := range w.group {
		out.Errors = append(out.Errors, m.judged()...)
	}
	return out, err
}

// recorded returns the order of shuffles that are defined by HDMLP alone, as one rank on one node
// gets it without faults.
func recorded(s *script.Script, dir string) (judge.Order, error) {
	if s.Shuffle != "feistel" {
		return nil, nil
	}
	alone := *s
	alone.Policy = "" // of what its order is made
	alone.Missing = nil
	alone.Events = nil
	alone.Disk = 0
	alone.Step = 0
	alone.DropLast = false
	alone.Scheme = "strided"
	alone.Transforms = false
	alone.Again = 0
	alone.Plans = ""
	alone.Takes = 0
	alone.Stale = nil
	alone.Invalid = false
	alone.Undecodable = nil
	alone.Breaks = nil
	alone.Lies = false
	alone.Differs = ""
	alone.Beside = ""
	alone.Members = nil
	alone.Launches = []script.Launch{{Nodes: 1, Ranks: 1}}
	w, err := play(&alone, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	orders := make([][]int, s.Epochs)
	for _, e := range w.history.Events() {
		if e.Kind == judge.Got {
			orders[e.Epoch] = append(orders[e.Epoch], e.IDs...)
		}
	}
	return func(epoch int) []int { return orders[epoch] }, nil
}

// play runs a script's launches.
func play(s *script.Script, dir string, log *slog.Logger) (*world, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	before, said := machine.Holds(), new(machine.Warnings)
	w := &world{
		script: s, dir: dir, log: slog.New(said.Handler(log.Handler())),
		network: networktest.New(), history: new(judge.History), nodes: map[int]*box{},
		kept: map[int]map[string]int64{},
	}
	var err error
	if err = w.newOrigins(); err != nil {
		return nil, err
	}
	if w.list, err = process.List(s.Chosen()); err != nil {
		return nil, err
	}
	defer w.list.Close() //nolint:errcheck // it is memory
	from, over := process.Position{}, false
	for i := 0; i < len(s.Launches) && !over; i++ {
		w.began = time.Now()
		if from, over, err = w.launch(i, s.Launches[i], from); err != nil {
			return w, err
		}
	}
	time.Sleep(drainTime) // reads that hung return
	for n := range w.nodes {
		w.end(n)
	}
	time.Sleep(drainTime) // what a failure detection has begun ends by itself
	err = errors.Join(w.origin.Exit(), w.other.Exit())
	w.warned(said.Lines())
	_ = w.list.Close()
	after := machine.Holds()
	if (after.Files > before.Files || after.Maps > before.Maps) &&
		!s.Has(script.SourceHang, script.DiskHang) {
		w.unwell(-1, "the process has %+v open; it had %+v", after, before)
	}
	return w, err
}

// ip returns the address of a node.
func ip(node int) string { return fmt.Sprintf("10.0.0.%d", node+1) }

// box returns a node, which is started if it does not run.
func (w *world) box(n int) *box {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.nodes[n]
	if b == nil {
		b = &box{disk: faultdisk.New(w.script.Seed + uint64(n))}
		w.nodes[n] = b
	}
	if b.Machine == nil {
		b.host = w.network.Host(ip(n))
		b.Machine = machine.New(machine.Options{
			Shared: node.Shared{Network: b.host, Strategy: plans.Strategy(w.script, n)},
			Source: w.origin.Kind(n, map[string]*origin.Origin{otherPath: w.other}), Disk: b.disk,
			Groups: process.Groups(w.log), Log: w.log.With("node", n),
		})
	}
	return b
}

// end closes a node whose processes have ended.
func (w *world) end(n int) {
	w.mu.Lock()
	b := w.nodes[n]
	m := b.Machine
	b.Machine = nil
	w.mu.Unlock()
	if m == nil {
		return
	}
	w.forget(n, false)
	if err := m.End(); err != nil {
		w.unwell(n, "%v", err)
	} else {
		// A class that was being opened is closed by who opens it, for which a node does not wait. Time
		// is virtual: it goes on when all that can run has run.
		time.Sleep(time.Nanosecond)
		w.left(n, b, m.Left())
	}
	w.network.Kill(b.host)
}

// crash ends a node whose host was killed and whose processes have ended, and loses what was not on
// its disk.
func (w *world) crash(n int) {
	w.end(n)
	w.forget(n, true)
	if err := w.nodes[n].disk.Crash(); err != nil {
		w.unwell(n, "%v", err)
	}
}

// cacheDir returns a node's cache directory.
func (w *world) cacheDir(n int) string { return filepath.Join(w.dir, fmt.Sprintf("cache-%d", n)) }

// configFile returns the job's configuration file; "": none.
func (w *world) configFile() (string, error) {
	known := ""
	if w.script.SourceSlow {
		known += "source = {1 = 0.0001}\n"
	}
	if w.script.Takes > 0 { // so that nodes can compare plans as soon as they know the source
		known += "network = 1000.0\n"
	}
	if known == "" {
		return "", nil
	}
	name := filepath.Join(w.dir, "hdmlp.toml")
	return name, os.WriteFile(name, []byte("[environment]\n"+known), 0o600)
}

// sleep waits, and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

var errKilled = errors.New("the launch was ended")
