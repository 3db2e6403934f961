package policies_test

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// The plan of a policy for two nodes, each of which has room for four samples of 100 bytes.
func ExampleByName() {
	stream, err := access.New(access.Spec{
		Samples: 8, Seed: 1, Epochs: 2, WorldSize: 2, GlobalBatch: 4,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := policies.ByName("partitioned")
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := policy.Plan(plan.Input{
		Stream: stream,
		Nodes: []plan.Node{
			{Ranks: []int{0}, Capacity: []int64{400}},
			{Ranks: []int{1}, Capacity: []int64{400}},
		},
		Size: func(int) int64 { return 100 },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for n, node := range plan.Nodes {
		fmt.Printf("node %d caches, in this order, %v\n", n, node.Classes[0])
	}
	fmt.Println("sample 6 is owned by node", plan.OwnerOf(6))
	// Output:
	// node 0 caches, in this order, [5 2 7 1]
	// node 1 caches, in this order, [4 6 3 0]
	// sample 6 is owned by node 1
}
