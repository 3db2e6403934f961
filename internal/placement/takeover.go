package placement

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/access"
)

// TakeOver returns the plan for as long as only some of the nodes are there: p itself if nobody is
// missing whom a sample needs, else one in which another node answers for each sample of those who
// are. nodes and size are what p was made from.
//
// A node whose classes have a copy by p is the first choice. For the others of a plan that reads
// once, a node is chosen that has room left, and it is to keep them there. Where nobody has, nobody
// answers for the sample: whoever needs it reads it from the source, since to ask somebody who does
// not keep it saves nothing.
//
// Among those who may, the highest hash of node and sample decides (rendezvous hashing). So all
// nodes that see the same ones agree without a word, load is spread evenly, and when one more goes
// few samples change hands. What p gives a node stays with it: classes only get longer, and p holds
// again when everybody is back.
func (p *Plan) TakeOver(there func(node int) bool, nodes []Node, size func(id int) int64) *Plan {
	const nobody = -1
	var left []int // the nodes that are there
	gone := make([]bool, len(p.Nodes))
	for n := range p.Nodes {
		if gone[n] = !there(n); !gone[n] {
			left = append(left, n)
		}
	}
	missed := func(k int) bool { return p.Owner[k] >= 0 && gone[p.Owner[k]] }
	if len(left) == len(p.Nodes) || p.Owner == nil {
		return p
	}

	owner := slices.Clone(p.Owner)
	for k := range owner {
		if missed(k) {
			owner[k] = nobody
		}
	}
	for _, n := range left {
		for _, class := range p.Nodes[n].Classes {
			for _, k := range class {
				if missed(int(k)) && (owner[k] == nobody ||
					access.Mix(n, int(k)) > access.Mix(int(owner[k]), int(k))) {
					owner[k] = int32(n)
				}
			}
		}
	}
	after := *p
	after.Owner = owner
	if !p.ReadOnce {
		return &after
	}

	after.Nodes = slices.Clone(p.Nodes)
	room := make([][]int64, len(p.Nodes)) // that p leaves, by class
	for _, n := range left {
		after.Nodes[n].Classes = slices.Clone(p.Nodes[n].Classes)
		room[n] = slices.Clone(nodes[n].Capacity)
		for j, class := range p.Nodes[n].Classes {
			after.Nodes[n].Classes[j] = slices.Clip(class) // p's own must not grow
			for _, k := range class {
				room[n][j] -= size(int(k))
			}
		}
	}
	for k := range owner {
		if owner[k] != nobody || !missed(k) {
			continue
		}
		need, best, in := size(k), nobody, 0
		for _, n := range left {
			j := slices.IndexFunc(room[n], func(r int64) bool { return r >= need })
			if j >= 0 && (best == nobody || access.Mix(n, k) > access.Mix(best, k)) {
				best, in = n, j
			}
		}
		if best != nobody {
			owner[k] = int32(best)
			room[best][in] -= need
			class := &after.Nodes[best].Classes[in]
			*class = append(*class, int32(k))
		}
	}
	return &after
}
