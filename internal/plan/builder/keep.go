package builder

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// NewWindow is New for the epochs of a window. Nodes own the samples that they already hold.
func NewWindow(in *plan.Input, window plan.BootstrapWindow) (*Builder, error) {
	steps := in.Stream.Steps()
	if window.Epoch < 0 || window.Step < 0 || window.Step > steps || window.Steps < 0 ||
		window.Steps > steps {
		return nil, fmt.Errorf("plan: a window of %d steps from step %d of epoch %d; an "+
			"epoch has %d", window.Steps, window.Step, window.Epoch, steps)
	}
	in.From = window.Epoch
	b, err := New(in)
	if err != nil {
		return nil, err
	}
	b.OwnHeld()
	return b, nil
}

// OwnHeld makes nodes the owners of the samples that they already hold; of several, the first.
func (b *Builder) OwnHeld() {
	for i := range b.copies {
		if c := &b.copies[i]; b.owner[c.k] < 0 {
			b.owner[c.k] = int32(c.node)
		}
	}
}

// KeepFirst assigns to each node the samples that it is the first to read in the window and that no
// node holds, as far as they fit. If elsewhere is true, the others go to the node with the most
// free capacity. If all nodes read everything, they take turns.
func (b *Builder) KeepFirst(window plan.BootstrapWindow, elsewhere bool) {
	b.expect(len(b.head))
	b.walk(window, func(_ int, ids []int32, nodes []uint16) bool {
		for i, k := range ids {
			if b.owner[k] >= 0 {
				continue
			}
			node := int(k) % len(b.in.Nodes)
			if nodes != nil {
				node = int(nodes[i])
			}
			if !b.keep(node, AllClasses, k, 0) && elsewhere {
				b.keep(b.open.node(), AllClasses, k, 0)
			}
		}
		return b.open.most() >= b.least
	})
}

// walk calls f for the steps of a window within the horizon until f returns false. nodes has the
// reader of each sample; nil if every node reads all.
func (b *Builder) walk(window plan.BootstrapWindow,
	f func(epoch int, ids []int32, nodes []uint16) bool,
) {
	var epoch *access.Epoch
	step, left := window.Step, window.Steps
	for e := window.Epoch; left > 0 && e < b.to && b.in.Ended() == nil; e++ {
		epoch = b.in.Stream.EpochInto(epoch, e)
		for ids, nodes := range b.stepsFrom(epoch, step) {
			if left--; !f(e, ids, nodes) || left == 0 {
				return
			}
		}
		step = 0
	}
}

// Keep adds a copy of sample k in the first class of the node in which it fits, unless the node
// already has one, and makes the node the owner of k if it has none. It reports whether the node
// has a copy.
func (b *Builder) Keep(node, k int) bool {
	return b.has(node, int32(k)) || b.keep(node, AllClasses, int32(k), unknown)
}

// keep adds the first copy of k in the first of the node's first `classes` classes in which it
// fits, and reports whether it fits.
func (b *Builder) keep(node, classes int, k, first int32) bool {
	size := b.in.Size(int(k))
	for j := range b.room[node][:min(classes, len(b.room[node]))] {
		if size <= b.room[node][j] {
			b.add(node, j, k, size, first)
			if b.owner[k] < 0 {
				b.owner[k] = int32(node)
			}
			return true
		}
	}
	return false
}

// KeepFirstEpoch assigns to each node the samples that it is the first to read in the first epoch,
// as far as they fit.
func (b *Builder) KeepFirstEpoch(classes int) {
	b.expect(len(b.head))
	for ids, nodes := range b.steps(b.in.Stream.Epoch(b.in.From)) {
		for i, k := range ids {
			readers := b.nodeOf // all nodes
			if nodes != nil {
				readers = []int32{int32(nodes[i])}
			}
			for _, node := range readers {
				if b.owner[k] < 0 {
					b.keep(int(node), classes, k, 0)
				}
			}
		}
	}
}

// KeepLater fills the remaining capacity with samples that no epoch given so far reads, by ID: a
// later epoch may. The node that will read them is not known, so each goes to the node with the
// most free capacity.
func (b *Builder) KeepLater() {
	if !b.in.Given() {
		return
	}
	for k := 0; k < len(b.head) && b.open.most() >= b.least; k++ {
		if size := b.in.Size(k); b.head[k] < 0 && size <= b.open.most() {
			b.keep(b.open.node(), AllClasses, int32(k), never)
		}
	}
}

// KeepLaterAlone is KeepLater for plans without remote reads: each node may keep any of these
// samples.
func (b *Builder) KeepLaterAlone() {
	if !b.in.Given() {
		return
	}
	for n := range b.in.Nodes {
		for k := 0; k < len(b.head) && !b.fullUp(n); k++ {
			if size := b.in.Size(k); size <= b.open.room(n) && !b.has(n, int32(k)) {
				b.keep(n, AllClasses, int32(k), never)
			}
		}
	}
}

// KeepAsRead assigns to nodes what they read in the window, in that order, until they are full.
func (b *Builder) KeepAsRead(window plan.BootstrapWindow) {
	b.expect(window.Steps * len(b.full.position))
	b.walk(window, func(epoch int, ids []int32, nodes []uint16) bool {
		for i, k := range ids {
			size := b.in.Size(int(k))
			if nodes != nil {
				b.keepRead(int32(nodes[i]), k, size, epoch)
				continue
			}
			for _, n := range b.nodeOf {
				b.keepRead(n, k, size, epoch)
			}
		}
		return b.open.most() >= b.least
	})
}

// From returns the window from an epoch to the horizon.
func (b *Builder) From(epoch int) plan.BootstrapWindow {
	return plan.BootstrapWindow{Epoch: epoch, Steps: b.in.Stream.Steps() * (b.to - epoch)}
}

// keepRead adds a copy of a sample that the node reads in the epoch, if it fits and the node has
// none.
func (b *Builder) keepRead(node, k int32, size int64, epoch int) {
	if size <= b.open.room(int(node)) && !b.has(int(node), k) {
		b.keep(int(node), AllClasses, k, int32(epoch-b.in.From))
	}
}

// Nothing returns a plan without copies.
func Nothing(policy string, prefetch bool, in plan.Input) (*plan.Plan, error) {
	if _, _, err := in.Check(); err != nil {
		return nil, err
	}
	p := &plan.Plan{
		Policy:   policy,
		Prefetch: prefetch,
		Nodes:    make([]plan.NodePlan, len(in.Nodes)),
	}
	for n := range p.Nodes {
		p.Nodes[n].Classes = make([][]int32, len(in.Nodes[n].Capacity))
	}
	return p, nil
}
