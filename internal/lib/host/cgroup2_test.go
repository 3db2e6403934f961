package host

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// joinGroup is the variable that makes this test's process join a control group, and measure there.
const joinGroup = "HDMLP_TEST_JOIN_GROUP"

// inGroup is what a process measures in its control group.
type inGroup struct {
	Memory  MemoryInfo
	Groups  []string // of version 2
	Stalled time.Duration
	Counts  bool // whether the kernel reports how long tasks stalled
}

// TestMeasureInGroup is the process of TestGaugeReadsARealGroup.
func TestMeasureInGroup(t *testing.T) {
	dir := os.Getenv(joinGroup)
	if dir == "" {
		t.Skip("it is run by another test")
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	taken := make([]byte, 32<<20)
	for i := 0; i < len(taken); i += 4096 {
		taken[i] = 1
	}
	var g MemoryGauge
	var got inGroup
	var err error
	if got.Memory, err = g.Measure(); err != nil {
		t.Fatal(err)
	}
	for _, group := range g.groups {
		if group.v2 {
			got.Groups = append(got.Groups, group.dir)
		}
	}
	got.Stalled, got.Counts = g.Stalled()
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("measured %s\n", text)
	taken[0] = 2
}

// TestGaugeReadsARealGroup compares what a process in a control group of version 2 measures with
// what the group was made with. The kernel's memory controller may belong to version 1: then only
// stalls are compared.
func TestGaugeReadsARealGroup(t *testing.T) {
	const limit = 256 << 20
	parent := ""
	for _, g := range groupsAt("/") {
		if g.v2 && parent == "" {
			parent = g.dir
		}
	}
	if parent == "" {
		t.Skip("this process is in no control group of version 2")
	}
	// A group that has processes cannot have controllers for its children, unless it is the root.
	enabled := filepath.Join(parent, "cgroup.subtree_control")
	if before, err := os.ReadFile(enabled); err == nil &&
		!slices.Contains(strings.Fields(string(before)), "memory") &&
		os.WriteFile(enabled, []byte("+memory"), 0) == nil {
		defer os.WriteFile(enabled, []byte("-memory"), 0) //nolint:errcheck // as it was
	}
	dir := filepath.Join(parent, fmt.Sprintf("hdmlp-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Skipf("cannot make a control group: %v", err)
	}
	defer func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}()
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	limited := slices.Contains(strings.Fields(string(controllers)), "memory")
	if limited {
		if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte(fmt.Sprint(limit)),
			0); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMeasureInGroup$", "-test.v")
	cmd.Env = append(os.Environ(), joinGroup+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, after, _ := strings.Cut(string(out), "measured ")
	line, _, _ := strings.Cut(after, "\n")
	var got inGroup
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(got.Groups) == 0 || got.Groups[0] != dir {
		t.Errorf("the process finds the groups %v, not %s", got.Groups, dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "memory.pressure")); err == nil &&
		(!got.Counts || got.Stalled < 0 || got.Stalled > time.Minute) {
		t.Errorf("stalled for %v, %v", got.Stalled, got.Counts)
	}
	if !limited {
		t.Skip("memory is not controlled by version 2 here; stalls were compared")
	}
	if m := got.Memory; m.Limit != limit || m.Group != dir || m.Available > limit-(32<<20) ||
		m.Available < limit/8 {
		t.Errorf("a process with 32 MiB, below %d bytes, measures %+v", limit, m)
	}
}
