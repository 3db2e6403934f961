package cluster

import (
	"maps"
	"net"
	"slices"

	pb "github.com/hdmlp/hdmlp/internal/cluster/clusterpb"
)

// member describes a participant to the others, its addresses complete.
func (h *hub) member(p *participant) *pb.Member {
	host := h.host(p)
	return &pb.Member{
		Node: p.reg.GetNode(), Instance: p.reg.GetInstance(), Ranks: p.reg.GetRanks(),
		Payload:  p.reg.GetPayload(),
		Exchange: fillHost(p.reg.GetExchange(), host), Gossip: fillHost(p.reg.GetGossip(), host),
	}
}

// address is where a participant is, for people. Node 0, which listens at all its addresses, is
// where the others reached it.
func (h *hub) address(p *participant) string {
	if p.node() == 0 && len(h.participants) > 1 {
		return fillHost(p.seen, h.host(p))
	}
	return p.seen
}

// host is the address of a node that names none. Node 0's is where the others reached it, a
// loopback address only where there is no other; so is that of who reached it through loopback.
func (h *hub) host(p *participant) string {
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
	if p.node() != 0 && isLoopback(best) { // all on one machine: the address it came from
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
