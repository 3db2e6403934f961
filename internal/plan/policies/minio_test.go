package policies

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// TestMinIOKeepsWhatIsReadFirst compares with the definition.
func TestMinIOKeepsWhatIsReadFirst(t *testing.T) {
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{Samples: 400, Seed: 3, Epochs: 9, WorldSize: 2, GlobalBatch: 8}),
		Nodes: policytest.Nodes(2, 50, 200), Size: func(int) int64 { return 1 },
	}
	p := policytest.Plan(t, MinIO{}, in)
	for n := range 2 {
		first := in.Stream.FirstAccess([]int{n}, 0, 9)
		want := [][]int32{first[:50], first[50:250]}
		if diff := cmp.Diff(want, p.Nodes[n].Classes); diff != "" {
			t.Errorf("node %d (-want +got):\n%s", n, diff)
		}
	}
	if p.Remote || p.Owner != nil {
		t.Error("minio must not have owners or remote reads")
	}
}
