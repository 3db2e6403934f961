package hub

import (
	"maps"
	"net"
	"slices"

	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// member returns p's description for the other nodes, with complete addresses.
func (h *Hub) member(p *participant) *pb.Member {
	host := h.host(p)
	return &pb.Member{
		Node: p.reg.GetNode(), Instance: p.reg.GetInstance(), Ranks: p.reg.GetRanks(),
		Payload:  p.reg.GetPayload(),
		Exchange: fillHost(p.reg.GetExchange(), host), Gossip: fillHost(p.reg.GetGossip(), host),
	}
}

// address returns a participant's address for messages. Node 0, which may listen on all its
// addresses, is shown under the one that the others dialed.
func (h *Hub) address(p *participant) string {
	if p.node() == 0 && len(h.participants) > 1 {
		return fillHost(p.seen, h.host(p))
	}
	return p.seen
}

// host returns the host for a participant's addresses that name none. For node 0 it is the address
// that the others dialed, preferably not a loopback address; likewise for a node that dialed node 0
// through loopback.
func (h *Hub) host(p *participant) string {
	if p.node() != 0 {
		host, _, _ := net.SplitHostPort(p.seen)
		if !isLoopback(host) {
			return host
		}
	}
	best := "127.0.0.1"
	for _, n := range slices.Sorted(maps.Keys(h.participants)) {
		host, _, _ := net.SplitHostPort(h.participants[n].local)
		if n != 0 && host != "" && (best == "127.0.0.1" || isLoopback(best)) {
			best = host
		}
	}
	if p.node() != 0 && isLoopback(best) { // all nodes are on one machine: use its source address
		if host, _, _ := net.SplitHostPort(p.seen); host != "" {
			return host
		}
	}
	return best
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func fillHost(address, host string) string {
	h, port, err := net.SplitHostPort(address)
	if err != nil || h != "" {
		return address
	}
	return net.JoinHostPort(host, port)
}
