package builder

import "slices"

// SortClasses redistributes each node's copies over its classes, if it has several: the fastest
// class gets the samples that gain most per byte compared with the slowest, counting the node's own
// reads and, if it owns the sample, those of other nodes. Samples that a class already holds stay
// there. Copies that no longer fit, because the sizes pack less well, are dropped, unless one is a
// sample's first copy: then the node is left as it was.
func (b *Builder) SortClasses(r *Reads) {
	classes := 0
	for _, node := range b.in.Nodes {
		if len(node.Capacity) > 1 {
			classes = max(classes, len(node.Capacity))
		}
		if slices.ContainsFunc(node.Held, func(ids []int32) bool { return len(ids) > 0 }) {
			return
		}
	}
	e := b.in.Env
	if classes < 2 || e == nil || len(e.Classes) <= classes {
		return
	}
	source := 1 / e.SourceRate(len(b.in.Nodes))
	last := len(e.Classes) - 1
	local := min(source, b.fromClass(last)) - min(source, b.fromClass(1))
	peer := min(source, b.fromPeer(last)) - min(source, b.fromPeer(1))

	gain := make([]float32, len(b.copies))
	r.eachAtOnce(func(k int32, row *row) {
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			n := b.copies[c].node
			own := float64(row.count[n]) * local
			if b.owner[k] == int32(n) {
				own += float64(row.total-int(row.count[n])) * peer
			}
			gain[c] = float32(own)
		}
	})
	// per node its copies as keys: the gain, largest first, above the index in b.copies
	of := make([][]uint64, len(b.in.Nodes))
	count := make([]int, len(of))
	for i := range b.copies {
		count[b.copies[i].node]++
	}
	for n := range of {
		of[n] = make([]uint64, 0, count[n])
	}
	for at := range b.copies {
		n := b.copies[at].node
		of[n] = append(of[n], uint64(^ascending(gain[at]))<<32|uint64(at))
	}
	for n, list := range of {
		if len(b.in.Nodes[n].Capacity) < 2 {
			continue
		}
		sortKeys(list)
		room := slices.Clone(b.room[n]) // if none of the copies were there
		for _, key := range list {
			c := &b.copies[uint32(key)]
			room[c.class] += b.in.Size(int(c.k))
		}
		class := make([]uint8, len(list))
		fits := true
		for i, key := range list {
			c := &b.copies[uint32(key)]
			size := b.in.Size(int(c.k))
			class[i] = noClass
			for j := range room {
				if size <= room[j] {
					class[i] = uint8(j)
					room[j] -= size
					break
				}
			}
			fits = fits && (class[i] < noClass || b.owner[c.k] != int32(n))
		}
		if !fits {
			continue
		}
		b.room[n] = room
		for i, key := range list {
			at := int32(uint32(key))
			if class[i] == noClass {
				b.remove(at)
			}
			b.copies[at].class = class[i]
		}
	}
}

// remove removes a copy, which must not be its owner's, from its sample's list.
func (b *Builder) remove(copyAt int32) {
	at := &b.head[b.copies[copyAt].k]
	for *at != copyAt {
		at = &b.copies[*at].next
	}
	*at = b.copies[copyAt].next
}
