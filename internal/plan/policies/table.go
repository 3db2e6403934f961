// Package policies has the policies of the engine and the simulator, each in its own file with a
// line in a table. Commands, configuration, reports, plots and the tests of the docs take names and
// descriptions from here.
//
// Package policytest checks that policies conform; docs/CONTRIBUTING.md describes how to add one.
package policies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
)

// table has every policy, in the order in which they are listed.
var table = [...]plan.Policy{
	Perfect{},
	Naive{},
	Staging{},
	PyTorch{},
	TFData{},
	Frequency{},
	Cooperative{},
	DeepIO{},
	DeepIO{Opportunistic: true},
	LBANN{},
	LBANN{Preloading: true},
	Sharded{},
	Locality{},
	MinIO{},
	Partitioned{},
	PageCache{},
	PageCache{LRU: true},
	PageCache{Sequential: true},
}

// Default returns the policy of a job that does not specify one.
func Default() plan.Policy { return Cooperative{} }

// Bound returns the lower bound of the runtime, which the simulator runs like a policy.
func Bound() plan.Policy { return Perfect{} }

// All returns every policy, in the order in which they are listed. The simulator supports all.
func All() []plan.Policy { return slices.Clone(table[:]) }

// Engine returns the policies that the engine supports.
func Engine() []plan.Policy {
	return slices.DeleteFunc(All(), func(p plan.Policy) bool { return !p.About().Engine })
}

// Names returns the names of the policies.
func Names(of []plan.Policy) []string {
	names := make([]string, len(of))
	for i, p := range of {
		names[i] = p.Name()
	}
	return names
}

// ByName returns the policy of that name, with the options that it may have ("tfdata:buffer=2000"),
// among those that the engine supports; the error lists them.
func ByName(name string) (plan.Policy, error) {
	known := strings.Join(Names(Engine()), ", ")
	switch p := find(name); {
	case p == nil:
		return nil, fmt.Errorf("policy %q is unknown; allowed: %s", name, known)
	case !p.About().Engine:
		return nil, fmt.Errorf("policy %q runs in the simulator only; allowed: %s", name, known)
	default:
		q, err := plan.WithOptions(p, name)
		if err == nil && !q.About().Engine {
			return nil, fmt.Errorf("policy %q runs in the simulator only", name)
		}
		return q, err
	}
}

// ForSimulator returns the policy of that name, with the options that it may have, among all
// policies. The error is an *Unknown or a *plan.WrongOption.
func ForSimulator(name string) (plan.Policy, error) {
	if p := find(name); p != nil {
		return plan.WithOptions(p, name)
	}
	return nil, &Unknown{plan.Base(name)}
}

// Unknown is the error of a name that no policy has.
type Unknown struct{ Name string }

func (e *Unknown) Error() string {
	return fmt.Sprintf("policy %q is unknown; allowed: %s", e.Name, strings.Join(Names(All()), ", "))
}

// find returns the policy of that name without its options; nil: there is none.
func find(name string) plan.Policy {
	for _, p := range table {
		if p.Name() == plan.Base(name) {
			return p
		}
	}
	return nil
}

// Memory returns the approximate number of bytes that the plan of a policy that counts reads takes
// to make, including the plan. Other policies take less.
func Memory(in plan.Input) int64 { return builder.Memory(in) }
