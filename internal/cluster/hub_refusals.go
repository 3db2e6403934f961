package cluster

import (
	"net"
	"slices"

	pb "github.com/hdmlp/hdmlp/internal/cluster/clusterpb"
)

// reject keeps p out. While the cluster forms that ends the start for all, unless p belongs to
// another job.
func (h *hub) reject(p *participant, err error) {
	other, _ := err.(*JobError)
	if other != nil {
		other.Running = h.phase == running
	}
	_, late := err.(*LateError)
	if other != nil || late || h.phase == running {
		h.turnAway(p.seen, err)
		p.Send(&pb.Message{Kind: &pb.Message_Abort{Abort: encodeFailure(err)}})
		p.Close()
		return
	}
	h.fail(err)
	h.tell(p)
}

// note remembers who was refused, for who waits, and wonders.
func (h *hub) note(err error) {
	if what := err.Error(); len(h.refused) < mostRefused && !slices.Contains(h.refused, what) {
		h.refused = append(h.refused, what)
		h.status()
		if h.phase != running {
			h.notify(err)
		}
	}
}

// refuse is turnAway for who does not hold mu, of those that could not prove who they are. That
// stops nothing: any host can connect.
func (h *hub) refuse(address string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnAway(address, err)
}

// runs reports whether the job has begun.
func (h *hub) runs() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase == running
}

// turnAway is note for who may come again and again. It is said once per host, and of a few: nobody
// can fill the log.
func (h *hub) turnAway(address string, err error) {
	host, _, _ := net.SplitHostPort(address)
	if h.turned[host] || len(h.turned) == mostRefused {
		h.log.Debug("a connection was refused", "reason", err)
		return
	}
	h.turned[host] = true
	h.log.Warn("a connection was refused", "reason", err)
	h.note(err)
}

// expire: the deadline has come.
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
		if len(e.Missing) == 0 { // all came, and some never got ready
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

// fail ends the start: all who are there are told, and all who come later.
func (h *hub) fail(err error) {
	if h.phase == failed || h.phase == running {
		return
	}
	h.phase, h.failure = failed, err
	for _, p := range h.participants {
		h.tell(p)
	}
	for _, p := range h.contest {
		h.tell(p)
	}
}

// abort is fail for who does not hold mu.
func (h *hub) abort(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(err)
}

func (h *hub) tell(p *participant) {
	p.Send(&pb.Message{Kind: &pb.Message_Abort{Abort: encodeFailure(h.failure)}})
	p.Close()
	if n := p.node(); !h.told[n] && n < h.nodes() {
		h.told[n] = true
		if len(h.told) == h.nodes() {
			close(h.allTold)
		}
	}
}

// status tells all, not at once but soon, who is there.
func (h *hub) status() {
	if h.stale || h.phase != forming {
		return
	}
	h.stale = true
	h.after(statusPause, func() {
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
		h.all(&pb.Message{Kind: &pb.Message_Status{Status: s}}, nil)
	})
}
