package exchange

import (
	"maps"
	"slices"
	"time"
)

// ClientStats is a snapshot of a Client's counters.
type ClientStats struct {
	Peer        int
	Samples     int64         // received intact
	Bytes       int64         // of these samples
	Failed      int64         // calls of Fetch that returned an error, a context's included
	Connected   int           // open connections
	Connections int64         // connections made so far
	InFlight    int           // requests without an answer
	Latency     time.Duration // from request to answer: a moving average
	Err         error         // of the last connection that was lost or failed; nil if none was
}

// Stats returns a snapshot of the counters.
func (c *Client) Stats() ClientStats {
	s := ClientStats{
		Peer:    c.peer,
		Samples: c.counts.Samples.Load(),
		Bytes:   c.counts.Bytes.Load(),
		Failed:  c.failed.Load(),
	}
	links := *c.links.Load()
	s.Connected = len(links)
	for _, l := range links {
		s.InFlight += l.InFlight()
		s.Latency += l.Latency() / time.Duration(len(links))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Connections, s.Err = c.mu.made, c.mu.err
	return s
}

// PeerStats is a snapshot of a Server's counters for one node.
type PeerStats struct {
	Node        int
	Samples     int64         // sent
	Bytes       int64         // of these samples
	Failures    int64         // requests answered with a failure
	Connections int           // open connections
	InFlight    int           // requests without an answer
	Latency     time.Duration // from request to answer: a moving average
}

// ServerStats is a snapshot of a Server's counters.
type ServerStats struct {
	Peers   []PeerStats // by node; those that ever connected
	Refused int64       // connections that failed the handshake
	Reading int         // calls of Holder.Sample that have not called send yet
}

// Stats returns a snapshot of the counters.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := ServerStats{Refused: s.mu.refused, Reading: s.mu.reading}
	nodes := maps.Clone(s.mu.past)
	for c := range s.mu.serving {
		c.mu.Lock()
		n := nodes[c.node]
		n.Connections++
		n.InFlight += c.mu.inFlight
		n.add(c.mu.stats)
		nodes[c.node] = n
		c.mu.Unlock()
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[node]
		n.Node = node
		out.Peers = append(out.Peers, n)
	}
	return out
}

// add adds the counters of one connection.
func (n *PeerStats) add(o PeerStats) {
	n.Samples += o.Samples
	n.Bytes += o.Bytes
	n.Failures += o.Failures
	if o.Latency > 0 {
		n.Latency = o.Latency
	}
}
