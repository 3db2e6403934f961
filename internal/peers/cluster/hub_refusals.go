package cluster

import (
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// reject refuses p. While the cluster forms this fails the start on all nodes, unless p belongs to
// another job or is late.
func (h *hub) reject(p *participant, err error) {
	other, _ := err.(*JobError)
	if other != nil {
		other.Running = h.phase == running
	}
	_, late := err.(*LateError)
	if other != nil || late || h.phase == running {
		h.rejectOnce(p.seen, err)
		p.Send(&pb.Message{Kind: &pb.Message_Abort{Abort: encodeFailure(err)}})
		p.Close()
		return
	}
	h.fail(err)
	h.sendFailure(p)
}

// note records a refusal, which is reported to the nodes that wait for the cluster to form. The
// error may have texts of the other side, and messages only valid ones.
func (h *hub) note(err error) {
	what := strings.ToValidUTF8(err.Error(), "?")
	if len(h.refused) < maxRefused && !slices.Contains(h.refused, what) {
		h.refused = append(h.refused, what)
		h.status()
		if h.phase != running {
			h.notify(err)
		}
	}
}

// refuse rejects an unauthenticated connection, which never fails the start: any host can connect.
// The caller must not hold mu.
func (h *hub) refuse(address string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rejectOnce(address, err)
}

// runs reports whether the job has begun.
func (h *hub) runs() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase == running
}

// rejectOnce logs and notes a rejection at most once per host, and for a limited number of hosts,
// so that refused connections cannot fill the log. The caller holds mu.
func (h *hub) rejectOnce(address string, err error) {
	host, _, _ := net.SplitHostPort(address)
	if h.loggedHosts[host] || len(h.loggedHosts) == maxRefused {
		h.log.Debug("a connection was refused", "reason", err)
		return
	}
	h.loggedHosts[host] = true
	h.log.Warn("a connection was refused", "reason", err)
	h.note(err)
}

// expire fails the start: the deadline has passed.
func (h *hub) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == forming || h.phase == welcoming {
		e := &MissingError{
			Nodes:   h.nodes(),
			Missing: h.missing(),
			Refused: h.refused,
			Waited:  h.waited,
		}
		for n := range h.nodes() {
			if p := h.participants[n]; p != nil {
				e.Present = append(e.Present, present(n, h.address(p)))
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

func (h *hub) missing() (out []int) {
	for n := range h.nodes() {
		if h.participants[n] == nil {
			out = append(out, n)
		}
	}
	return out
}

// fail ends the start: all nodes that have joined are sent err, and so are all that join later.
func (h *hub) fail(err error) {
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

// abort is fail for callers that do not hold mu.
func (h *hub) abort(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(err)
}

func (h *hub) sendFailure(p *participant) {
	p.Send(&pb.Message{Kind: &pb.Message_Abort{Abort: encodeFailure(h.failure)}})
	p.Close()
	if n := p.node(); !h.told[n] && n < h.nodes() {
		h.told[n] = true
		if len(h.told) == h.nodes() {
			close(h.allTold)
		}
	}
}

// status schedules a status message to all participants.
func (h *hub) status() {
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
		s := &pb.Status{Missing: toUints(h.missing()), Refused: h.refused}
		for n := range h.nodes() {
			if p := h.participants[n]; p != nil {
				s.Present = append(s.Present, &pb.Presence{Node: uint32(n), Address: h.address(p)})
			}
		}
		status := newPack(&pb.Message{Kind: &pb.Message_Status{Status: s}})
		for _, n := range slices.Sorted(maps.Keys(h.participants)) {
			h.participants[n].SendPack(status)
		}
	})
}
