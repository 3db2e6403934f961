package placement

import (
	"cmp"
	"slices"
)

// sortClasses deals each node's copies out to its classes anew, where it has several: into the fastest what gains
// most per byte from lying there instead of in the slowest, by what the node itself reads and, if it answers for the sample, what
// the others read. What is held already stays where it is. Copies that no class takes any more, because the sizes
// fit together worse, are given up, but for a sample's first copy: then the node stays as it was.
func (b *builder) sortClasses(r *reads) {
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
	local := min(source, e.FetchLocal(1, last)) - min(source, e.FetchLocal(1, 1))
	peer := min(source, e.FetchPeer(1, last)) - min(source, e.FetchPeer(1, 1))

	type ranked struct {
		gain float32
		at   int32 // in b.copies
		k    int32
	}
	of := make([][]ranked, len(b.in.Nodes))
	own := make([]uint32, len(b.in.Nodes)) // all zero between samples
	r.each(func(k int32, by []nodeReads, total int) {
		for _, n := range by {
			own[n.node] = n.count
		}
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			n := int32(b.copies[c].node)
			gain := float64(own[n]) * local
			if b.owner[k] == n {
				gain += float64(total-int(own[n])) * peer
			}
			of[n] = append(of[n], ranked{float32(gain), c, k})
		}
		for _, n := range by {
			own[n.node] = 0
		}
	})
	for n, list := range of {
		if len(b.in.Nodes[n].Capacity) < 2 {
			continue
		}
		slices.SortFunc(list, func(x, y ranked) int { return cmp.Or(cmp.Compare(y.gain, x.gain), cmp.Compare(x.at, y.at)) })
		room := slices.Clone(b.in.Nodes[n].Capacity)[:len(b.room[n])]
		class := make([]uint8, len(list))
		fits := true
		for i, c := range list {
			size := b.in.Size(int(c.k))
			class[i] = maxClasses
			for j := range room {
				if size <= room[j] {
					class[i] = uint8(j)
					room[j] -= size
					break
				}
			}
			fits = fits && (class[i] < maxClasses || b.owner[c.k] != int32(n))
		}
		if !fits {
			continue
		}
		b.room[n] = room
		for i, c := range list {
			if class[i] == maxClasses {
				b.remove(c.k, c.at)
				continue
			}
			b.copies[c.at].class = class[i]
		}
	}
}

// remove takes a copy, not its owner's, off its sample's list.
func (b *builder) remove(k, copyAt int32) {
	at := &b.head[k]
	for *at != copyAt {
		at = &b.copies[*at].next
	}
	*at = b.copies[copyAt].next
	b.removed++
}
