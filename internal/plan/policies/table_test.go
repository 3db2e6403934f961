package policies

import (
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// simulatorOnly returns the policies that the engine does not support.
func simulatorOnly() []plan.Policy {
	return slices.DeleteFunc(All(), func(p plan.Policy) bool { return p.About().Engine })
}

func TestByNameReturnsTheEnginesPolicies(t *testing.T) {
	for _, p := range Engine() {
		if got, err := ByName(p.Name()); err != nil || got != p {
			t.Errorf("ByName(%q) = %v, %v", p.Name(), got, err)
		}
	}
	if _, err := ByName("lru"); err == nil ||
		!strings.Contains(err.Error(), strings.Join(Names(Engine()), ", ")) {
		t.Errorf("ByName(lru): %v; it must list the policies", err)
	}
}

func TestEngineRefusesPoliciesOfTheSimulator(t *testing.T) {
	for _, p := range simulatorOnly() {
		if _, err := ByName(p.Name()); err == nil ||
			!strings.Contains(err.Error(), "runs in the simulator only") {
			t.Errorf("ByName(%q): error %v, want that it runs in the simulator only", p.Name(), err)
		}
		if q, err := ForSimulator(p.Name()); err != nil || q != p {
			t.Errorf("ForSimulator(%q) is %v, %v", p.Name(), q, err)
		}
	}
	for _, p := range Engine() {
		if _, err := ForSimulator(p.Name()); err != nil {
			t.Error(err)
		}
	}
	if _, err := ForSimulator("lru"); err == nil || !strings.Contains(err.Error(), "is unknown") {
		t.Errorf("ForSimulator of an unknown policy: %v", err)
	}
}

// entries has each policy's entry in the conformance suite.
var entries = map[string]policytest.How{
	"perfect":     {Prefetch: true, Ideal: true},
	"pytorch":     {Prefetch: true, Window: true},
	"tfdata":      {Prefetch: true, Draws: true},
	"naive":       {},
	"staging":     {Prefetch: true},
	"frequency":   {Prefetch: true, Remote: true},
	"cooperative": {Prefetch: true, Remote: true, ReadOnce: true},
	"deepio_ordered": {
		Prefetch:   true,
		Remote:     true,
		Preload:    true,
		CacheFirst: true,
		Demand:     true,
		Parts:      true,
	},
	"deepio_opportunistic": {
		Prefetch:   true,
		Remote:     true,
		Preload:    true,
		CacheFirst: true,
		Demand:     true,
		Draws:      true,
		Parts:      true,
	},
	"lbann_dynamic": {
		Prefetch:   true,
		Remote:     true,
		ReadOnce:   true,
		OnRead:     true,
		CacheFirst: true,
		Parts:      true,
	},
	"lbann_preloading": {
		Prefetch: true, Remote: true, Preload: true, CacheFirst: true, Parts: true,
	},
	"sharded": {
		Prefetch: true, Preload: true, CacheFirst: true, Draws: true, Parts: true,
	},
	"locality": {
		Prefetch: true, Remote: true, ReadOnce: true, CacheFirst: true, Deals: true, Parts: true,
	},
	"minio":                {Prefetch: true, CacheFirst: true},
	"partitioned":          {Prefetch: true, Remote: true, OnRead: true, CacheFirst: true},
	"pagecache":            {Prefetch: true, CacheFirst: true, Evicts: true},
	"pagecache_lru":        {Prefetch: true, CacheFirst: true, Evicts: true},
	"pagecache_sequential": {Prefetch: true, CacheFirst: true, Draws: true, Evicts: true},
}

// TestConformance runs the suite for every policy, each with its own entry.
func TestConformance(t *testing.T) {
	for _, p := range All() {
		t.Run(p.Name(), func(t *testing.T) {
			how, ok := entries[p.Name()]
			if !ok {
				t.Fatalf("policy %q has no entry in the conformance suite: add one to entries",
					p.Name())
			}
			policytest.Run(t, p, how)
		})
	}
	for name := range entries {
		if _, err := ForSimulator(name); err != nil {
			t.Errorf("the conformance suite has an entry for %q, which is not a policy", name)
		}
	}
}

// TestPoliciesHaveDifferentNamesAndLines: lines are those of plots.
func TestPoliciesHaveDifferentNamesAndLines(t *testing.T) {
	names, lines := map[string]bool{}, map[plan.Line]string{}
	for _, p := range All() {
		line := p.About().Line
		if names[p.Name()] {
			t.Errorf("two policies have the name %s", p.Name())
		}
		if other, ok := lines[line]; ok {
			t.Errorf("%s and %s have the same line in plots", p.Name(), other)
		}
		names[p.Name()], lines[line] = true, p.Name()
	}
	if d := Default(); !d.About().Engine || !names[d.Name()] {
		t.Errorf("the engine does not support the default, %s", d.Name())
	}
}
