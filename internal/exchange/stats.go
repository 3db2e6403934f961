package exchange

import (
	"maps"
	"slices"
	"time"
)

// ClientStats is what a Client has done, as of now.
type ClientStats struct {
	Peer        int
	Samples     int64         // that came whole
	Bytes       int64         // of these
	Failed      int64         // calls of Fetch that ended in an error, contexts' included
	Connected   int           // connections that are up
	Connections int64         // made so far
	InFlight    int           // requests without an answer
	Latency     time.Duration // from request to answer: a moving average
	Err         error         // why the last connection was lost or not made; nil: none was
}

// Stats returns a snapshot.
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

// PeerStats is what a Server has done for one node.
type PeerStats struct {
	Node        int
	Samples     int64         // sent
	Bytes       int64         // of these
	Failures    int64         // requests answered otherwise
	Connections int           // that are up
	InFlight    int           // requests without an answer
	Latency     time.Duration // from request to answer: a moving average
}

// ServerStats is what a Server has done, as of now.
type ServerStats struct {
	Peers   []PeerStats // by node; those that were ever connected
	Refused int64       // connections that did not pass the handshake
	Reading int         // calls of Holder.Sample that have nothing to send yet
}

// Stats returns a snapshot.
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

// add adds what one connection did.
func (n *PeerStats) add(o PeerStats) {
	n.Samples += o.Samples
	n.Bytes += o.Bytes
	n.Failures += o.Failures
	if o.Latency > 0 {
		n.Latency = o.Latency
	}
}
