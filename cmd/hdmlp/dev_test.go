package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

// newDevProgram returns the real program, with its own directory for running clusters.
func newDevProgram(t *testing.T) *program {
	p := newProgram(t)
	p.env = append(p.env, "XDG_RUNTIME_DIR="+t.TempDir())
	return p
}

// needRoot skips tests that need network namespaces.
func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
}

// TestDevReportsEachWrongFlag checks also that the status is 2 and nothing runs.
func TestDevReportsEachWrongFlag(t *testing.T) {
	p := newDevProgram(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"dev", "clutser"}, []string{`unknown command "clutser"`}},
		{[]string{"dev", "cluster", "--", "true"}, []string{"0 nodes; allowed: 1 to 250"}},
		{[]string{"dev", "cluster", "-n", "2"}, []string{"no command is given"}},
		{[]string{"dev", "cluster", "-n", "two", "--", "true"}, []string{`"two"`}},
		{
			[]string{"dev", "cluster", "-n", "2", "--", "no-such-program"},
			[]string{`"no-such-program"`, "not found"},
		},
		{
			[]string{"dev", "cluster", "-n", "2", "--ranks-per-node", "0", "--", "true"},
			[]string{"--ranks-per-node is 0"},
		},
		{
			[]string{
				"dev", "cluster", "-n", "2", "--rate", "fast", "--delay", "long", "--rate-of",
				"x", "--rate-of", "7=1mbit", "--delay-of", "0=-1s", "--env", "A", "--run", "a/b",
			},
			[]string{
				"--rate: ", "--delay: ", `--rate-of "x"`, "link of node 7: no such node",
				`--delay-of "0=-1s"`,
				`environment "A"`, `"a/b"`, "no command",
			},
		},
		{
			[]string{"dev", "cluster", "-n", "2", "--loopback", "--rate", "1mbit", "--", "true"},
			[]string{"link limits need", "--loopback is given"},
		},
		{[]string{"dev", "link"}, []string{"one argument"}},
		{[]string{"dev", "link", "0", "--up", "--down"}, []string{"mutually exclusive"}},
		{[]string{"dev", "link", "0", "--rate", "x"}, []string{"--rate: "}},
		{[]string{"dev", "link", "0", "--delay", "x"}, []string{"--delay: "}},
		{[]string{"dev", "link", "0"}, []string{"runs no cluster"}},
		{[]string{"dev", "link", "0", "--run", "x"}, []string{"runs no cluster"}},
		{[]string{"dev", "exec", "0"}, []string{"and a command"}},
		{[]string{"dev", "exec", "0", "--", "true"}, []string{"runs no cluster"}},
	} {
		status, stdout, stderr := p.run(c.args...)
		if status != 2 || stdout != "" {
			t.Errorf("%q: status %d, output %q", c.args, status, stdout)
		}
		for _, want := range c.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%q does not say %q:\n%s", c.args, want, stderr)
			}
		}
	}
}

// TestDevClusterPrintsOutputAndSummary runs commands that succeed, and commands that fail.
func TestDevClusterPrintsOutputAndSummary(t *testing.T) {
	p := newDevProgram(t)
	args := []string{
		"dev", "cluster", "-n", "3", "--loopback", "--env", "MINE={node}", "--", "sh",
		"-c",
	}
	status, stdout, stderr := p.run(append(args, "echo rank $RANK of $WORLD_SIZE has $MINE")...)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	slices.Sort(lines)
	if want := []string{
		"[0.0] rank 0 of 3 has 0", "[1.1] rank 1 of 3 has 1",
		"[2.2] rank 2 of 3 has 2",
	}; status != 0 || !slices.Equal(lines, want) {
		t.Errorf("status %d, output %q", status, lines)
	}
	if !strings.Contains(stderr, "127.0.0.1 to 127.0.0.3") {
		t.Errorf("it prints %q", stderr)
	}
	status, stdout, stderr = p.run(append([]string{"--json"},
		append(args, "echo hello; if [ $RANK = 2 ]; then exit 42; fi; sleep 1000")...)...)
	var summary devcluster.Summary
	if err := json.Unmarshal([]byte(stdout), &summary); err != nil {
		t.Fatalf("the summary is %q: %v", stdout, err)
	}
	if status != 42 || summary.ExitStatus != 42 || len(summary.Ranks) != 3 ||
		summary.Ranks[2].ExitStatus != 42 || *summary.FirstFailed != 2 {
		t.Errorf("status %d, summary %+v", status, summary)
	}
	if !strings.Contains(stderr, "[2.2] hello\n") || !strings.Contains(stderr, `"exit_status":42`) {
		t.Errorf("it prints %q", stderr)
	}
}

// cluster starts `hdmlp dev cluster` and waits until its command has printed "ready" on each node.
func (p *program) cluster(nodes int, args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := p.command(append([]string{"dev", "cluster"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); nodes > 0 && lines.Scan(); {
		if strings.HasSuffix(lines.Text(), "] ready") {
			nodes--
		}
	}
	if nodes > 0 {
		p.t.Fatal("the cluster ended before its commands ran")
	}
	return cmd
}

// longSleep returns a command that outlasts any test, with arguments that no other process on this
// machine has.
func longSleep() string { return fmt.Sprintf("sleep 4343.%d", time.Now().UnixNano()) }

// commandLines counts the processes that have text in their arguments.
func commandLines(text string) (n int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if args, err := os.ReadFile(path); err == nil &&
			strings.Contains(strings.ReplaceAll(string(args), "\x00", " "), text) {
			n++
		}
	}
	return n
}

func TestInterruptEndsTheClusterWithStatus130(t *testing.T) {
	p := newDevProgram(t)
	sleep := longSleep()
	cmd := p.cluster(2, "-n", "2", "--loopback", "--", "sh", "-c",
		"trap '' INT TERM; setsid "+sleep+" & echo ready; "+sleep)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 130 {
		t.Errorf("status %d", status)
	}
	if n := commandLines(sleep); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

// TestProcessesEndWhenTheClusterIsKilled kills `hdmlp dev cluster` itself with SIGKILL.
func TestProcessesEndWhenTheClusterIsKilled(t *testing.T) {
	p := newDevProgram(t)
	sleep := longSleep()
	cmd := p.cluster(2, "-n", "2", "--loopback", "--", "sh", "-c",
		"setsid "+sleep+" & echo ready; "+sleep)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	testkit.Until(t, "the processes have ended", func() bool { return commandLines(sleep) == 0 })
	// The reaper kills them first, and then removes the run's state.
	testkit.Until(t, "the run is forgotten", func() bool {
		status, _, stderr := p.run("dev", "link", "0")
		return status == 2 && strings.Contains(stderr, "runs no cluster")
	})
}

func TestLinksChangeAndCommandsRunFromAnotherProcess(t *testing.T) {
	needRoot(t)
	p := newDevProgram(t)
	p.cluster(2, "-n", "2", "--run", "linked", "--rate", "1gbit", "--", "sh", "-c",
		"echo ready; sleep 1000")
	for _, c := range []struct{ args, want string }{
		{"0", "run linked: link of node 0 is up, rate 1gbit, delay 0s"},
		{"1 --down", "run linked: link of node 1 is down, rate 1gbit, delay 0s"},
		{
			"1 --rate 10mbit --run linked",
			"run linked: link of node 1 is down, rate 10mbit, delay 0s",
		},
		{"1 --up", "run linked: link of node 1 is up, rate 10mbit, delay 0s"},
		{"1 --rate unlimited", "run linked: link of node 1 is up, rate unlimited, delay 0s"},
	} {
		status, stdout, stderr := p.run(append([]string{"dev", "link"},
			strings.Fields(c.args)...)...)
		if status != 0 || strings.TrimSpace(stdout) != c.want {
			t.Errorf("link %s: status %d, %q, %s", c.args, status, stdout, stderr)
		}
	}
	if status, stdout, _ := p.run("--json", "dev", "link", "0"); status != 0 ||
		!strings.Contains(stdout, `"bits_per_second":1000000000`) {
		t.Errorf("status %d, %q", status, stdout)
	}
	for _, args := range [][]string{
		{"dev", "link", "2"},
		{"dev", "link", "x"},
		{"dev", "exec", "-1", "true"},
		{"dev", "exec", "0", "--", "no-such-program"},
		{"dev", "link", "0", "--run", "other"},
	} {
		if status, _, stderr := p.run(args...); status != 2 {
			t.Errorf("%q: status %d, %s", args, status, stderr)
		}
	}
	status, stdout, stderr := p.run("dev", "exec", "1", "--", "sh", "-c",
		"grep -c eth0 /proc/net/dev; exit 5")
	if status != 5 || stdout != "1\n" {
		t.Errorf("status %d, %q, %s", status, stdout, stderr)
	}
}

// TestEachNodeHasItsOwnDaemon for both kinds of nodes, namespaces and loopback addresses.
func TestEachNodeHasItsOwnDaemon(t *testing.T) {
	for _, flags := range [][]string{{"--loopback"}, {}} {
		p := newDevProgram(t)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		script := self + ` serve 2>/dev/null & i=0; until ` + self +
			` stats >/dev/null 2>&1; do sleep 0.05; i=$((i+1)); [ $i -lt 200 ] || exit 1; done; ` +
			`echo ready; wait`
		p.cluster(2, append(append([]string{"-n", "2"}, flags...), "--", "sh", "-c", script)...)
		var pids []string
		for _, node := range []string{"0", "1"} {
			status, stdout, stderr := p.run("dev", "exec", node, "--", self, "stats")
			if status != 0 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			pids = append(pids, stdout)
		}
		if pids[0] == pids[1] {
			t.Errorf("two nodes have one daemon: %q", pids)
		}
	}
}
