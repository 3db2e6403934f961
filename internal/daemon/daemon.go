// Package daemon is the node's process: it serves jobs to the training processes of one user over a
// Unix socket, and exits a set time after the last of them has disconnected, no matter
// how it ended.
//
// Each connection has one goroutine that reads and handles frames, one that stages batches while a
// job is open (Rank.Run), and short-lived ones for slow calls. Frames are written under the
// connection's lock. If a process ends but its socket stays open, because children inherited it,
// its pidfd reports the end.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// Config configures a daemon.
type Config struct {
	Version string
	Node    *node.Node
	Linger  time.Duration // how long to stay after the last connection; 0: end with it
	Log     *slog.Logger
	// LogFile is passed to processes, which read from it why the daemon died.
	LogFile *os.File
}

const (
	// helloTimeout is how long a daemon waits for its first connection, and a connection for its
	// first frame.
	helloTimeout = 10 * time.Second
	// shutdownTimeout is how long a daemon that shuts down waits for its connections: one may be
	// blocked in a system call that hangs.
	shutdownTimeout = 5 * time.Second
)

// Daemon serves the connections of one node's processes.
type Daemon struct {
	cfg          Config
	stop         context.CancelFunc
	helloTimeout time.Duration

	mu            sync.Mutex // guards the following
	conns         map[*conn]struct{}
	idle          *time.Timer // runs while there are no connections
	firstDeadline time.Time   // when the daemon exits if no process connects at all
	// idleDeadline is when the daemon exits unless a connection does more than query its status;
	// zero before the first client.
	idleDeadline time.Time
	// leaving is set when the linger time has passed: later connections are closed before HELLO,
	// and their clients look for another daemon.
	leaving bool
}

// New returns a daemon that is not running yet.
func New(cfg Config) *Daemon {
	return &Daemon{cfg: cfg, helloTimeout: helloTimeout, conns: make(map[*conn]struct{})}
}

// Run serves connections until ctx is done, a process asks for the shutdown, or no process has been
// connected for the linger time. It closes the listener, and then the connections that remain.
func (d *Daemon) Run(ctx context.Context, l socket.Listener) error {
	ctx, d.stop = context.WithCancel(ctx)
	defer d.stop()
	closed := context.AfterFunc(ctx, func() { l.Close() })
	defer closed()

	d.mu.Lock()
	d.firstDeadline = time.Now().Add(max(d.cfg.Linger, d.helloTimeout))
	d.idle = time.AfterFunc(time.Until(d.firstDeadline), d.endIfIdle)
	d.mu.Unlock()

	var conns sync.WaitGroup
	err := d.accept(ctx, l, func(c *net.UnixConn) {
		conns.Go(func() { d.serve(ctx, c) })
	})
	d.stop()
	if !within(shutdownTimeout, conns.Wait) {
		d.cfg.Log.Error("some connections did not end because a system call hangs; the daemon "+
			"exits without them", "waited", shutdownTimeout)
		return err
	}
	return errors.Join(err, d.cfg.Node.Close())
}

// accept passes connections to serve until the listener is closed. It keeps a spare descriptor, so
// that when the process has none left it can still accept a connection and report the error to it.
func (d *Daemon) accept(ctx context.Context, l socket.Listener, serve func(*net.UnixConn)) error {
	spare, _ := os.Open(os.DevNull)
	defer func() { spare.Close() }()
	for {
		c, err := l.AcceptUnix()
		switch {
		case err == nil:
			serve(c)
			continue
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			// Use the spare descriptor to tell the process.
			spare.Close()
			if c, again := l.AcceptUnix(); again == nil {
				d.rejectForFiles(c, err)
			}
			spare, _ = os.Open(os.DevNull)
		}
		d.cfg.Log.Error("accept failed", "error", err)
		pause := time.NewTimer(100 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

// rejectForFiles closes a connection with an error that says the descriptors are exhausted.
func (d *Daemon) rejectForFiles(c *net.UnixConn, err error) {
	defer c.Close()
	var files unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files) // 0: not known
	m := &protocol.ErrorMessage{
		Kind: protocol.KindLimit,
		Message: fmt.Sprintf("the daemon (pid %d) cannot serve another process because it has no "+
			"file descriptors left: %v (RLIMIT_NOFILE is %d); raise the limit (ulimit -n), to at "+
			"most %d, before the daemon starts",
			os.Getpid(), err, files.Cur, files.Max),
		Details: map[string]any{"need": files.Cur + 1, "limit": files.Cur},
	}
	if frame, err := protocol.AppendJSON(nil, protocol.Error, m); err == nil {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(frame)
	}
}

// within calls wait, and reports whether it returned within d.
func within(d time.Duration, wait func()) bool {
	done := make(chan struct{})
	go func() { // ends with wait, or with the process
		wait()
		close(done)
	}()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case <-done:
		return true
	case <-timeout.C:
		return false
	}
}

// endIfIdle stops the daemon, unless a process connected at the last moment.
func (d *Daemon) endIfIdle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) == 0 {
		d.leaving = true
		d.stop()
	}
}

// serve runs one connection. One that only queried the daemon's status does not extend the linger
// time.
func (d *Daemon) serve(ctx context.Context, c *net.UnixConn) {
	x := newConn(d, c)
	d.mu.Lock()
	if d.leaving {
		d.mu.Unlock()
		c.Close()
		return
	}
	d.conns[x] = struct{}{}
	d.idle.Stop()
	d.mu.Unlock()

	x.run(ctx)

	d.mu.Lock()
	delete(d.conns, x)
	// A connection without HELLO does not count: it may be a second daemon's, which checks which user
	// owns the socket, or another user's.
	if x.greeted && (d.idleDeadline.IsZero() || !x.observer()) {
		d.idleDeadline = time.Now().Add(d.cfg.Linger)
	}
	if len(d.conns) == 0 {
		until := d.idleDeadline
		if until.IsZero() {
			until = d.firstDeadline
		}
		d.idle.Reset(time.Until(until))
	}
	d.mu.Unlock()
}

// whyBusy returns why the daemon cannot end without harm to jobs of connections other than except,
// and what to do; empty if there are none.
func (d *Daemon) whyBusy(except *conn) string {
	running, closing := false, false
	d.mu.Lock()
	for c := range d.conns {
		if c == except || !c.holdsJob.Load() {
			continue
		}
		select {
		case <-c.ended:
			closing = true
		default:
			running = true
		}
	}
	d.mu.Unlock()
	switch {
	case running:
		message := "jobs are running"
		if names := d.jobsText(); names != "" {
			message += " (" + names + ")"
		}
		return message + "; end them first, or use --force: they then fail with an error"
	case closing:
		return "the processes of all jobs have ended, and their caches are still being closed, " +
			"which takes longer if a cache's directory does not respond; try again in some seconds, " +
			"or use --force: what was not written yet is then read again by later jobs"
	}
	return ""
}

// jobsText names the running jobs, up to a limit, for messages.
func (d *Daemon) jobsText() string {
	const most = 5
	var names []string
	for _, r := range d.cfg.Node.Reports() {
		names = append(names, request.Name(r.Job))
	}
	text := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

// stats returns what the daemon and its jobs are doing.
func (d *Daemon) stats() *Stats {
	n := 0
	d.mu.Lock()
	for c := range d.conns {
		if !c.queried.Load() || c.holdsJob.Load() { // not this command's own, nor another's
			n++
		}
	}
	d.mu.Unlock()
	return &Stats{
		Version:     d.cfg.Version,
		PID:         os.Getpid(),
		Connections: n,
		Jobs:        d.cfg.Node.Reports(),
	}
}
