package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// RunOptions describe what to run on a cluster.
type RunOptions struct {
	Args           []string // the command and its arguments
	Stdout, Stderr io.Writer
	Colour         bool
}

// Time between SIGTERM and SIGKILL: after a rank has failed, after the user has interrupted the
// run, and for processes that are left when all ranks have succeeded.
const (
	graceFailed      = 5 * time.Second
	graceInterrupted = 500 * time.Millisecond
	graceLeft        = time.Second
)

// Summary is the result of a run.
type Summary struct {
	Run         string        `json:"run"`
	Nodes       int           `json:"nodes"`
	Seconds     float64       `json:"seconds"`
	Interrupted bool          `json:"interrupted"`
	ExitStatus  int           `json:"exit_status"`
	FirstFailed *int          `json:"first_failed"` // rank; nil if none failed by itself
	Ranks       []RankSummary `json:"ranks"`
}

// RankSummary is the result of a rank's process.
type RankSummary struct {
	Rank       int     `json:"rank"`
	Node       int     `json:"node"`
	LocalRank  int     `json:"local_rank"`
	PID        int     `json:"pid"`
	ExitStatus int     `json:"exit_status"` // 128 + the signal's number if a signal killed it
	Signal     string  `json:"signal,omitempty"`
	Seconds    float64 `json:"seconds"`
}

// run is a command that runs on all nodes. Its fields belong to the goroutine of Run, except over
// and readers.
type run struct {
	cluster *Cluster
	options RunOptions
	output  output
	started time.Time
	exits   chan exit
	pipes   []*os.File  // reading ends of the pipes for processes' output
	over    atomic.Bool // all processes have ended; some output may still be unread
	readers sync.WaitGroup
	summary Summary
	err     error // what failed apart from the ranks
	stopped bool  // SIGTERM was sent
	timer   *time.Timer
}

// exit is the end of a rank's process.
type exit struct {
	rank  int
	state *os.ProcessState
	err   error
}

// Run runs the command once for each rank, and waits for all of them. When one fails, or ctx ends,
// Run kills the others. In any case it then kills the processes that ranks have left on the nodes.
// The summary has the ranks' exit statuses; the error is for everything else, and is ctx's if that
// has ended.
func (c *Cluster) Run(ctx context.Context, o RunOptions) (*Summary, error) {
	ranks := len(c.nodes) * c.options.RanksPerNode
	r := &run{
		cluster: c, options: o, output: output{colour: o.Colour}, started: time.Now(),
		exits:   make(chan exit, ranks),
		summary: Summary{Run: c.name, Nodes: len(c.nodes), Ranks: make([]RankSummary, ranks)},
		timer:   time.NewTimer(time.Hour),
	}
	r.timer.Stop()
	running := 0
	for rank := range ranks {
		if r.err = r.start(rank); r.err != nil {
			r.stop(graceFailed)
			break
		}
		running++
	}
	r.wait(ctx, running)
	r.end()
	r.summary.Seconds = time.Since(r.started).Seconds()
	if ctx.Err() != nil {
		r.summary.Interrupted = true
		r.err = errors.Join(ctx.Err(), r.err)
	}
	return &r.summary, r.err
}

// start starts a rank's process.
func (r *run) start(rank int) error {
	node, local := rank/r.cluster.options.RanksPerNode, rank%r.cluster.options.RanksPerNode
	cmd := r.cluster.nodes[node].Command(local, r.options.Args[0], r.options.Args[1:]...)
	stdout, err := r.pipe(r.options.Stdout, node, rank)
	if err != nil {
		return err
	}
	defer stdout.Close()
	stderr, err := r.pipe(r.options.Stderr, node, rank)
	if err != nil {
		return err
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start rank %d on node %d: %w", rank, node, err)
	}
	r.summary.Ranks[rank] = RankSummary{
		Rank: rank, Node: node, LocalRank: local, PID: cmd.Process.Pid,
	}
	go func() { // wait receives from it
		err := cmd.Wait()
		r.exits <- exit{rank, cmd.ProcessState, err}
	}()
	return nil
}

// pipe returns a pipe for a process to write to; its lines are copied to w.
func (r *run) pipe(w io.Writer, node, rank int) (*os.File, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for rank %d: %w", rank, err)
	}
	r.pipes = append(r.pipes, from)
	r.readers.Go(func() { r.output.copy(w, pipeReader{from, &r.over}, node, rank) })
	return to, nil
}

// wait waits for the running processes, and stops them if one fails or ctx ends.
func (r *run) wait(ctx context.Context, running int) {
	interrupted := ctx.Done()
	for running > 0 {
		select {
		case e := <-r.exits:
			running--
			r.ended(e)
		case <-interrupted:
			interrupted = nil
			r.stop(graceInterrupted)
		case <-r.timer.C:
			r.err = errors.Join(r.err, r.cluster.kill())
		}
	}
}

// ended records the end of a rank's process.
func (r *run) ended(e exit) {
	s := &r.summary.Ranks[e.rank]
	s.Seconds = time.Since(r.started).Seconds()
	if e.state == nil {
		r.err = errors.Join(r.err, fmt.Errorf("wait for rank %d: %w", e.rank, e.err))
		r.stop(graceFailed)
		return
	}
	s.ExitStatus = e.state.ExitCode()
	if ws, ok := e.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		s.ExitStatus = 128 + int(ws.Signal())
		s.Signal = ws.Signal().String()
	}
	if s.ExitStatus != 0 && !r.stopped {
		r.summary.FirstFailed, r.summary.ExitStatus = &s.Rank, s.ExitStatus
		r.stop(graceFailed)
	}
}

// stop sends SIGTERM to all processes, and starts the timer after which wait kills them.
func (r *run) stop(grace time.Duration) {
	if _, err := r.cluster.processes().signal(unix.SIGTERM, map[int]bool{}); err != nil {
		r.err = errors.Join(r.err, err)
	}
	r.stopped = true
	r.timer.Reset(grace)
}

// end kills the processes that ranks have left, and reads the output to its end.
func (r *run) end() {
	r.timer.Stop()
	p := r.cluster.processes()
	asked := map[int]bool{}
	left, err := p.signal(unix.SIGTERM, asked)
	for until := time.Now().Add(graceLeft); !r.stopped && left > 0 && err == nil &&
		time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond)
		left, err = p.signal(unix.SIGTERM, asked)
	}
	r.err = errors.Join(r.err, err, p.kill())
	r.over.Store(true)
	for _, f := range r.pipes {
		_ = f.SetReadDeadline(time.Now().Add(graceLeft)) // for reads that are blocked already
	}
	r.readers.Wait()
	for _, f := range r.pipes {
		f.Close()
	}
}

// pipeReader reads a pipe. Once over is set, it gives up after graceLeft: a process that was missed
// may still hold the pipe open.
type pipeReader struct {
	*os.File
	over *atomic.Bool
}

func (p pipeReader) Read(b []byte) (int, error) {
	if p.over.Load() {
		_ = p.SetReadDeadline(time.Now().Add(graceLeft))
	}
	return p.File.Read(b)
}
