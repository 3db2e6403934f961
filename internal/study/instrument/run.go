// Package instrument runs a training script that was not written for it, with a hook (hook/) in
// each of the script's Python processes.
//
// Run measures the loader that the script iterates: the hook wraps the iteration, measures the job
// in phases, and ends the script. What the processes say is a Record, and what follows from it an
// analysis.Measured, of which the source, the caches and what hdmlp prepares are still to be
// measured. Learn has the hook look at the items of the script's datasets.
//
// Both own the script: when they return, no process of the script is left.
package instrument

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// hook is the Python code that the script's processes load.
//
//go:embed hook/sitecustomize.py hook/hdmlp_analyze/*.py hook/hdmlp_learn/*.py
var hook embed.FS

// Options say what to run, and how long to measure.
type Options struct {
	Command []string // a program and its arguments
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	// AsIs, Training and Preparation are the times of the phases.
	AsIs, Training, Preparation time.Duration
	// Validate means that another loader takes the place of torch's, and that only the job as it is
	// then is measured, from the second epoch on: hdmlp's loader, or torch's with Workers worker
	// processes if that is above 0.
	Validate bool
	Workers  int
	// Variables are set in the script's environment, as NAME=value.
	Variables []string
	// Package is the directory that has the Python package hdmlp, for scripts that cannot import it
	// otherwise; "": there is none.
	Package string
	// Progress is called with what is measured next.
	Progress func(what string)
	// Measuring, if not nil, is called every second or so while the job as it is is measured, and
	// after that, from one goroutine.
	Measuring func()
	// Nodes, if not nil, is called once if other scripts have ranks of the job too. It must not
	// block.
	Nodes func(Job)
}

// Exit is how the script's command ended.
type Exit struct {
	Status int  // its exit status, or 128 and the number of the signal that ended it
	Forced bool // it was ended here, and its status has no meaning
}

// graceful is how long the script has to end by itself after everything is measured: longer than
// its processes have (GRACE in ending.py). abrupt is how long processes have to end after SIGTERM,
// before they are killed.
const (
	graceful = 10 * time.Second
	abrupt   = 3 * time.Second
)

// prefix is how the names of directories begin that hold the hook, in that of temporary files.
const prefix = "hdmlp-analyze-"

// schedule is the size of the memory in which ranks agree on phases.
const schedule = 64

// Run runs the command and returns what its processes measured. Its error is ctx's cause, with
// which comes what was measured until then, or why the command could not be started; a script that
// fails, or that has no loader, is no error here.
func Run(ctx context.Context, o Options) (*Record, Exit, error) {
	r := &run{options: o, ended: make(chan struct{})}
	exit, err := r.whole(ctx, map[string]any{
		"command": "analyze",
		"as_is":   o.AsIs.Seconds(), "training": o.Training.Seconds(),
		"preparation": o.Preparation.Seconds(), "package": o.Package,
		"validate": o.Validate, "workers": o.Workers,
	})
	if err != nil {
		return nil, exit, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.record, exit, errors.Join(r.failed, context.Cause(ctx))
}

// whole runs the command with a hook that has these settings. Its error is why the command could
// not be started.
func (r *run) whole(ctx context.Context, settings map[string]any) (Exit, error) {
	sweep()
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return Exit{}, err
	}
	defer os.RemoveAll(dir)
	if err := install(dir, settings); err != nil {
		return Exit{}, fmt.Errorf("prepare %s: %w", dir, err)
	}
	listener, err := listen(dir)
	if err != nil {
		return Exit{}, err
	}
	var accepting sync.WaitGroup
	accepting.Go(func() { r.serve(listener) })
	exit, err := r.script(ctx, dir)
	flush(socket(dir))
	listener.Close()
	accepting.Wait()
	r.drain()
	return exit, err
}

// sweep removes the directories of runs that were killed: nothing listens on their sockets.
func sweep() {
	left, _ := filepath.Glob(socket(filepath.Join(os.TempDir(), prefix+"*")))
	for _, path := range left {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.RemoveAll(filepath.Dir(path))
		}
	}
}

// socket returns the path of a run's socket.
func socket(dir string) string { return filepath.Join(dir, "socket") }

// listen returns the listener of a run's socket. Between bind and listen a socket refuses
// connections, like one whose process was killed: it has another name until then, so that no sweep
// of another command finds it.
func listen(dir string) (*net.UnixListener, error) {
	hidden := filepath.Join(dir, "new")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("%w; set TMPDIR to a directory with a shorter path", err)
	}
	l.SetUnlinkOnClose(false) // the directory is removed
	if err := os.Rename(hidden, socket(dir)); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// install writes the hook, and its settings.
func install(dir string, settings map[string]any) error {
	code, err := fs.Sub(hook, "hook")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, code); err != nil {
		return err
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), text, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "schedule"), make([]byte, schedule), 0o600)
}

// run is a script in progress.
type run struct {
	options Options
	ended   chan struct{}         // closed once all ranks have measured everything
	take    func(io.Reader) error // takes what a process sends; nil: measure does

	mu          sync.Mutex // guards the following
	record      Record
	failed      error // the first message that was wrong
	connections map[net.Conn]bool
	leader      *Rank          // the first that began to measure
	doing       string         // what it measures
	heard       time.Time      // when it sent something last
	missed      bool           // that it sends nothing was said
	over        bool           // ended is closed
	serving     sync.WaitGroup // of connections
}

// script runs the command to its end.
func (r *run) script(ctx context.Context, dir string) (Exit, error) {
	cmd := exec.Command(r.options.Command[0], r.options.Command[1:]...)
	cmd.Stdin = r.options.Stdin
	cmd.Stdout = r.options.Stdout
	cmd.Stderr = r.options.Stderr
	cmd.Env = environment(append(os.Environ(), r.options.Variables...), dir)
	cmd.WaitDelay = abrupt // for output of processes that the script leaves, if it is no file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	adopt()
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The signal of Pdeathsig is sent when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the process state has how it ended
			close(done)
		}
	}()
	if err := <-started; err != nil {
		return Exit{}, err
	}
	ended := r.await(ctx, done)
	forced := ended && !closed(done)
	stop(ctx, done)
	<-done
	return Exit{Status: status(cmd.ProcessState), Forced: forced}, nil
}

// await waits until the command has ended, ctx has, or the script had its time to end after all was
// measured. It reports whether everything was measured.
func (r *run) await(ctx context.Context, done <-chan struct{}) (measured bool) {
	silent, late := time.NewTimer(patience), time.NewTicker(quiet/4)
	defer silent.Stop()
	defer late.Stop()
	for waits := true; waits; {
		select {
		case <-done:
			return closed(r.ended)
		case <-ctx.Done():
			return false
		case <-silent.C:
			r.mu.Lock()
			none := r.record.Pythons == 0
			r.mu.Unlock()
			if none {
				r.options.Progress("no Python process has reported yet; those that were started with " +
					"-I, -E or -S, or without PYTHONPATH, are not measured")
			}
		case now := <-late.C:
			if what := r.silence(now); what != "" {
				r.options.Progress(what)
			}
		case <-r.ended:
			waits = false
		}
	}
	r.mu.Lock()
	refused := r.record.Refused != "" || r.record.Lost != ""
	r.mu.Unlock()
	if refused { // the script goes on
		return true
	}
	grace := time.NewTimer(graceful)
	defer grace.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-grace.C:
	}
	return true
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// status returns an exit status as shells do.
func status(state *os.ProcessState) int {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return state.ExitCode()
}

// environment returns the variables with dir as the first place where Python looks for modules. The
// script has a daemon of its own, so that ending it with the script concerns no other job, and its
// caches are empty at the start.
func environment(variables []string, dir string) []string {
	const name, socket = "PYTHONPATH=", "HDMLP_SOCKET="
	var out []string
	own := func(v string) bool { return strings.HasPrefix(v, socket) }
	if !slices.ContainsFunc(variables, own) {
		out = append(out, socket+filepath.Base(dir))
	}
	path := dir
	for _, v := range variables {
		if value, ok := strings.CutPrefix(v, name); ok {
			if value != "" {
				path = dir + string(os.PathListSeparator) + value
			}
			continue
		}
		out = append(out, v)
	}
	return append(out, name+path)
}

// serve accepts connections until the listener is closed.
func (r *run) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		if r.connections == nil {
			r.connections = map[net.Conn]bool{}
		}
		r.connections[conn] = true
		r.serving.Go(func() { r.read(conn) })
		r.mu.Unlock()
	}
}

// read takes what a process sends, until it closes its connection.
func (r *run) read(conn net.Conn) {
	take := r.take
	if take == nil {
		take = r.measure
	}
	err := take(conn)
	conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.connections, conn)
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) &&
		r.failed == nil {
		r.failed = err
	}
}

// measure takes what a process sends of its measurements.
func (r *run) measure(conn io.Reader) error {
	var rank *Rank
	return lines(conn, func(line []byte) error {
		r.mu.Lock()
		m, err := r.record.take(line, &rank)
		var then []func()
		if m.Event == "loader" && err == nil &&
			(r.leader == nil || r.leader.Loader.Rank == rank.Loader.Rank) {
			r.leader = rank
		}
		leads := rank != nil && rank == r.leader
		if leads {
			r.heard, r.missed = time.Now(), false
		}
		if leads && m.Event == "as_is" && r.options.Measuring != nil {
			then = append(then, r.options.Measuring)
		}
		if m.Event == "nodes" && err == nil && r.options.Nodes != nil {
			job := *r.record.Job
			then = append(then, func() { r.options.Nodes(job) })
		}
		if what := progress(m, rank); leads && what != "" {
			if r.doing = what; r.options.Validate { // which was announced, and has one phase
				r.doing = "the job with hdmlp's loader"
			} else {
				then = append(then, func() { r.options.Progress(what) })
			}
		}
		if r.record.ended() && !r.over {
			r.over = true
			then = append(then, func() { close(r.ended) })
		}
		r.mu.Unlock()
		for _, f := range then {
			f()
		}
		return err
	})
}

// flush returns after all connections that were made before are accepted: they are in the order in
// which they were made.
func flush(path string) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.(*net.UnixConn).CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(abrupt))
	_, _ = conn.Read(make([]byte, 1)) // fails once it was accepted and closed
}

// drain waits until what the ended processes have sent is read. A process that is not the script's
// descendant may still have a connection: it is closed after some time.
func (r *run) drain() {
	late := time.AfterFunc(abrupt, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for conn := range r.connections {
			conn.Close()
		}
	})
	defer late.Stop()
	r.serving.Wait()
}
