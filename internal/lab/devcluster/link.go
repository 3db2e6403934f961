package devcluster

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// LinkState is the state of a link. The zero value is a link that is up, without limits.
type LinkState struct {
	Down  bool          // as if the cable were cut: packets are lost
	Rate  Rate          // in each direction
	Delay time.Duration // of each packet, in each direction; there are two links between two nodes
}

// check validates the state.
func (s LinkState) check() error { return errors.Join(checkRate(s.Rate), checkDelay(s.Delay)) }

// nodeEnd is the name of a link's end inside its node.
const nodeEnd = "eth0"

// Link is the veth pair that joins a node to the bridge. Its settings are kept only in the kernel,
// so that several processes can change them.
type Link struct {
	node         int
	bridge, home namespace
	err          error // why the node has no link
}

// bridgeEnd returns the name of the link's end at the bridge.
func (l Link) bridgeEnd() string { return fmt.Sprintf("node%d", l.node) }

// ends holds netlink handles for the link's two ends.
type ends struct {
	bridge, node *netlink.Handle
}

func (e ends) close() {
	for _, h := range []*netlink.Handle{e.bridge, e.node} {
		if h != nil {
			h.Close()
		}
	}
}

func (l Link) open() (e ends, err error) {
	if l.err != nil {
		return e, l.err
	}
	if e.bridge, err = handle(l.bridge); err == nil {
		e.node, err = handle(l.home)
	}
	if err != nil {
		e.close()
		return ends{}, fmt.Errorf("link of node %d: %w", l.node, err)
	}
	return e, nil
}

// handle opens a netlink socket in a namespace.
func handle(n namespace) (*netlink.Handle, error) {
	f, err := n.open("net")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, err := netlink.NewHandleAt(netns.NsHandle(f.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, kernelError("open a netlink socket in a node's namespace", "", err)
	}
	return h, nil
}

// Set changes the link. Packets in transit while limits change may be lost.
func (l Link) Set(s LinkState) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("link of node %d: %w", l.node, err)
	}
	e, err := l.open()
	if err != nil {
		return err
	}
	defer e.close()
	if err := l.set(e, s); err != nil {
		return fmt.Errorf("link of node %d: %w", l.node, err)
	}
	return nil
}

func (l Link) set(e ends, s LinkState) error {
	port, err := e.bridge.LinkByName(l.bridgeEnd())
	if err != nil {
		return fmt.Errorf("find %s: %w", l.bridgeEnd(), err)
	}
	inside, err := e.node.LinkByName(nodeEnd)
	if err != nil {
		return fmt.Errorf("find %s: %w", nodeEnd, err)
	}
	if s.Down { // first, so that nothing passes without limits
		if err := e.bridge.LinkSetDown(port); err != nil {
			return fmt.Errorf("set %s down: %w", l.bridgeEnd(), err)
		}
	}
	if err := limit(e.bridge, port, s); err != nil {
		return err
	}
	if err := limit(e.node, inside, s); err != nil {
		return err
	}
	if !s.Down {
		if err := e.bridge.LinkSetUp(port); err != nil {
			return fmt.Errorf("set %s up: %w", l.bridgeEnd(), err)
		}
	}
	return nil
}

// State returns the current state of the link.
func (l Link) State() (LinkState, error) {
	e, err := l.open()
	if err != nil {
		return LinkState{}, err
	}
	defer e.close()
	port, err := e.bridge.LinkByName(l.bridgeEnd())
	if err != nil {
		return LinkState{}, fmt.Errorf("link of node %d: find %s: %w", l.node, l.bridgeEnd(), err)
	}
	s := LinkState{Down: port.Attrs().Flags&net.FlagUp == 0}
	qdiscs, err := e.bridge.QdiscList(port)
	if err != nil {
		return LinkState{}, fmt.Errorf("link of node %d: list queueing disciplines: %w", l.node, err)
	}
	for _, q := range qdiscs {
		switch q := q.(type) {
		case *netlink.Tbf:
			s.Rate = Rate(q.Rate * 8)
		case *netlink.Netem:
			s.Delay = (time.Duration(q.Latency) * tick).Round(time.Microsecond)
		}
	}
	return s, nil
}

// tick is the unit of netem's delays in the kernel.
const tick = 64 * time.Nanosecond

// limit limits what leaves an interface: netem delays packets, followed by a token bucket that
// limits the rate; each may be absent.
func limit(h *netlink.Handle, link netlink.Link, s LinkState) error {
	name, index := link.Attrs().Name, link.Attrs().Index
	present, err := h.QdiscList(link)
	if err != nil {
		return fmt.Errorf("list queueing disciplines of %s: %w", name, err)
	}
	for _, q := range present {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Handle != 0 {
			if err := h.QdiscDel(q); err != nil {
				return fmt.Errorf("delete the limits of %s: %w", name, err)
			}
		}
	}
	parent := uint32(netlink.HANDLE_ROOT)
	if s.Delay > 0 {
		attrs := netlink.QdiscAttrs{
			LinkIndex: index, Parent: parent, Handle: netlink.MakeHandle(1, 0),
		}
		q := netlink.NewNetem(attrs,
			netlink.NetemQdiscAttrs{Latency: uint32(s.Delay.Microseconds()), Limit: netemPackets})
		if err := h.QdiscAdd(q); err != nil {
			return kernelError(fmt.Sprintf("delay %s by %v", name, s.Delay),
				"netem (module sch_netem, CONFIG_NET_SCH_NETEM), which delays need; try "+
					"`modprobe sch_netem`", err)
		}
		parent = netlink.MakeHandle(1, 1)
	}
	if s.Rate > 0 {
		attrs := netlink.QdiscAttrs{
			LinkIndex: index, Parent: parent, Handle: netlink.MakeHandle(2, 0),
		}
		if err := h.QdiscAdd(bucket(s.Rate, attrs)); err != nil {
			return kernelError(fmt.Sprintf("limit %s to %s", name, s.Rate),
				"tbf (module sch_tbf, CONFIG_NET_SCH_TBF), which rate limits need; try "+
					"`modprobe sch_tbf`", err)
		}
	}
	return nil
}

// netemPackets is the limit on delayed packets. 32 Gbit/s for a second would be more, but segments
// are coalesced, up to 64 KiB each.
const netemPackets = 100_000

// bucket returns a token bucket that holds 5 ms at the rate, so that a busy machine can keep up,
// and queues for another 50 ms.
func bucket(r Rate, attrs netlink.QdiscAttrs) *netlink.Tbf {
	bytes := uint64(r) / 8
	burst := max(bytes/200, 16<<10)
	return &netlink.Tbf{
		QdiscAttrs: attrs,
		Rate:       bytes,
		Limit:      uint32(burst + max(bytes/20, 128<<10)),
		Buffer:     netlink.Xmittime(bytes, uint32(burst)),
	}
}
