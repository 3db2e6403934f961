package devcluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]devcluster.Rate{
		"10mbit": 10e6, "1.5gbit": 1.5e9, " 8 kbit": 8e3, "unlimited": 0, "10000bit": 10e3,
		"1GBIT": 1e9,
	} {
		got, err := devcluster.ParseRate(text)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v; want %d", text, got, err, want)
		}
		if again, err := devcluster.ParseRate(got.String()); err != nil || again != got {
			t.Errorf("%q is written %q, and read as %d (%v)", text, got, again, err)
		}
	}
	for _, text := range []string{
		"", "10", "mbit", "-1mbit", "1e3mbit", "10mbps", "10mibit",
		"1bit", "33gbit", "infmbit", "0x1mbit", "1..0mbit", "nanbit",
	} {
		if got, err := devcluster.ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %d, want an error", text, got)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	f.Add("10mbit")
	f.Add("1.5gbit")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := devcluster.ParseRate(text)
		if err != nil {
			return
		}
		if again, err := devcluster.ParseRate(r.String()); err != nil || again != r {
			t.Fatalf("%q is %d, written %q, and read as %d (%v)", text, r, r, again, err)
		}
	})
}

func TestParseDelay(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0":     0,
		"1ms":   time.Millisecond,
		"250us": 250 * time.Microsecond,
	} {
		if got, err := devcluster.ParseDelay(text); err != nil || got != want {
			t.Errorf("ParseDelay(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "-1ms", "2h", "fast"} {
		if got, err := devcluster.ParseDelay(text); err == nil {
			t.Errorf("ParseDelay(%q) = %v, want an error", text, got)
		}
	}
}

func TestCheckReportsEachWrongOption(t *testing.T) {
	err := devcluster.Options{
		Nodes: 251, RanksPerNode: -1, Name: "../x", MasterPort: 70000,
		Link:   devcluster.LinkState{Rate: 1, Delay: -1},
		LinkOf: map[int]devcluster.LinkState{300: {}},
		Env:    []string{"A=1", "B", "=C"}, Mounts: []string{"/does/not/exist:/tmp"},
	}.Check()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"251 nodes; allowed: 1 to 250", "-1 ranks per node", `run name "../x"`, "master port 70000",
		"rate 1bit", "delay -1ns",
		"link of node 300: no such node", `environment "B"`, `environment "=C"`,
		`mount "/does/not/exist:/tmp" on node 0`,
	} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%q occurs %d times in:\n%v", want, n, err)
		}
	}
}

func TestLoopbackNodesRejectLimitsAndMounts(t *testing.T) {
	for name, o := range map[string]devcluster.Options{
		"link limits": {Nodes: 1, Loopback: true, Link: devcluster.LinkState{Rate: 1e6}},
		"mounts":      {Nodes: 1, Loopback: true, Mounts: []string{"/tmp:/tmp"}},
	} {
		if _, err := devcluster.New(o); !errors.Is(err, devcluster.ErrUnsupported) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := newCluster(t, devcluster.Options{Nodes: 1, Loopback: true})
	err := c.Link(0).Set(devcluster.LinkState{Down: true})
	if !errors.Is(err, devcluster.ErrUnsupported) {
		t.Errorf("a link of a loopback address: %v", err)
	}
	if _, err := c.Link(0).State(); !errors.Is(err, devcluster.ErrUnsupported) {
		t.Errorf("a link of a loopback address: %v", err)
	}
}

// TestStateFilesOfOthersAreRejected checks also that Find needs a name if there are several runs.
func TestStateFilesOfOthersAreRejected(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	if _, err := devcluster.Find(""); !errors.Is(err, devcluster.ErrNoRun) {
		t.Errorf("with no run: %v", err)
	}
	a := newCluster(t, devcluster.Options{Nodes: 1, Name: "a", Loopback: true})
	if r, err := devcluster.Find(""); err != nil || r.Name() != "a" {
		t.Errorf("with one run: %v", err)
	}
	newCluster(t, devcluster.Options{Nodes: 1, Name: "b", Loopback: true})
	for _, name := range []string{"", "c"} {
		if _, err := devcluster.Find(name); !errors.Is(err, devcluster.ErrNoRun) ||
			!strings.Contains(err.Error(), "a, b") {
			t.Errorf("of two runs, %q: %v", name, err)
		}
	}
	good, err := os.ReadFile(a.StateFile())
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "hdmlp-dev", "c.json")
	for name, text := range map[string]string{
		"garbage":   "{",
		"another's": string(good),
		"a version": strings.Replace(strings.ReplaceAll(string(good), `"a"`, `"c"`), `"version":1`,
			`"version":2`, 1),
		"no nodes": `{"version":1,"run":"c","marker":"hdmlp-dev-c-1"}`,
	} {
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := devcluster.Find("a"); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Chmod(bad, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Sweep(); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Errorf("a file that others may read: %v", err)
	}
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(a.StateFile(), bad); err != nil {
		t.Fatal(err)
	}
	if _, err := devcluster.Find("a"); err == nil {
		t.Error("a symbolic link is followed")
	}
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(bad), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := devcluster.Find("a"); err == nil || !strings.Contains(err.Error(), "0700") {
		t.Errorf("a directory that others may read: %v", err)
	}
}
