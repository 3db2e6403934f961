package handover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

const (
	firstPause = 50 * time.Millisecond // between attempts to dial node 0
	lastPause  = time.Second
	// answerTime is how long node 0 may take to answer a question, with a part.
	answerTime = 30 * time.Second
	// askEvery is how often a node asks how far node 0 is; askEach is added for each node of the job,
	// so that node 0 has at most 250 questions per second.
	askEvery = 200 * time.Millisecond
	askEach  = 4 * time.Millisecond
)

// Wanted is what a node asks of node 0.
type Wanted struct {
	Name Name
	// Come is how long node 0 may take until it can be reached and has begun to make the thing, and
	// Stall how long it may be without progress after that.
	Come, Stall time.Duration
	// Progress, if not nil, is called at first and when something has changed: that many of the steps
	// are done. of is 0 until node 0 has begun.
	Progress func(done, of int)
}

// Content is what node 0 has made, to be read once. Reads end with an error if node 0 does not
// answer. It must be closed.
type Content struct {
	c    *client
	name Name
	size int64
	copy uint64
	at   int64  // of the next part
	part []byte // what is left of the last one
}

// Receive waits until node 0 has made something, and returns it. The context is that of the
// content, too.
func Receive(ctx context.Context, o Options, w Wanted) (*Content, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if w.Progress == nil {
		w.Progress = func(int, int) {}
	}
	w.Progress(0, 0)
	come := time.Now().Add(w.Come)
	c, err := dial(ctx, o, come)
	if err != nil {
		return nil, err
	}
	s, err := c.await(ctx, w, come, askEvery+time.Duration(o.Nodes)*askEach)
	if err != nil {
		c.close()
		return nil, err
	}
	return &Content{c: c, name: w.Name, size: s.Size, copy: s.Copy}, nil
}

// await waits until node 0 has made what is wanted.
func (c *client) await(ctx context.Context, w Wanted, come time.Time, pause time.Duration,
) (state, error) {
	last := state{Stage: absent}
	until := come
	for {
		text, err := c.ask(ctx, question{name: w.Name, at: -1})
		if err != nil {
			return last, err
		}
		s, err := decodeState(text)
		switch {
		case err != nil:
			return last, fmt.Errorf("node 0 sent %w", err)
		case s.Stage == failed:
			return last, fmt.Errorf("node 0 could not make it: %s", s.Why)
		case s.Stage == ready:
			return s, nil
		}
		if s != last {
			if until = time.Now().Add(w.Stall); s.Stage == absent {
				until = come
			}
			last = s
			w.Progress(s.Done, s.Of)
		}
		if time.Now().After(until) {
			if s.Stage == absent {
				return last, fmt.Errorf("node 0 has not begun to make it within %v", w.Come)
			}
			return last, fmt.Errorf("node 0 has made no progress for %v, at %d of %d", w.Stall, s.Done,
				s.Of)
		}
		select {
		case <-time.After(pause):
		case <-c.over:
			return last, c.lost()
		case <-ctx.Done():
			return last, ctx.Err()
		}
	}
}

// Size returns the number of bytes.
func (x *Content) Size() int64 { return x.size }

// Read implements io.Reader.
func (x *Content) Read(b []byte) (int, error) {
	if len(x.part) == 0 {
		if x.at == x.size {
			return 0, io.EOF
		}
		part, err := x.c.ask(x.c.ctx, question{name: x.name, copy: x.copy, at: x.at})
		switch {
		case err != nil:
			return 0, err
		case len(part) == 0:
			return 0, errReplaced
		case int64(len(part)) > x.size-x.at:
			return 0, fmt.Errorf("node 0 sent %d bytes, where %d are left", len(part), x.size-x.at)
		}
		x.part = part
		x.at += int64(len(part))
	}
	n := copy(b, x.part)
	x.part = x.part[n:]
	return n, nil
}

// Close ends the connection.
func (x *Content) Close() error {
	x.c.close()
	return nil
}

// client is a connection to node 0. One question is asked at a time.
type client struct {
	*session.Client
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	asked   uint64
	answers chan *pb.Answer
	over    chan struct{} // closed when the connection has ended
	err     error         // why; set before over is closed
}

// dial connects to node 0, which may not listen yet, until the time is up. Another launch may still
// have the port, so that being refused is no reason to give up either.
func dial(ctx context.Context, o Options, until time.Time) (*client, error) {
	for pauses := (auth.Backoff{First: firstPause, Last: lastPause}); ; {
		c, err := connect(ctx, o)
		if err == nil {
			return c, nil
		}
		var insecure *cluster.TLSError
		var version *cluster.VersionError
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &insecure), errors.As(err, &version):
			return nil, err
		case time.Now().After(until):
			return nil, fmt.Errorf("node 0 (%s): %w", o.Address, err)
		}
		select {
		case <-time.After(pauses.Next()):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// connect makes one attempt.
func connect(ctx context.Context, o Options) (*client, error) {
	ctx, cancel := context.WithCancel(ctx)
	d, err := session.Dial(ctx, session.ClientOptions{
		Node: o.Node, Join: o.Address, Network: cluster.OrSystem(o.Network), Secret: o.Secret,
		TLS: o.TLS,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	d.Send(&pb.Message{Kind: &pb.Message_Register{Register: &pb.Register{
		Job: o.Launch, Node: uint32(o.Node), Nodes: uint32(o.Nodes), Instance: rand.Text(),
	}}})
	c := &client{
		Client: d, ctx: ctx, cancel: cancel, answers: make(chan *pb.Answer, 1),
		over: make(chan struct{}),
	}
	go func() { // ends with close
		defer close(c.over)
		c.err = d.Run(c.handle, func() {})
	}()
	// Whether node 0 is of the same launch shows in its first answer.
	if _, err := c.ask(ctx, question{at: -1}); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *client) handle(m *pb.Message) error {
	if f := m.GetAbort(); f != nil {
		return session.DecodeFailure(f)
	}
	a := m.GetAnswer()
	if a == nil {
		return errors.New("it sent something else than an answer")
	}
	select {
	case c.answers <- a:
		return nil
	default:
		return errors.New("it answered more than was asked")
	}
}

// ask returns node 0's answer to a question; nil: it has none.
func (c *client) ask(ctx context.Context, q question) ([]byte, error) {
	c.asked++
	c.Send(&pb.Message{Kind: &pb.Message_Question{Question: &pb.Question{
		Id: c.asked, What: q.String(), WithinMs: uint32(answerTime.Milliseconds()),
	}}})
	late := time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case a := <-c.answers:
		if a.GetRound() != c.asked || len(a.GetData()) > cluster.MaxAnswer {
			return nil, errors.New("node 0 answered something else than was asked")
		}
		return a.GetData(), nil
	case <-c.over:
		return nil, c.lost()
	case <-late.C:
		return nil, fmt.Errorf("node 0 has not answered for %v", answerTime)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lost returns why the connection ended. A context that ends does that, too, and may be seen later
// than the end of the connection: the stream carries the deadline, and node 0 may end it first.
func (c *client) lost() error {
	if d, ok := c.ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if remote := (*cluster.RemoteError)(nil); errors.As(c.err, &remote) {
		return remote
	}
	return fmt.Errorf("the connection to node 0 ended: %w", c.err)
}

// close ends the connection, and waits for it.
func (c *client) close() {
	c.cancel()
	<-c.over
}
