package handover

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// mostRefused is how many hosts are logged whose connections were refused.
const mostRefused = 16

// Server is node 0's side: it answers the other nodes' questions until it is closed.
type Server struct {
	o       Options
	address net.Addr
	web     *session.Server
	ended   chan struct{} // closed when nothing is served any more

	mu      sync.Mutex // guards the following
	offers  map[Name]*Offer
	copies  uint64 // offered so far
	refused map[string]bool
}

// Listen begins to serve at the address. While its port is in use, it retries for some seconds.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	host, port, err := cluster.SplitAddress(o.Address)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", o.Address, err)
	}
	listener, err := cluster.Listen(ctx, o.Network, 0, "the index of a dataset", host, port)
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, address: listener.Addr(), ended: make(chan struct{}),
		offers: map[Name]*Offer{}, refused: map[string]bool{},
	}
	s.web = session.NewServer(session.ServerOptions{
		Nodes: o.Nodes, Instance: rand.Text(), Secret: o.Secret, TLS: o.TLS, Log: o.Log,
	}, s)
	go func() {
		defer close(s.ended)
		if err := s.web.Serve(listener); err != nil {
			o.Log.Error("the other nodes of the job get no indexes from this one, and make them "+
				"themselves", "error", err)
		}
	}()
	return s, nil
}

// Addr returns where the server listens.
func (s *Server) Addr() net.Addr { return s.address }

// Close ends all connections, and waits for them.
func (s *Server) Close() {
	s.web.Close()
	<-s.ended
}

// Offer is something that node 0 makes, or has.
type Offer struct {
	s *Server

	// Guarded by Server.mu.
	state   state
	content []byte
}

// Offer makes known that node 0 begins to make something, in that many steps. What was offered by
// this name before, and is ready, stays so until the new one is.
func (s *Server) Offer(name Name, steps int) *Offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.offers[name]
	if o == nil {
		o = &Offer{s: s}
		s.offers[name] = o
	}
	if o.state.Stage != ready {
		o.state = state{Stage: making, Of: steps}
	}
	return o
}

// Step notes that another step is done.
func (o *Offer) Step() {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.state.Done < o.state.Of {
		o.state.Done++
	}
}

// Ready makes content what other nodes get. It must not be changed any more.
func (o *Offer) Ready(content []byte) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.s.copies++
	o.content = content
	o.state = state{
		Stage: ready, Done: o.state.Of, Of: o.state.Of, Size: int64(len(content)), Copy: o.s.copies,
	}
}

// Failed notes that it could not be made. What was ready before stays so.
func (o *Offer) Failed(why error) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.state.Stage != ready {
		text := why.Error()
		o.state = state{Stage: failed, Why: text[:min(len(text), mostWhy)]}
	}
}

// Attend implements session.Handler.
func (s *Server) Attend(a *session.Accepted) {
	if err := s.differs(a.Register); err != nil {
		a.Send(&pb.Message{Kind: &pb.Message_Abort{Abort: session.EncodeFailure(err)}})
		a.Close()
	}
	a.Run(func(m *pb.Message) error {
		q := m.GetQuestion()
		if q == nil {
			return errQuestion
		}
		answer, err := s.answer(q.GetWhat())
		if err != nil {
			return err
		}
		a.Send(&pb.Message{Kind: &pb.Message_Answer{Answer: &pb.Answer{
			Round: q.GetId(), Data: answer, None: answer == nil,
		}}})
		return nil
	}, func() {})
}

// differs returns how another node differs from this one.
func (s *Server) differs(r *pb.Register) error {
	switch {
	case r.GetJob() != s.o.Launch:
		return fmt.Errorf("it is of another launch: %q, and not %q", s.o.Launch, r.GetJob())
	case int(r.GetNodes()) != s.o.Nodes, int(r.GetNode()) >= s.o.Nodes:
		return fmt.Errorf("there are %d nodes, and this is node %d of %d", s.o.Nodes, r.GetNode(),
			r.GetNodes())
	}
	return nil
}

// answer returns the answer to a question; nil: there is no such part any more.
func (s *Server) answer(what string) ([]byte, error) {
	q, err := parseQuestion(what)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, content := state{Stage: absent}, []byte(nil)
	if o := s.offers[q.name]; o != nil {
		now, content = o.state, o.content
	}
	if q.at < 0 {
		return json.Marshal(now)
	}
	if q.copy != now.Copy || q.at >= int64(len(content)) {
		return nil, nil
	}
	return content[q.at:min(q.at+cluster.MaxAnswer, int64(len(content)))], nil
}

// Refuse implements session.Handler.
func (s *Server) Refuse(address string, err error) {
	host, _, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		host = address
	}
	s.mu.Lock()
	known := s.refused[host] || len(s.refused) == mostRefused
	s.refused[host] = true
	s.mu.Unlock()
	if !known {
		s.o.Log.Warn("refused a connection that asked for an index; further ones from this host are "+
			"not logged", "from", address, "error", err)
	}
}

// Running implements session.Handler.
func (s *Server) Running() bool { return false }

var errReplaced = errors.New("node 0 has another one meanwhile")
