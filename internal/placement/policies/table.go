// Package policies has the policies: each in a file of its own with one line in one table, for
// engine and simulator alike. Commands, configuration, reports, plots and the tests of the docs
// take names and descriptions from here.
//
// What a policy has to be, package policytest checks; docs/CONTRIBUTING.md says how to add one.
package policies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/builder"
)

// table has every policy, in the order in which they are shown.
var table = [...]placement.Policy{
	Perfect{},
	Naive{},
	Staging{},
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
}

// Default is the policy of a job that names none.
func Default() placement.Policy { return Cooperative{} }

// Bound is the lower bound of the runtime, which the simulator runs as if it were a policy.
func Bound() placement.Policy { return Perfect{} }

// All returns every policy, in the order in which they are shown. The simulator runs them all.
func All() []placement.Policy { return slices.Clone(table[:]) }

// Engine returns the policies that the engine runs.
func Engine() []placement.Policy {
	return slices.DeleteFunc(All(), func(p placement.Policy) bool { return !p.About().Engine })
}

// Names returns the names of the policies.
func Names(of []placement.Policy) []string {
	names := make([]string, len(of))
	for i, p := range of {
		names[i] = p.Name()
	}
	return names
}

// ByName returns the policy of that name, of those that the engine runs; the error lists those
// there are.
func ByName(name string) (placement.Policy, error) {
	p, err := ForSimulator(name)
	switch known := strings.Join(Names(Engine()), ", "); {
	case err != nil:
		return nil, fmt.Errorf("policy %q is unknown; allowed: %s", name, known)
	case !p.About().Engine:
		return nil, fmt.Errorf("policy %q runs in the simulator only; allowed: %s", name, known)
	}
	return p, nil
}

// ForSimulator returns the policy of that name, of all there are.
func ForSimulator(name string) (placement.Policy, error) {
	for _, p := range table {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil,
		fmt.Errorf("policy %q is unknown; allowed: %s", name, strings.Join(Names(table[:]), ", "))
}

// Memory returns about how many bytes it takes to make the plan of a policy that counts reads, the
// plan included: more than any other takes.
func Memory(in placement.Input) int64 { return builder.Memory(in) }
