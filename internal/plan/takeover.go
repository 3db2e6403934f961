package plan

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// TakeOver returns the plan to use while some nodes are unavailable. It is p itself if the
// unavailable nodes own no samples; otherwise their samples have other owners in it. available
// reports whether a node is available; nodes and size are what p was made from.
//
// A node that has a copy of the sample by p is the first choice. If there is none, and the plan is
// ReadOnce, a node with free capacity becomes the owner and keeps the sample. If there is no such
// node either, the sample has no owner and is read from the source: a remote read from a node that
// does not keep it saves nothing.
//
// Among the candidates, the one with the highest hash of node and sample is chosen (rendezvous
// hashing). So all nodes that see the same nodes agree without communication, load is balanced, and
// few samples move when another node fails. A node keeps what p assigns to it: classes only get
// longer, and p applies again when all nodes are back.
func (p *Plan) TakeOver(available func(node int) bool, nodes []Node,
	size func(id int) int64,
) *Plan {
	const none = -1
	var left []int // the available nodes
	gone := make([]bool, len(p.Nodes))
	for n := range p.Nodes {
		if gone[n] = !available(n); !gone[n] {
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
			owner[k] = none
		}
	}
	for _, n := range left {
		for _, class := range p.Nodes[n].Classes {
			for _, k := range class {
				if missed(int(k)) && (owner[k] == none ||
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
	free := make([][]int64, len(p.Nodes)) // capacity that p leaves, by node and class
	for _, n := range left {
		after.Nodes[n].Classes = slices.Clone(p.Nodes[n].Classes)
		free[n] = slices.Clone(nodes[n].Capacity)
		for j, class := range p.Nodes[n].Classes {
			after.Nodes[n].Classes[j] = slices.Clip(class) // do not append to p's own
			for _, k := range class {
				free[n][j] -= size(int(k))
			}
		}
	}
	for k := range owner {
		if owner[k] != none || !missed(k) {
			continue
		}
		need := size(k)
		best := none
		in := 0
		for _, n := range left {
			j := slices.IndexFunc(free[n], func(r int64) bool { return r >= need })
			if j >= 0 && (best == none || access.Mix(n, k) > access.Mix(best, k)) {
				best, in = n, j
			}
		}
		if best != none {
			owner[k] = int32(best)
			free[best][in] -= need
			class := &after.Nodes[best].Classes[in]
			*class = append(*class, int32(k))
		}
	}
	return &after
}
