package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/environment"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// TestUseEnvironment: the file that a job writes describes the machine of a scenario, and a wrong
// one is refused by file and key.
func TestUseEnvironment(t *testing.T) {
	known := perfmodel.GivenRate(200, 1e-3)
	written := environment.File{
		Node: perfmodel.Node{
			Compute: perfmodel.Value{Number: 640, Origin: perfmodel.Measured},
			Network: known, Source: known, Streams: 16,
			Classes: []perfmodel.NodeClass{
				{Name: "file", Path: "/nvme", Read: known, Write: known, Stores: 4},
			},
		},
		Size: perfmodel.Size{Sample: 0.1, Nodes: 1, Staging: 64, Capacity: []float64{2000}},
	}
	path := filepath.Join(t.TempDir(), "environment.toml")
	if err := os.WriteFile(path, environment.Encode(written), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open("../../scenarios/thesis-1.toml")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.UseEnvironment(path); err != nil {
		t.Fatal(err)
	}
	s, err := f.Scenario()
	if err != nil {
		t.Fatal(err)
	}
	if s.Nodes != 4 || s.Env.Compute != 640 || s.Env.Classes[1].Capacity != 2000 ||
		s.Env.Classes[0].Threads != 16 {
		t.Errorf("%d nodes, environment %+v", s.Nodes, s.Env)
	}
	if diff := cmp.Diff([]string{"staging", "file"}, s.ClassNames); diff != "" {
		t.Error(diff)
	}
	text := strings.Replace(string(environment.Encode(written)), "compute = 640.0", "compute = 0", 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.UseEnvironment(path); err == nil || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "environment.compute") {
		t.Errorf("an impossible value: %v", err)
	}
}

func TestFallingCurvesAreRefused(t *testing.T) {
	f, err := Open("../../scenarios/thesis-1.toml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Scenario(Override{Key: "environment.source.4", Value: "20"})
	if err == nil || !strings.Contains(err.Error(), "environment.source.4") {
		t.Errorf("t(4) below t(3): %v", err)
	}
}
