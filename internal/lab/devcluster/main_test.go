package devcluster_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

// TestMain runs a cluster that will be killed if DEVCLUSTER_TEST_SCRIPT is set. Otherwise it checks
// that tests leave no goroutines, interfaces, named namespaces or state files.
func TestMain(m *testing.M) {
	if script := os.Getenv("DEVCLUSTER_TEST_SCRIPT"); script != "" {
		victim(script)
	}
	dir, err := os.MkdirTemp("", "devcluster-test-")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_RUNTIME_DIR", dir)
	before := network()
	status := testkit.Run(m)
	if after := network(); status == 0 && !slices.Equal(before, after) {
		fmt.Fprintf(os.Stderr, "the machine's network was %q and is %q\n", before, after)
		status = 1
	}
	if left, _ := filepath.Glob(dir + "/hdmlp-dev/*"); status == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "state files are left: %q\n", left)
		status = 1
	}
	os.RemoveAll(dir)
	os.Exit(status)
}

// victim runs a cluster of two until it is killed.
func victim(script string) {
	c, err := devcluster.New(devcluster.Options{
		Nodes:    2,
		Name:     "victim",
		Loopback: os.Getenv("DEVCLUSTER_TEST_LOOPBACK") != "",
	})
	if err == nil {
		_, err = c.Run(context.Background(),
			devcluster.RunOptions{
				Args:   []string{"sh", "-c", script},
				Stdout: os.Stdout,
				Stderr: os.Stderr,
			})
	}
	fmt.Fprintln(os.Stderr, "not killed:", err)
	os.Exit(1)
}

// network lists the machine's interfaces and named namespaces.
func network() []string {
	var out []string
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		addresses, _ := i.Addrs()
		out = append(out, fmt.Sprint(i.Name, addresses))
	}
	names, _ := os.ReadDir("/run/netns")
	for _, n := range names {
		out = append(out, n.Name())
	}
	return out
}

// marked marks the environment of what the test starts from now on: others make namespaces on this
// machine, too.
func marked(t *testing.T) (mark string) {
	t.Helper()
	mark = fmt.Sprintf("DEVCLUSTER_TEST=%s-%d", t.Name(), os.Getpid())
	name, value, _ := strings.Cut(mark, "=")
	t.Setenv(name, value)
	return mark
}

// namespaces returns the network namespaces of this process's threads, and of processes that have
// the mark in their environment.
func namespaces(t *testing.T, mark string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, pattern := range []string{"/proc/[0-9]*/ns/net", "/proc/self/task/*/ns/net"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			if process, ok := strings.CutSuffix(p, "ns/net"); ok && !strings.Contains(p, "task") {
				all, err := os.ReadFile(process + "environ")
				if err != nil || !strings.Contains(string(all), mark) {
					continue
				}
			}
			if inode, err := os.Readlink(p); err == nil {
				out[inode] = true
			}
		}
	}
	return out
}

// needNamespaces skips a test if network namespaces are not available.
func needNamespaces(t *testing.T) {
	t.Helper()
	c, err := devcluster.New(devcluster.Options{Nodes: 1})
	if err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	why := c.OnLoopback()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if why != nil {
		t.Skipf("no network namespaces here: %v", why)
	}
}

// newCluster creates a cluster, and closes it after the test.
func newCluster(t *testing.T, o devcluster.Options) *devcluster.Cluster {
	t.Helper()
	c, err := devcluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// onBoth runs a test with both kinds of nodes.
func onBoth(t *testing.T, test func(t *testing.T, o devcluster.Options)) {
	t.Run("namespaces", func(t *testing.T) {
		needNamespaces(t)
		test(t, devcluster.Options{})
	})
	t.Run("loopback", func(t *testing.T) { test(t, devcluster.Options{Loopback: true}) })
}

// alive counts the processes that have text in their arguments.
func alive(t *testing.T, text string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range paths {
		if args, err := os.ReadFile(p); err == nil &&
			strings.Contains(strings.ReplaceAll(string(args), "\x00", " "), text) {
			n++
		}
	}
	return n
}

// startVictim starts a process that runs a script on two nodes, and waits until both have printed
// "ready".
func startVictim(t *testing.T, script string, o devcluster.Options) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "DEVCLUSTER_TEST_SCRIPT="+script)
	if o.Loopback {
		cmd.Env = append(cmd.Env, "DEVCLUSTER_TEST_LOOPBACK=1")
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	seen := ""
	for buffer := make([]byte, 4096); strings.Count(seen, "ready") < 2; {
		n, err := out.Read(buffer)
		seen += string(buffer[:n])
		if err != nil {
			t.Fatalf("the process that runs the cluster printed %q: %v", seen, err)
		}
	}
	return cmd
}
