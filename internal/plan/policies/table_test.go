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
	"minio": {Prefetch: true, CacheFirst: true},
	"partitioned": {
		Prefetch: true, Remote: true, ReadOnce: true, OnRead: true, CacheFirst: true,
	},
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

// TestOptionsOfPolicies: names carry options that are not the defaults, and lead back to the
// policy.
func TestOptionsOfPolicies(t *testing.T) {
	for given, want := range map[string]string{
		"tfdata":                              "tfdata",
		"tfdata:buffer=10000:file_size=128MB": "tfdata",
		"tfdata:file_size=1KB:buffer=7":       "tfdata:buffer=7:file_size=1000B",
		"pytorch:prefetch_factor=3":           "pytorch:prefetch_factor=3",
		"locality:copies=2":                   "locality:copies=2",
		"locality:copies=1":                   "locality",
		"cooperative":                         "cooperative",
		"pytorch:workers=8:prefetch_factor=2": "pytorch:workers=8",
	} {
		p, err := ByName(given)
		if err != nil || p.Name() != want {
			t.Errorf("%s: %v, %v; want %s", given, p, err, want)
			continue
		}
		if again, err := ByName(p.Name()); err != nil || again.Name() != want {
			t.Errorf("%s: %v, %v", p.Name(), again, err)
		}
	}
	for given, want := range map[string]string{
		"tfdata:":               "none of its options",
		"tfdata:buffer":         "none of its options",
		"tfdata:buffer=0":       "allowed: a whole number from 1",
		"tfdata:file_size=-1MB": "allowed: a size",
		"tfdata:a=1":            "allowed: buffer and file_size, each as tfdata:buffer=10000",
		"staging:a=1":           "staging has no options",
		"tfdata:buffer=1:file":  "none of its options",
		"perfect:x=1":           "runs in the simulator only",
		":buffer=1":             "is unknown",
	} {
		if _, err := ByName(given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", given, err, want)
		}
	}
}
