package scenario_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/scenario"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// TestMix: a job that mixes datasets reads what a mix of these does, under every policy that keeps
// the order, and each sample from the source once where caches hold them.
func TestMix(t *testing.T) {
	s, err := read(t, small, "profile=model", "samples=40", "mix=[[30, 3], [10, 1]]",
		"epoch_size=20", "epochs=4", "global_batch_size=10", `policies=["all"]`)
	if err != nil {
		t.Fatal(err)
	}
	if s.Steps() != 2 {
		t.Errorf("%d steps of 20 samples in batches of 10", s.Steps())
	}
	job, err := s.Job()
	if err != nil || job.Mixture == nil || job.Order != nil {
		t.Fatalf("%+v, %v", job, err)
	}
	in, err := simulate.Input(job)
	if err != nil {
		t.Fatal(err)
	}
	needed := map[int32]bool{}
	for e := range 4 {
		if n := in.Stream.Mixed(e); !slices.Equal(n, []uint64{15, 5}) {
			t.Errorf("epoch %d has %v samples of the datasets", e, n)
		}
		for _, k := range in.Stream.Epoch(e).Samples() {
			needed[k] = true
		}
	}
	mb := 0.0
	for k := range needed {
		mb += job.Sizes[k]
	}
	ran := 0
	for _, name := range s.Policies {
		r, err := simulate.Run(t.Context(), job, s.Policy(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !r.Supported {
			continue
		}
		ran++
		if total := r.Reads.Source.Samples + r.Reads.Remote.Samples; total > 80 {
			t.Errorf("%s: %d of 80 samples were read elsewhere", name, total)
		}
		if name == "cooperative" && (r.SourceTotal > 1.001*mb || r.ShareOfBound > 1.001) {
			t.Errorf("%v MB were read from the source, %v of the bound; the epochs need %v",
				r.SourceTotal, r.ShareOfBound, mb)
		}
	}
	if ran < 5 {
		t.Errorf("%d policies ran", ran)
	}
}

// TestMixRefused: what a mix cannot be is refused, with the key.
func TestMixRefused(t *testing.T) {
	for want, set := range map[string][]string{
		"job.epoch_size is missing":                {"mix=[[5, 1]]"},
		"there is no job.mix":                      {"epoch_size=5"},
		"its datasets have 7 samples":              {"mix=[[7, 1]]", "epoch_size=5"},
		"not a list of pairs":                      {"mix=[5, 1]", "epoch_size=5"},
		"no such pair":                             {"mix=[[5, -1]]", "epoch_size=5"},
		"no weights, or too large ones":            {"mix=[[5, 0]]", "epoch_size=5"},
		"a whole number":                           {"mix=[[5, 1]]", "epoch_size=0.5"},
		"the epoch of 3 samples, so with drop_las": {"mix=[[5, 1]]", "epoch_size=3", "drop_last=true"},
		"has one dataset only":                     {"mix=[[5, 1]]", "epoch_size=5", "profile=thesis"},
	} {
		set = append([]string{"profile=model", "samples=5", "nodes=1", "global_batch_size=4"}, set...)
		_, err := read(t, small, set...)
		var faults scenario.Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", set, err, want)
		}
	}
}
