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
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/job"
)

// Config says how a daemon runs.
type Config struct {
	Version string
	Node    *job.Node
	Linger  time.Duration // how long to stay after the last connection; 0: end with it
	Log     *slog.Logger
	// LogFile is handed to processes, to read the daemon's last words from.
	LogFile *os.File
}

// patience is how long a daemon waits for its first connection, and a connection
// for its first frame.
const patience = 10 * time.Second

// Daemon serves connections.
type Daemon struct {
	cfg  Config
	stop context.CancelFunc

	mu    sync.Mutex
	conns map[*conn]struct{}
	idle  *time.Timer // running while there are no connections
}

// New returns a daemon.
func New(cfg Config) *Daemon {
	return &Daemon{cfg: cfg, conns: make(map[*conn]struct{})}
}

// Run serves connections until ctx is done, a process asks for the end, or nobody
// has been connected for the linger time. It closes the listener. What remains is
// cut off: processes see their connection end.
func (d *Daemon) Run(ctx context.Context, l *net.UnixListener) error {
	ctx, d.stop = context.WithCancel(ctx)
	defer d.stop()
	closed := context.AfterFunc(ctx, func() { l.Close() })
	defer closed()

	d.mu.Lock()
	d.idle = time.AfterFunc(max(d.cfg.Linger, patience), d.stop)
	d.mu.Unlock()

	var conns sync.WaitGroup
	var err error
	for {
		var c *net.UnixConn
		c, err = l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				err = nil
				break
			}
			d.cfg.Log.Error("accept", "error", err)
			select { // out of descriptors, most likely
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
			break
		}
		conns.Go(func() { d.serve(ctx, c) })
	}
	d.stop()
	conns.Wait()
	return errors.Join(err, d.cfg.Node.Close())
}

// serve runs one connection.
func (d *Daemon) serve(ctx context.Context, c *net.UnixConn) {
	x := newConn(d, c)
	d.mu.Lock()
	d.conns[x] = struct{}{}
	d.idle.Stop()
	d.mu.Unlock()

	x.run(ctx)

	d.mu.Lock()
	delete(d.conns, x)
	if len(d.conns) == 0 {
		d.idle.Reset(d.cfg.Linger)
	}
	d.mu.Unlock()
}

// busy tells whether any connection but the given one has a job open.
func (d *Daemon) busy(but *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		if c != but && c.rank.Load() != nil {
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
	return &Stats{Version: d.cfg.Version, PID: os.Getpid(), Connections: n, Jobs: d.cfg.Node.Reports()}
}
