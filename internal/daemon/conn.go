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

	"github.com/hdmlp/hdmlp/internal/catalog"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/protocol"
	"github.com/hdmlp/hdmlp/internal/stage"
)

// conn is one process's connection.
type conn struct {
	d   *Daemon
	c   *net.UnixConn
	log *slog.Logger

	rank    atomic.Pointer[node.Rank] // set by OPEN
	opens   bool                      // OPEN was received; reader's own
	greeted bool                      // HELLO was received; reader's own
	holds   atomic.Bool               // a job is open, or being opened
	asked   atomic.Bool               // what the daemon does, as `hdmlp stats` and `hdmlp top` do
	tasks   sync.WaitGroup            // calls and OPEN under way
	// foreign is why a process of another version gets nothing, but may ask for stats and for the
	// daemon's end; nil: it is of ours. Set before frames are read.
	foreign *protocol.ErrorMessage
	slots   chan struct{} // limits calls under way

	stage *run // the generation being staged; reader's own

	wmu struct { // guards writing
		sync.Mutex
		buf []byte
	}

	renewal renewal
	over    chan struct{} // closed when the connection has ended

	mu       sync.Mutex                  // guards datasets
	datasets map[string]*catalog.Dataset // that calls have asked about
}

// run is one generation: a run of Rank.Run.
type run struct {
	generation uint64
	cancel     context.CancelFunc
	done       chan struct{}
}

// maxCalls is how many calls of one connection may be under way.
const maxCalls = 16

func newConn(d *Daemon, c *net.UnixConn) *conn {
	return &conn{
		d:        d,
		c:        c,
		log:      d.cfg.Log,
		slots:    make(chan struct{}, maxCalls),
		over:     make(chan struct{}),
		datasets: make(map[string]*catalog.Dataset),
	}
}

// looksOn tells of a connection whose run has returned whether it was only there to see what the
// daemon does.
func (x *conn) looksOn() bool { return x.asked.Load() && !x.opens }

// run serves the connection until it ends.
func (x *conn) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	closed := context.AfterFunc(ctx, func() { x.c.Close() })
	err := x.handshake(ctx, cancel)
	if err != nil {
		x.refuse(err)
	}
	cancel()
	closed()
	close(x.over)
	x.c.Close()
	x.stopStage()
	x.tasks.Wait()
	if r := x.rank.Load(); r != nil {
		r.Close()
	}
	for _, ds := range x.datasets {
		ds.Close()
	}
}

// refuse ends a connection that broke the rules, with a word of why.
func (x *conn) refuse(err error) {
	m := explain(err)
	if m.Kind == protocol.KindProtocol || m.Kind == protocol.KindPermission {
		x.log.Warn("connection refused", "error", err)
	}
	_ = x.c.SetWriteDeadline(time.Now().Add(time.Second))
	_ = x.sendJSON(protocol.Error, m)
}

// handshake checks who is there, and reads frames.
func (x *conn) handshake(ctx context.Context, cancel context.CancelFunc) error {
	cred, err := socket.Peer(x.c)
	if err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() {
		return &protocol.ErrorMessage{
			Kind: protocol.KindPermission,
			Message: fmt.Sprintf("this daemon serves user %d and not user %d: start one "+
				"of your own", os.Geteuid(), cred.Uid),
		}
	}
	in := newInbox(x.c)
	defer in.close()
	r := bufio.NewReaderSize(in, 64<<10)
	_ = x.c.SetReadDeadline(time.Now().Add(x.d.patience))
	t, p, err := protocol.ReadFrame(r, make([]byte, 4096))
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: no HELLO within %v", protocol.ErrProtocol, x.d.patience)
	case errors.Is(err, protocol.ErrProtocol):
		return err
	default: // the process is gone, or the daemon ends
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
			Message: fmt.Sprintf("the process (hdmlp %s, pid %d) speaks protocol %d, the daemon "+
				"(hdmlp %s, pid %d) protocol %d: install one version on the node, and end the "+
				"daemon with `hdmlp stop --force`, or set HDMLP_SOCKET to another path or name, "+
				"for a second daemon",
				hello.Version, hello.PID, hello.Protocol, x.d.cfg.Version, os.Getpid(),
				protocol.Version),
		}
	}
	if hello.Version != x.d.cfg.Version {
		x.foreign = versionsDiffer(x.d.cfg.Version, os.Getpid(), hello.Version, hello.PID)
	}
	x.greeted = true
	_ = x.c.SetReadDeadline(time.Time{})
	if watch := watchProcess(int(cred.Pid), cancel); watch != nil {
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
		return nil // it is gone
	}
	return x.frames(ctx, r, in)
}

// frames reads and handles frames until the connection ends.
func (x *conn) frames(ctx context.Context, r io.Reader, in *inbox) error {
	buf := make([]byte, 64<<10)
	var slots []uint32
	for {
		t, p, err := protocol.ReadFrame(r, buf)
		if err != nil {
			if errors.Is(err, protocol.ErrProtocol) && ctx.Err() == nil {
				return err
			}
			return nil // the process is gone, or the daemon ends
		}
		if x.foreign != nil && t != protocol.Call {
			return x.foreign
		}
		switch t {
		case protocol.Ack:
			err = x.ack(p, &slots)
		case protocol.Wait:
			var generation uint64
			if generation, err = protocol.DecodeWait(p); err == nil && x.stage != nil &&
				x.stage.generation == generation {
				x.rank.Load().Wait()
			}
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
		default:
			err = fmt.Errorf("%w: frame of type %d after the first", protocol.ErrProtocol, t)
		}
		if err != nil {
			return err
		}
	}
}

// open makes or joins a job, beside the reader: a scan may take long.
func (x *conn) open(ctx context.Context, p []byte, in *inbox) error {
	var m protocol.OpenMessage
	if err := protocol.DecodeJSON(p, &m); err != nil {
		return err
	}
	if x.opens {
		return fmt.Errorf("%w: a second OPEN on one connection", protocol.ErrProtocol)
	}
	var view *dataset.View // nil: a kind of dataset that is no directory
	if m.Dataset.View {
		var err error
		if view, err = in.view(); err != nil {
			return err
		}
		view.Renew = x.renew
	}
	if m.Stream.Subset != nil || m.Stream.Given != nil {
		var err error
		if m.Stream.List, err = in.file(); err != nil {
			_ = view.Close()
			return err
		}
	}
	x.opens = true
	x.holds.Store(true)
	x.tasks.Go(func() {
		rank, err := x.d.cfg.Node.Open(ctx, openRequest(&m), view, x.progress())
		_ = view.Close()          // what needs it has descriptors of its own
		_ = m.Stream.List.Close() // it has been read
		if err != nil {
			if ctx.Err() == nil {
				x.log.Warn("job refused", "job", m.Job, "rank", m.Rank, "error", err)
			}
			x.holds.Store(false)
			_ = x.sendJSON(protocol.Error, explain(err))
			return
		}
		x.log.Info("rank joined", "job", m.Job, "rank", m.Rank, "world_size", m.WorldSize)
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
		if err := x.sendJSON(protocol.Opened, openedMessage(rank.Opened())); errors.Is(err,
			protocol.ErrProtocol) {
			_ = x.sendJSON(protocol.Error, explain(tooLong("the answer to OPEN", err)))
		}
	})
	return nil
}

// iterate begins a generation; the one before ends first.
func (x *conn) iterate(ctx context.Context, p []byte) error {
	m, err := protocol.DecodeIterate(p)
	if err != nil {
		return err
	}
	rank := x.rank.Load()
	if rank == nil {
		return fmt.Errorf("%w: ITERATE before a job is open", protocol.ErrProtocol)
	}
	x.stopStage()
	epoch, step := int(m.Epoch), int(m.Step)
	if err := rank.Check(epoch, step); err != nil {
		e := explain(err)
		e.Generation = m.Generation
		_ = x.sendJSON(protocol.Error, e)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &run{generation: m.Generation, cancel: cancel, done: make(chan struct{})}
	x.stage = s
	go func() { // owned by x: stopStage waits for it
		defer close(s.done)
		defer cancel()
		err := rank.Run(ctx, epoch, step, func(b *stage.Batch) error {
			return x.sendBatch(s.generation, b)
		})
		switch {
		case ctx.Err() != nil:
		case err == nil:
			_ = x.send(protocol.AppendEnd(nil, s.generation))
		default:
			e := explain(err)
			e.Generation = s.generation
			_ = x.sendJSON(protocol.Error, e)
		}
	}()
	return nil
}

// give takes the order of another epoch. It is read here, so that an ITERATE that follows finds it;
// it lies in memory. One that is wrong ends the generation, and its ERROR belongs to none, so that
// the process hears it even if it has asked for another.
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
		_ = x.sendJSON(protocol.Error, explain(err))
	}
	return nil
}

func (x *conn) stopStage() {
	if x.stage != nil {
		x.stage.cancel()
		<-x.stage.done
		x.stage = nil
	}
}

// ack takes slots back and notes a batch as yielded.
func (x *conn) ack(p []byte, slots *[]uint32) error {
	m, err := protocol.DecodeAck(p, (*slots)[:0])
	if err != nil {
		return err
	}
	*slots = m.Slots
	rank := x.rank.Load()
	if rank == nil {
		return fmt.Errorf("%w: ACK before a job is open", protocol.ErrProtocol)
	}
	for _, slot := range m.Slots {
		retired, err := rank.Return(slot)
		if err != nil {
			return fmt.Errorf("%w: %v", protocol.ErrProtocol, err)
		}
		if retired != 0 {
			// Not here: the stage may be blocked in a write until the process
			// reads, and the process in one until this goroutine does.
			x.tasks.Go(func() { _ = x.send(protocol.AppendDrop(nil, retired)) })
		}
	}
	if m.Epoch != protocol.NoBatch && x.stage != nil && m.Generation == x.stage.generation {
		rank.Yielded(int(m.Epoch), int(m.Step), stall(&m), m.Audit)
	}
	return nil
}
