package policies

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

func TestOptionsOfFrequency(t *testing.T) {
	for text, want := range map[string]plan.Policy{
		"minio":                   MinIO{},
		"frequency":               Frequency{},
		"frequency:in_order=true": Frequency{},
		"frequency:cleanup_read=true:in_order=false": FrequencyWith{
			ByFrequency: true, CleanupRead: true,
		},
	} {
		if p, err := ForSimulator(text); err != nil || p != want {
			t.Errorf("ForSimulator(%q) = %#v, %v", text, p, err)
		}
	}
	for text, want := range map[string]string{
		"minio:in_order=true":        "minio has no options",
		"frequency:order=true":       `order=true is none of its options`,
		"frequency:in_ordr=true":     `did you mean "in_order"?; allowed: in_order and cleanup_read`,
		"frequency:in_order":         `in_order is none of its options`,
		"frequency:cleanup_read=yes": `cleanup_read = "yes"`,
	} {
		_, err := ForSimulator(text)
		wrong := (*plan.WrongOption)(nil)
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("ForSimulator(%q): %v, want %q", text, err, want)
		}
	}
	_, err := ForSimulator("lru:in_order=true")
	if unknown := (*Unknown)(nil); !errors.As(err, &unknown) || unknown.Name != "lru" {
		t.Errorf("an unknown policy: %v", err)
	}
	if _, err := ByName("frequency:cleanup_read=true"); err == nil ||
		!strings.Contains(err.Error(), "runs in the simulator only") {
		t.Errorf("in the engine: %v", err)
	}
}

// TestOptionsOfFrequencyConform runs the conformance suite for the variants of frequency.
func TestOptionsOfFrequencyConform(t *testing.T) {
	for _, options := range []option.Values{
		{"in_order": false, "cleanup_read": false},
		{"in_order": true, "cleanup_read": true},
		{"in_order": false, "cleanup_read": true},
	} {
		p := Frequency{}.With(options)
		policytest.Run(t, p, policytest.How{Prefetch: true, Remote: true})
	}
}

// TestInOrder: without in_order, classes hold the same samples, those that the node reads most
// often first, and those that it reads as often in the order of their first reads.
func TestInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := policytest.DrawInput(t)
		for n := range in.Nodes {
			in.Nodes[n].Held, in.Nodes[n].Kept = nil, nil
		}
		inOrder, err := Frequency{}.Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		byFrequency, err := FrequencyWith{ByFrequency: true}.Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		for n := range in.Nodes {
			to, _, err := in.Check()
			if err != nil {
				t.Fatal(err)
			}
			counts := in.Stream.Frequencies(in.Nodes[n].Ranks, in.From, to)
			for j, ids := range byFrequency.Nodes[n].Classes {
				want := slices.Clone(inOrder.Nodes[n].Classes[j])
				slices.SortStableFunc(want, func(a, b int32) int { return int(counts[b]) - int(counts[a]) })
				if !slices.Equal(ids, want) {
					t.Fatalf("class %d of node %d is filled with %v, want %v", j+1, n, ids, want)
				}
			}
		}
	})
}

// TestDropped: what fills the space of dropped samples is what the node reads and the plan does not
// place on it, most often read first, each once.
func TestDropped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := policytest.DrawInput(t)
		f := FrequencyWith{CleanupRead: true}
		p, err := f.Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		run, err := f.Run(in, p)
		if err != nil {
			t.Fatal(err)
		}
		for n := range in.Nodes {
			counts, first := ownReads(&in, n)
			next := run.Drop(n)
			planned := slices.Concat(p.Nodes[n].Classes...)
			for i, k := range next {
				if counts[k] == 0 || slices.Contains(planned, k) ||
					i > 0 && counts[next[i-1]] < counts[k] {
					t.Fatalf("node %d: sample %d, read %d times, after %v", n, k, counts[k], next[:i])
				}
			}
			for _, k := range first {
				if !slices.Contains(planned, k) && !slices.Contains(next, k) {
					t.Fatalf("node %d reads sample %d, which follows nowhere", n, k)
				}
			}
		}
	})
}
