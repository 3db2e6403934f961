// Package daemon is the node's process: it serves jobs to the training processes
// of one user over a Unix socket (DESIGN 8), and ends a set time after the last of
// them is gone, whatever way they ended.
//
// Every connection has one goroutine that reads and handles frames, one that
// stages batches while a job is open (Rank.Run), and short-lived ones for calls that
// take time. Frames are written under the connection's lock. A process that ends
// without closing its socket, because children of it keep it open, is
// noticed by its pidfd.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/socket"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// Config says how a daemon runs.
type Config struct {
	Version string
	Node    *node.Node
	Linger  time.Duration // how long to stay after the last connection; 0: end with it
	Log     *slog.Logger
	// LogFile is handed to processes, to read the daemon's last words from.
	LogFile *os.File
}

const (
	// patience is how long a daemon waits for its first connection, and a
	// connection for its first frame.
	patience = 10 * time.Second
	// farewell is how long a daemon that ends waits for its connections: one
	// may be held up by a system call that hangs.
	farewell = 5 * time.Second
)

// Daemon serves connections.
type Daemon struct {
	cfg      Config
	stop     context.CancelFunc
	patience time.Duration

	mu    sync.Mutex
	conns map[*conn]struct{}
	idle  *time.Timer // running while there are no connections
	waits time.Time   // how long it waits for the first connection
	// when it ends, if nobody comes who does more than look on; zero: nobody has been here
	until time.Time
	// nobody came within the linger time: whoever comes now is not greeted, and finds another
	// daemon
	leaves bool
}

// New returns a daemon.
func New(cfg Config) *Daemon {
	return &Daemon{cfg: cfg, patience: patience, conns: make(map[*conn]struct{})}
}

// Run serves connections until ctx is done, a process asks for the end, or nobody
// has been connected for the linger time. It closes the listener. What remains is
// cut off: processes see their connection end.
func (d *Daemon) Run(ctx context.Context, l socket.Listener) error {
	ctx, d.stop = context.WithCancel(ctx)
	defer d.stop()
	closed := context.AfterFunc(ctx, func() { l.Close() })
	defer closed()

	d.mu.Lock()
	d.waits = time.Now().Add(max(d.cfg.Linger, d.patience))
	d.idle = time.AfterFunc(time.Until(d.waits), d.leave)
	d.mu.Unlock()

	var conns sync.WaitGroup
	err := d.accept(ctx, l, func(c *net.UnixConn) {
		conns.Go(func() { d.serve(ctx, c) })
	})
	d.stop()
	if !within(farewell, conns.Wait) {
		d.cfg.Log.Error("some connections do not end, because a system call hangs: the daemon " +
			"ends without them")
		return err
	}
	return errors.Join(err, d.cfg.Node.Close())
}

// accept hands connections on until the listener is closed.
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
			// The spare descriptor serves to tell the process.
			spare.Close()
			if c, again := l.AcceptUnix(); again == nil {
				d.turnAway(c, err)
			}
			spare, _ = os.Open(os.DevNull)
		}
		d.cfg.Log.Error("accept", "error", err)
		pause := time.NewTimer(100 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

// turnAway tells a process that there are too few descriptors to serve it.
func (d *Daemon) turnAway(c *net.UnixConn, err error) {
	defer c.Close()
	var files unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files) // 0: not known
	m := &protocol.ErrorMessage{
		Kind: protocol.KindLimit,
		Message: fmt.Sprintf("the daemon (pid %d) can open no more files for another process: "+
			"%v; RLIMIT_NOFILE is %d: raise it (ulimit -n) up to %d before the daemon starts",
			os.Getpid(), err, files.Cur, files.Max),
		Details: map[string]any{"need": files.Cur + 1, "limit": files.Cur},
	}
	if frame, err := protocol.AppendJSON(nil, protocol.Error, m); err == nil {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(frame)
	}
}

// within calls wait, and tells whether it has returned in time.
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

// leave ends the daemon, unless somebody has come at the last moment.
func (d *Daemon) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) == 0 {
		d.leaves = true
		d.stop()
	}
}

// serve runs one connection. Those that only look on do not make the daemon stay any longer once
// they are gone.
func (d *Daemon) serve(ctx context.Context, c *net.UnixConn) {
	x := newConn(d, c)
	d.mu.Lock()
	if d.leaves {
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
	// One that did not even greet, as of a second daemon that looks who has the socket, or of
	// another user, counts for nothing.
	if x.greeted && (d.until.IsZero() || !x.looksOn()) {
		d.until = time.Now().Add(d.cfg.Linger)
	}
	if len(d.conns) == 0 {
		until := d.until
		if until.IsZero() {
			until = d.waits
		}
		d.idle.Reset(time.Until(until))
	}
	d.mu.Unlock()
}

// busy tells whether any connection but the given one has a job open, or opens one.
func (d *Daemon) busy(but *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		if c != but && c.holds.Load() {
			return true
		}
	}
	return false
}

// stats describes the daemon and its jobs.
func (d *Daemon) stats() *Stats {
	d.mu.Lock()
	n := len(d.conns)
	d.mu.Unlock()
	return &Stats{
		Version:     d.cfg.Version,
		PID:         os.Getpid(),
		Connections: n,
		Jobs:        d.cfg.Node.Reports(),
	}
}
