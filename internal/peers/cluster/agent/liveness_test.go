package agent

import (
	"slices"
	"testing"
)

// TestFewNodesLookForALostOneAtATime: in each round some do, for each lost node and about as many;
// and each node comes to look for each.
func TestFewNodesLookForALostOneAtATime(t *testing.T) {
	for _, nodes := range []int{2, 3, 8, 9, 64, 250} {
		for _, lost := range []int{1, 2, 3, nodes / 2, nodes - 1} {
			if lost < 1 || lost >= nodes {
				continue
			}
			found := map[[2]int]bool{}
			for round := range nodes {
				look := make([]int, lost)
				for node := range nodes {
					if n, looks := looksFor(nodes, node, lost, round); looks {
						look[n]++
						found[[2]int{node, n}] = true
					}
				}
				if least := min(nodes/lost, seekers); slices.Min(look) < least ||
					slices.Max(look) > 2*seekers {
					t.Fatalf("%d nodes, %d lost, round %d: %d to %d nodes look for one", nodes, lost,
						round, slices.Min(look), slices.Max(look))
				}
			}
			if len(found) < nodes*lost && lost < 4 {
				t.Errorf("%d nodes, %d lost: only %d pairs found", nodes, lost, len(found))
			}
		}
	}
}
