package devcluster

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// subnet chooses the nodes' network, 10.x.y.0/24, by the run's name. It skips networks of the
// machine: nodes cannot reach them, but equal addresses would make logs confusing.
func subnet(run string) netip.Prefix {
	var taken []*net.IPNet
	if addresses, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok {
				taken = append(taken, n)
			}
		}
	}
	h := fnv.New32a()
	h.Write([]byte(run))
	for at := h.Sum32(); ; at++ {
		ip := net.IPv4(10, byte(at>>8), byte(at), 0)
		free := true
		for _, n := range taken {
			ones, _ := n.Mask.Size()
			// If the machine has all of 10.0.0.0/8, nothing in it is free, and the overlap is
			// accepted.
			free = free && (ones < 9 || !n.Contains(ip))
		}
		if free {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte(ip.To4())), 24)
		}
	}
}

// makeBridge creates the bridge; it runs on the bridge's thread.
func makeBridge() error {
	if err := unshare(nil); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return kernelError("create a bridge",
			"bridges (module bridge, CONFIG_BRIDGE); try `modprobe bridge`", err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set the bridge up: %w", err)
	}
	return nil
}

// plug creates a node's link and joins it to the bridge; it runs on the bridge's thread.
func plug(l Link, tid int) error {
	bridge, err := netlink.LinkByName("bridge")
	if err != nil {
		return fmt.Errorf("find the bridge: %w", err)
	}
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: l.bridgeEnd(), MasterIndex: bridge.Attrs().Index},
		PeerName:  nodeEnd, PeerNamespace: netlink.NsPid(tid),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return kernelError("create a link",
			"veth pairs (module veth, CONFIG_VETH); try `modprobe veth`", err)
	}
	return nil
}

// address assigns an address to the node's end of its link; it runs on the node's thread.
func address(a netip.Addr, bits int) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	end, err := netlink.LinkByName(nodeEnd)
	if err != nil {
		return fmt.Errorf("find %s: %w", nodeEnd, err)
	}
	network := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, 32)}
	if err := netlink.AddrAdd(end, &netlink.Addr{IPNet: network}); err != nil {
		return fmt.Errorf("assign the address %s to %s: %w", a, nodeEnd, err)
	}
	if err := netlink.LinkSetUp(end); err != nil {
		return fmt.Errorf("set %s up: %w", nodeEnd, err)
	}
	return nil
}
