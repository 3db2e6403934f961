package builder

import "slices"

// fromClass and fromPeer return the seconds per MB of class j of the node itself and of another
// node, read with all threads of a node.
func (b *Builder) fromClass(j int) float64 { return 1 / b.in.Env.NodeRate(j) }

func (b *Builder) fromPeer(j int) float64 {
	return 1 / min(b.in.Env.PeerBandwidth, b.in.Env.NodeRate(j))
}

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
