package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/source"
)

// conn is one process's connection. Fields marked "reader only" belong to the goroutine that reads
// frames.
type conn struct {
	d   *Daemon
	c   *net.UnixConn
	log *slog.Logger

	rank     atomic.Pointer[node.Rank] // set when OPEN succeeds
	openSeen bool                      // OPEN was received; reader only
	greeted  bool                      // HELLO was received; reader only
	atURL    bool                      // the job's dataset is named by a URL; reader only
	holdsJob atomic.Bool               // a job is open, or being opened
	// the status was queried, as by `hdmlp stats` and `hdmlp top`
	queried atomic.Bool
	tasks   sync.WaitGroup // pending calls and OPEN
	// versionErr is set, before frames are read, if the process has another version: it gets this
	// error for everything but the calls "stats" and "shutdown".
	versionErr *protocol.ErrorMessage
	callSlots  chan struct{} // limits pending calls

	stage *run // the generation being staged; reader only

	lent lent // segments of storage classes that the process may map

	wmu struct { // guards writing to c
		sync.Mutex
		buf []byte
	}

	renewal renewal
	ended   chan struct{} // closed when the connection has ended

	mu       sync.Mutex                  // guards datasets
	datasets map[string]*catalog.Dataset // that calls have asked about
}

// maxCalls is the limit on pending calls of one connection.
const maxCalls = 16

func newConn(d *Daemon, c *net.UnixConn) *conn {
	return &conn{
		d:         d,
		c:         c,
		log:       d.cfg.Log,
		callSlots: make(chan struct{}, maxCalls),
		ended:     make(chan struct{}),
		datasets:  make(map[string]*catalog.Dataset),
		lent:      lent{gone: make(map[uint32]func())},
	}
}

// observer reports whether the connection only queried the daemon's status. Its run must have
// returned.
func (x *conn) observer() bool { return x.queried.Load() && !x.openSeen }

// run serves the connection until it ends, and releases everything that it holds.
func (x *conn) run(daemon context.Context) {
	ctx, cancel := context.WithCancel(daemon)
	closed := context.AfterFunc(ctx, func() { x.c.Close() })
	err := x.handshake(ctx, cancel)
	if err != nil {
		x.refuse(err)
	}
	cancel()
	closed()
	close(x.ended)
	x.c.Close()
	x.rank.Load().Leave()
	x.stopStage()
	x.lent.end()
	x.tasks.Wait()
	if r := x.rank.Load(); r != nil {
		if err != nil || daemon.Err() != nil {
			r.Keep()
		}
		r.Close()
	}
	for _, ds := range x.datasets {
		ds.Close()
	}
}

// refuse sends the error that ends the connection.
func (x *conn) refuse(err error) {
	m := errorMessage(err)
	if m.Kind == protocol.KindProtocol || m.Kind == protocol.KindPermission {
		x.log.Warn("connection rejected", "error", err)
	}
	_ = x.c.SetWriteDeadline(time.Now().Add(time.Second))
	_ = x.sendJSON(protocol.Error, m)
}

// handshake checks the peer's user and version, answers HELLO, and then reads frames until the
// connection ends. It returns the error to refuse the connection with; nil if the process is gone.
func (x *conn) handshake(ctx context.Context, cancel context.CancelFunc) error {
	cred, err := socket.Peer(x.c)
	if err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() {
		return &protocol.ErrorMessage{
			Kind: protocol.KindPermission,
			Message: fmt.Sprintf("this daemon serves user %d and not user %d; start a daemon "+
				"of your own", os.Geteuid(), cred.Uid),
		}
	}
	in := newInbox(x.c)
	defer in.close()
	r := bufio.NewReaderSize(in, 64<<10)
	_ = x.c.SetReadDeadline(time.Now().Add(x.d.helloTimeout))
	t, p, err := protocol.ReadFrame(r, make([]byte, 4096))
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: no HELLO within %v", protocol.ErrProtocol, x.d.helloTimeout)
	case errors.Is(err, protocol.ErrProtocol):
		return err
	default: // the process is gone, or the daemon shuts down
		return nil
	}
	if t != protocol.Hello {
		return fmt.Errorf("%w: the first frame is of type %d, not HELLO", protocol.ErrProtocol, t)
	}
	var hello protocol.HelloMessage
	if err := protocol.DecodeJSON(p, &hello); err != nil {
		return err
	}
	if hello.Protocol != protocol.Version {
		return &protocol.ErrorMessage{
			Kind: protocol.KindVersion,
			Message: fmt.Sprintf("this process (hdmlp %s, pid %d) uses protocol %d, but the daemon "+
				"(hdmlp %s, pid %d) uses protocol %d: both must have the same version; stop the "+
				"daemon with `hdmlp stop --force`, which ends its jobs with an error, or set "+
				"HDMLP_SOCKET to another path or name to run a second daemon",
				hello.Version, hello.PID, hello.Protocol, x.d.cfg.Version, os.Getpid(),
				protocol.Version),
		}
	}
	if hello.Version != x.d.cfg.Version {
		x.versionErr = versionsDiffer(x.d.cfg.Version, os.Getpid(), hello.Version, hello.PID)
	}
	x.greeted = true
	_ = x.c.SetReadDeadline(time.Time{})
	if watch := socket.WatchProcess(int(cred.Pid), cancel); watch != nil {
		defer watch()
	}
	frame, err := protocol.AppendJSON(nil, protocol.Welcome,
		protocol.WelcomeMessage{
			Protocol: protocol.Version,
			Version:  x.d.cfg.Version,
			PID:      os.Getpid(),
		})
	if err != nil {
		return err
	}
	if err := x.sendWithFile(frame, x.d.cfg.LogFile); err != nil {
		return nil // the process is gone
	}
	return x.frames(ctx, r, in)
}

// frames reads and handles frames until the connection ends. It returns the error to refuse the
// connection with.
func (x *conn) frames(ctx context.Context, r io.Reader, in *inbox) error {
	buf := make([]byte, 64<<10)
	var slots []uint32
	for {
		t, p, err := protocol.ReadFrame(r, buf)
		if err != nil {
			if errors.Is(err, protocol.ErrProtocol) && ctx.Err() == nil {
				return err
			}
			return nil // the process is gone, or the daemon shuts down
		}
		if x.versionErr != nil && t != protocol.Call {
			return x.versionErr
		}
		switch t {
		case protocol.Ack:
			err = x.ack(p, &slots)
		case protocol.Wait:
			err = x.ofStage(p, (*node.Rank).Wait)
		case protocol.Raised:
			err = x.ofStage(p, (*node.Rank).Raised)
		case protocol.Iterate:
			err = x.iterate(ctx, p)
		case protocol.Call:
			err = x.call(ctx, p, in)
		case protocol.Open:
			err = x.open(ctx, p, in)
		case protocol.View:
			err = x.viewed(p, in)
		case protocol.Give:
			err = x.give(p, in)
		case protocol.Gone:
			err = x.gone(p)
		default:
			err = fmt.Errorf("%w: frame of type %d after the first", protocol.ErrProtocol, t)
		}
		if err != nil {
			return err
		}
	}
}

// open creates or joins a job in a task of its own, because a scan may take long.
func (x *conn) open(ctx context.Context, p []byte, in *inbox) error {
	var m protocol.OpenMessage
	if err := protocol.DecodeJSON(p, &m); err != nil {
		return err
	}
	if x.openSeen {
		return fmt.Errorf("%w: a second OPEN on one connection", protocol.ErrProtocol)
	}
	var view *source.View // nil: the dataset is not a directory
	if m.Dataset.View {
		var err error
		x.atURL = option.IsURL(m.Dataset.Path)
		if view, err = in.view(x.atURL); err != nil {
			return err
		}
		view.Renew = x.renew
	}
	var manifest *os.File
	for _, f := range []struct {
		comes bool
		to    **os.File
	}{
		{m.Dataset.Manifest, &manifest},
		{m.Stream.Subset != nil || m.Stream.Given != nil, &m.Stream.List},
	} {
		if !f.comes {
			continue
		}
		var err error
		if *f.to, err = in.file(); err != nil {
			_ = view.Close()
			_ = manifest.Close()
			return err
		}
	}
	x.openSeen = true
	x.holdsJob.Store(true)
	x.tasks.Go(func() {
		request := openRequest(&m)
		request.Manifest = manifest
		rank, err := x.d.cfg.Node.Open(ctx, request, view, x.progress())
		_ = view.Close()          // its users have duplicated the descriptors
		_ = m.Stream.List.Close() // they have been read
		_ = manifest.Close()
		if err != nil {
			x.holdsJob.Store(false)
			if ctx.Err() == nil { // otherwise the process sees the connection end
				x.log.Warn("job refused", "job", m.Job, "rank", m.Rank, "error", err)
				_ = x.sendJSON(protocol.Error, errorMessage(err))
			}
			return
		}
		x.log.Info("rank joined", "job", m.Job, "rank", m.Rank, "world_size", m.WorldSize)
		rank.OnDrop(x.dropSegment)
		x.rank.Store(rank)
		// Segments first: after OPENED the process may ask for batches in them.
		for _, s := range rank.Segments() {
			var flags uint32
			if s.Writable {
				flags |= protocol.SegmentWritable
			}
			if s.Returns {
				flags |= protocol.SegmentReturns
			}
			if x.sendWithFile(protocol.AppendSegment(nil, s.Number, flags, uint64(s.Size)),
				s.File) != nil {
				return
			}
		}
		err = x.sendJSON(protocol.Opened, openedMessage(rank.Opened()))
		if errors.Is(err, protocol.ErrProtocol) {
			_ = x.sendJSON(protocol.Error, errorMessage(tooLong("the answer to OPEN", err)))
		}
	})
	return nil
}

// give reads the order of another epoch. It does so in the reader, so that a following ITERATE
// finds the order; the list is in memory, so that reading does not block. A wrong order ends the
// generation with an ERROR that names none, so that the process sees it even if it has already
// asked for another generation.
func (x *conn) give(p []byte, in *inbox) error {
	var m protocol.GiveMessage
	if err := protocol.DecodeJSON(p, &m); err != nil {
		return err
	}
	file, err := in.file()
	if err != nil {
		return err
	}
	defer file.Close()
	rank := x.rank.Load()
	if rank == nil {
		return fmt.Errorf("%w: GIVE before a job is open", protocol.ErrProtocol)
	}
	if err := rank.Give(giveRequest(m), file); err != nil {
		x.stopStage()
		_ = x.sendJSON(protocol.Error, errorMessage(err))
	}
	return nil
}
