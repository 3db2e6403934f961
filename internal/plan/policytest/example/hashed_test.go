package example_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
	"github.com/hdmlp/hdmlp/internal/plan/policytest/example"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// TestConformance runs the suite for the example, with the entry that the document has.
func TestConformance(t *testing.T) {
	policytest.Run(t, example.Hashed{},
		policytest.How{Prefetch: true, Remote: true, ReadOnce: true})
}

// TestSimulatorReadsEachSampleOnce: if the caches hold the dataset, each sample is read from the
// source once.
func TestSimulatorReadsEachSampleOnce(t *testing.T) {
	class := func(capacity, rate float64) model.Class {
		return model.Class{
			Capacity: capacity,
			Threads:  2,
			Read:     model.Constant(rate),
			Write:    model.Constant(rate),
		}
	}
	job := &simulate.Job{
		Env: model.Environment{
			Compute: 100, Preprocess: 500, PeerBandwidth: 2000, SourceBandwidth: 50,
			SourceThroughput: model.Constant(50),
			Classes:          []model.Class{class(20, 5000), class(60, 2000)},
		},
		Nodes: 4, Epochs: 3, GlobalBatch: 16, Seed: 1,
	}
	for range 200 {
		job.Sizes = append(job.Sizes, 1)
	}
	r, err := simulate.Run(t.Context(), job, example.Hashed{})
	if err != nil || !r.Supported {
		t.Fatalf("%+v, %v", r, err)
	}
	if math.Abs(r.SourceTotal-200) > 1e-6 || r.Reads.Remote.Samples == 0 {
		t.Errorf("%v MB were read from the source, want 200; %d samples came from other nodes",
			r.SourceTotal,
			r.Reads.Remote.Samples)
	}
}

// TestDocumentQuotesTheExample: the document quotes the file, from the policy's comment on, and the
// entry.
func TestDocumentQuotesTheExample(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("hashed.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code2, ok := strings.Cut(string(code), "\n// Hashed keeps")
	if !ok {
		t.Fatal("hashed.go does not define the policy")
	}
	for _, quote := range []string{
		"// Hashed keeps" + code2,
		`"hashed": {Prefetch: true, Remote: true, ReadOnce: true},`,
	} {
		if !strings.Contains(string(doc), quote) {
			t.Errorf("docs/CONTRIBUTING.md does not quote exactly:\n%s", quote)
		}
	}
}
