package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

// nodeVariable makes the test binary a node of a cluster, for tests that stop or kill it.
const nodeVariable = "HDMLP_TEST_NODE"

// asNode runs that node until it is killed.
func asNode(spec string) {
	parts := strings.Fields(spec)
	node, _ := strconv.Atoi(parts[0])
	nodes, _ := strconv.Atoi(parts[1])
	l := &lab{nodes: nodes, world: 2 * nodes, wait: 60 * time.Second}
	o := l.options(node)
	o.Join = parts[2]
	if _, err := Form(context.Background(), o); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("formed")
	select {}
}

// TestDeadNodesAreDetected: a killed process is declared dead at once, one that stays silent after
// a while, and one that is stopped for 10 s is not.
func TestDeadNodesAreDetected(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 45 seconds")
	}
	t.Parallel()
	const others = 3
	l := newLab(t, others+1)
	l.wait = 60 * time.Second
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := l.options(0)
	var processes []*exec.Cmd
	o.Listening = func(at net.Addr) {
		for n := 1; n <= others; n++ {
			c := exec.Command(self)
			c.Env = append(os.Environ(), nodeVariable+"="+fmt.Sprint(n, " ", others+1, " ", at))
			if err := c.Start(); err != nil {
				t.Error(err)
				return
			}
			processes = append(processes, c)
			t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		}
	}
	c, err := Form(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	seen := watch(c)

	started := time.Now()
	_ = processes[0].Process.Kill()
	testkit.Until(t, "killed", func() bool { return !c.Alive(1) })
	t.Logf("a killed node was declared dead after %v", time.Since(started))

	_ = processes[1].Process.Signal(syscall.SIGSTOP)
	<-time.After(10 * time.Second)
	if !c.Alive(2) {
		t.Error("a node that got no CPU for 10 s was declared dead")
	}
	_ = processes[1].Process.Signal(syscall.SIGCONT)
	<-time.After(3 * time.Second)
	if len(seen()) != 1 {
		t.Error("events: ", seen())
	}

	_ = processes[2].Process.Signal(syscall.SIGSTOP)
	started = time.Now()
	for c.Alive(3) && time.Since(started) < 30*time.Second {
		<-time.After(10 * time.Millisecond)
	}
	if c.Alive(3) {
		t.Error("a silent node is considered alive after 30 s")
	}
	t.Logf("a silent node was declared dead after %v", time.Since(started))
	_ = processes[2].Process.Signal(syscall.SIGCONT)
	started = time.Now()
	for !c.Alive(3) && time.Since(started) < 30*time.Second {
		<-time.After(10 * time.Millisecond)
	}
	t.Logf("it was considered alive %v after it was resumed", time.Since(started))
	if !c.Alive(3) {
		t.Error("a node that was resumed is considered dead")
	}
}
