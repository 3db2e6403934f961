package clustersim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/interleave"
)

// TestSeeds -repeatable runs scripts in workers whose runtime repeats itself: an overlay replaces
// its source of chance, in select, in the order of maps and of timers, by a sequence that each
// script begins anew (reseed), and the monitor does not take the processor away from goroutines by
// real time.
//
// With -interleave, goroutines yield between the statements of the program (package interleave).

// edits are what the overlay changes in files of package runtime.
var edits = map[string][][2]string{
	"rand.go": {
		{"func rand() uint64 {\n", "func rand() uint64 {\n\tif true {\n\t\treturn simulated()\n\t}\n"},
		{
			"func cheaprand() uint32 {\n",
			"func cheaprand() uint32 {\n\tif true {\n\t\treturn uint32(simulated() >> 32)\n\t}\n",
		},
		{"	mp.cheaprand = rand()\n", ""},
		{"// mrandinit initializes", `var simulation uint64

//go:linkname simulationSeed
func simulationSeed(seed uint64) { simulation = seed }

//go:nosplit
func simulated() uint64 {
	simulation += 0x9e3779b97f4a7c15
	z := simulation
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// mrandinit initializes`},
	},
	"proc.go": {
		{
			"func retake(now int64) uint32 {\n",
			"func retake(now int64) uint32 {\n\tif true {\n\t\treturn 0\n\t}\n",
		},
	},
}

// overlaidWorker builds the binary of workers that -repeatable and -interleave ask for, and returns
// its path.
func overlaidWorker(t *testing.T) string {
	t.Helper()
	dir, tags := t.TempDir(), "invariants"
	replace := map[string]string{}
	if *asked.repeatable {
		tags += ",simulation"
		editRuntime(t, dir, replace)
	}
	if *asked.interleaved {
		root, err := filepath.Abs("../..")
		if err == nil {
			err = interleave.Overlay(root, "./internal/lab/clustersim", tags, dir, replace)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "worker")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", fmt.Sprintf("-race=%t", raceDetector), "-tags", tags,
		"-overlay", file, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build a worker: %v\n%s", err, out)
	}
	return binary
}

// editRuntime writes the files of package runtime with edits to dir, and adds them to an overlay.
func editRuntime(t *testing.T, dir string, replace map[string]string) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT: %v", err)
	}
	for name, list := range edits {
		path := filepath.Join(strings.TrimSpace(string(root)), "src/runtime", name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if strings.Count(string(text), e[0]) != 1 {
				t.Fatalf("%s of this version of Go does not have exactly one %q", path, e[0])
			}
			text = []byte(strings.Replace(string(text), e[0], e[1], 1))
		}
		replace[path] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[path], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
