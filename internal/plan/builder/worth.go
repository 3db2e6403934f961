package builder

import (
	"math"
	"slices"
)

// fromClass and fromPeer return the seconds per MB of class j of the node itself and of another
// node, read with all threads of a node.
func (b *Builder) fromClass(j int) float64 { return 1 / b.in.Env.NodeRate(j) }

func (b *Builder) fromPeer(j int) float64 {
	return 1 / min(b.in.Env.PeerBandwidth, b.in.Env.NodeRate(j))
}

// LimitSlowClasses limits what classes hold that are slower than the source, which they would spare
// (its share per node, while all nodes read). Reads from such a class and from the source take
// place at the same time; a class gets what it serves in the time of an epoch, in which the
// training or all tiers together, whichever is slower, deliver the node's part of the dataset. With
// rates r of the class and b of the source that is the share r/(r+b). What the class already holds
// stays. However slow the class is by the environment, it may hold some samples: only reads of
// these can tell that it is not.
func (b *Builder) LimitSlowClasses() {
	e := b.in.Env
	if e == nil {
		return
	}
	mean := float64(b.bytes) / float64(max(len(b.head), 1)) / 1e6
	source := e.NodeSourceRate(len(b.in.Nodes), mean)
	part := float64(b.bytes) / 1e6 / float64(len(b.in.Nodes)) // of an epoch that a node reads, MB
	for n, node := range b.in.Nodes {
		rest := part
		together := source
		classes := min(len(b.room[n]), len(e.Classes)-1)
		b.withheld[n] = make([]int64, len(b.room[n]))
		for j := range classes {
			if rate := e.NodeRate(j + 1); rate < source {
				together += rate
			} else {
				rest -= float64(node.Capacity[j]) / 1e6
			}
		}
		seconds := max(part/e.Compute, rest/together, 0)
		for j := range classes {
			if rate := e.NodeRate(j + 1); rate < source {
				held := node.Capacity[j] - b.room[n][j]
				share := max(rate*seconds, probes*mean) * 1e6
				room := min(b.room[n][j], max(int64(math.Ceil(share))-held, 0))
				b.withheld[n][j], b.room[n][j] = b.room[n][j]-room, room
			}
		}
	}
	b.open = newRoomiest(b)
}

// probes is how many samples of mean size a class may hold at least.
const probes = 4

// benefitPerByte returns the seconds that the first copy of a sample saves per MB (thesis equation
// 3.13). All nodes together read it total times, the node with the copy own times of these.
func (b *Builder) benefitPerByte(size int64, total, own int) float32 {
	source := b.source
	if b.latency > 0 {
		source += b.latency / (float64(size) / 1e6)
	}
	return float32(float64(total)*max(0, source-b.peer) + float64(own)*max(0, b.peer-b.local))
}

// NetworkIsSlow reports whether reading from a peer instead of the source saves less than reading
// from the node's own class instead of a peer's. If so, copies for the node itself may be worth
// more than first copies for other nodes.
func (b *Builder) NetworkIsSlow() bool { return b.source-b.peer < b.peer-b.local }

// FillTime returns the time that all nodes together take to read from the source what they hold,
// and do not read first in the first epoch themselves: a read of its own, in seconds.
func (b *Builder) FillTime() float64 {
	const all = -2
	reader := slices.Repeat([]int32{-1}, len(b.head))
	for ids, nodes := range b.steps(b.in.Stream.Epoch(b.in.From)) {
		for i, k := range ids {
			if reader[k] >= 0 {
				continue
			}
			if reader[k] = all; nodes != nil {
				reader[k] = int32(nodes[i])
			}
		}
	}
	sum := 0.0
	for i := range b.copies {
		c := &b.copies[i]
		if n := reader[c.k]; c.first != held && n != all && n != int32(c.node) {
			sum += float64(b.in.Size(int(c.k))) / 1e6 * b.source
		}
	}
	return sum
}

// FetchTime returns the sum of thesis equation 3.13 over all nodes, in seconds.
func (b *Builder) FetchTime(r *Reads) float64 {
	e := b.in.Env
	source := 1 / e.SourceRate(len(b.in.Nodes))
	local := make([]float64, len(e.Classes))
	for j := 1; j < len(local); j++ {
		local[j] = b.fromClass(j)
	}
	// time per MB of the current sample from the node's own class; 0 if it does not hold it
	own := make([]float64, len(b.in.Nodes))
	sum := 0.0
	r.each(nil, func(k int32, row *row) {
		anyNode := source
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			j := int(b.copies[c].class) + 1
			own[b.copies[c].node] = local[j]
			anyNode = min(anyNode, b.fromPeer(j))
		}
		for _, n := range row.by {
			at := anyNode
			if t := own[n.node]; t > 0 {
				at = min(at, t)
			}
			sum += float64(row.count[n.node]) * at * float64(b.in.Size(int(k))) / 1e6
		}
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			own[b.copies[c].node] = 0
		}
	})
	return sum
}
