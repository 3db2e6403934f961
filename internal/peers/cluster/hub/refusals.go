package hub

import (
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// reject refuses p. While the cluster forms this fails the start on all nodes, unless p belongs to
// another job or is late.
func (h *Hub) reject(p *participant, err error) {
	other, _ := err.(*cluster.JobError)
	if other != nil {
		other.Running = h.phase == running
	}
	_, late := err.(*cluster.LateError)
	if other != nil || late || h.phase == running {
		h.rejectOnce(p.seen, err)
		p.Send(&pb.Message{Kind: &pb.Message_Abort{Abort: session.EncodeFailure(err)}})
		p.Close()
		return
	}
	h.fail(err)
	h.sendFailure(p)
}

// note records a refusal, which is reported to the nodes that wait for the cluster to form. The
// error may have texts of the other side, and messages only valid ones.
func (h *Hub) note(err error) {
	what := strings.ToValidUTF8(err.Error(), "?")
	if len(h.refused) < maxRefused && !slices.Contains(h.refused, what) {
		h.refused = append(h.refused, what)
		h.status()
		if h.phase != running {
			h.o.Refused(err)
		}
	}
}

// Refuse rejects an unauthenticated connection, which never fails the start: any host can connect.
// The caller must not hold mu.
func (h *Hub) Refuse(address string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rejectOnce(address, err)
}

// Running reports whether the job has begun.
func (h *Hub) Running() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase == running
}

// rejectOnce logs and notes a rejection at most once per host, and for a limited number of hosts,
// so that refused connections cannot fill the log. The caller holds mu.
func (h *Hub) rejectOnce(address string, err error) {
	host, _, _ := net.SplitHostPort(address)
	if h.loggedHosts[host] || len(h.loggedHosts) == maxRefused {
		h.o.Log.Debug("a connection was refused", "reason", err)
		return
	}
	h.loggedHosts[host] = true
	h.o.Log.Warn("a connection was refused", "reason", err)
	h.note(err)
}

// Expire fails the start: the deadline has passed.
func (h *Hub) Expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == forming || h.phase == welcoming {
		e := &cluster.MissingError{
			Nodes:   h.nodes(),
			Missing: h.missing(),
			Refused: h.refused,
			Waited:  h.o.Deadline,
		}
		for n := range h.nodes() {
			if p := h.participants[n]; p != nil {
				e.Present = append(e.Present, cluster.Present(n, h.address(p)))
			}
		}
		if len(e.Missing) == 0 { // all joined, but some never became ready
			for n, p := range h.participants {
				if !p.ready {
					e.Missing = append(e.Missing, n)
				}
			}
			slices.Sort(e.Missing)
		}
		h.fail(e)
	}
}

func (h *Hub) missing() (out []int) {
	for n := range h.nodes() {
		if h.participants[n] == nil {
			out = append(out, n)
		}
	}
	return out
}

// fail ends the start: all nodes that have joined are sent err, and so are all that join later.
func (h *Hub) fail(err error) {
	if h.phase == failed || h.phase == running {
		return
	}
	h.phase, h.failure = failed, err
	for _, p := range h.participants {
		h.sendFailure(p)
	}
	for _, p := range h.contest {
		h.sendFailure(p)
	}
}

// FailureSent returns a channel that is closed when all nodes were sent the failure.
func (h *Hub) FailureSent() <-chan struct{} { return h.allSent }

// Abort is fail for callers that do not hold mu.
func (h *Hub) Abort(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(err)
}

func (h *Hub) sendFailure(p *participant) {
	p.Send(&pb.Message{Kind: &pb.Message_Abort{Abort: session.EncodeFailure(h.failure)}})
	p.Close()
	if n := p.node(); !h.sent[n] && n < h.nodes() {
		h.sent[n] = true
		if len(h.sent) == h.nodes() {
			close(h.allSent)
		}
	}
}

// status schedules a status message to all participants.
func (h *Hub) status() {
	if h.stale || h.phase != forming {
		return
	}
	h.stale = true
	h.after(statusPause*time.Duration(1+h.nodes()/64), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.stale = false
		if h.phase != forming {
			return
		}
		s := &pb.Status{Refused: h.refused}
		for _, n := range h.missing() {
			s.Missing = append(s.Missing, uint32(n))
		}
		for n := range h.nodes() {
			if p := h.participants[n]; p != nil {
				s.Present = append(s.Present, &pb.Presence{Node: uint32(n), Address: h.address(p)})
			}
		}
		status := session.NewPack(&pb.Message{Kind: &pb.Message_Status{Status: s}})
		for _, n := range slices.Sorted(maps.Keys(h.participants)) {
			h.participants[n].SendPack(status)
		}
	})
}
