package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
)

// TestUseEnvironment: the file that a job writes describes the machine of a scenario, and a wrong
// one is refused by file and key.
func TestUseEnvironment(t *testing.T) {
	known := model.GivenRate(200, 1e-3)
	written := envfile.File{
		Node: model.Node{
			Compute: model.Value{Number: 640, Origin: model.Measured},
			Network: known, Source: known, Streams: 16,
			Classes: []model.NodeClass{
				{Name: "file", Path: "/nvme", Read: known, Write: known, Stores: 4},
			},
		},
		Size:    model.Size{Sample: 0.1, Nodes: 1, Staging: 64, Capacity: []float64{2000}},
		Threads: 2,
	}
	path := filepath.Join(t.TempDir(), "environment.toml")
	if err := os.WriteFile(path, envfile.Encode(written), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open("../../../scenarios/thesis-1.toml")
	if err != nil {
		t.Fatal(err)
	}
	notes, err := f.UseEnvironment(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		path + " replaces compute, network, source and the storage classes of the scenario",
		path + " does not know preprocess and source_network: the scenario's values remain",
	}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Error(diff)
	}
	s, err := f.Scenario()
	if err != nil {
		t.Fatal(err)
	}
	if s.Nodes != 4 || s.Env.Compute != 640 || s.Env.Classes[1].Capacity != 2000 ||
		s.Env.Classes[0].Threads != 2 || s.Env.Preprocess != 200 || s.Env.SourceBandwidth != 2000 {
		t.Errorf("%d nodes, environment %+v", s.Nodes, s.Env)
	}
	if diff := cmp.Diff([]string{"staging", "file"}, s.ClassNames); diff != "" {
		t.Error(diff)
	}
	text := strings.Replace(string(envfile.Encode(written)), "compute = 640.0", "compute = 0", 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.UseEnvironment(path); err == nil || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "environment.compute") {
		t.Errorf("an impossible value: %v", err)
	}
}

// TestUnknownRemainsTheScenarios: what an environment file lacks is not replaced, except of a
// storage class, which is a guess then and is reported.
func TestUnknownRemainsTheScenarios(t *testing.T) {
	path := filepath.Join(t.TempDir(), "environment.toml")
	err := os.WriteFile(path, envfile.Encode(envfile.File{
		Node: model.Node{
			Network: model.GuessedPeer, Source: model.GuessedSource,
			Classes: []model.NodeClass{{
				Name: "file", Path: "/nvme", Read: model.GivenRate(500, 0),
				Write: model.GuessedClass, Stores: 2,
			}},
		},
		Size: model.Size{Sample: 20e3, Nodes: 1, Staging: 64, Capacity: []float64{2000}},
	}), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open("../../../scenarios/thesis-1.toml")
	if err != nil {
		t.Fatal(err)
	}
	before, err := f.Scenario()
	if err != nil {
		t.Fatal(err)
	}
	notes, err := f.UseEnvironment(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Scenario()
	if err != nil {
		t.Fatal(err)
	}
	after := s.Env
	after.Classes = before.Env.Classes
	if diff := cmp.Diff(before.Env, after); diff != "" {
		t.Errorf("a file that knows nothing replaced values: %s", diff)
	}
	if said := strings.Join(notes, "\n"); !strings.Contains(said,
		"compute, preprocess, network, source_network and source") ||
		!strings.Contains(said, "storage_class.1.write (file) was not measured: 500 MB/s") {
		t.Error(said)
	}
}

func TestFallingCurvesAreRefused(t *testing.T) {
	f, err := Open("../../../scenarios/thesis-1.toml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Scenario(Override{Key: "environment.source.4", Value: "20"})
	if err == nil || !strings.Contains(err.Error(), "environment.source.4") {
		t.Errorf("t(4) below t(3): %v", err)
	}
}
