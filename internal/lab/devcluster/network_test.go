package devcluster_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
)

// connect makes a TCP connection between two nodes.
func connect(t *testing.T, from, to *devcluster.Node) (client, server net.Conn) {
	t.Helper()
	var listener net.Listener
	if err := to.Do(func() (err error) {
		listener, err = net.Listen("tcp", to.Address()+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := from.Do(func() (err error) {
		client, err = net.DialTimeout("tcp", listener.Addr().String(), 10*time.Second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

func TestEveryNodeReachesEveryOther(t *testing.T) {
	onBoth(t, func(t *testing.T, o devcluster.Options) {
		o.Nodes = 3
		c := newCluster(t, o)
		for i := range c.Len() {
			for j := range c.Len() {
				client, server := connect(t, c.Node(i), c.Node(j))
				if _, err := client.Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, 5)
				if _, err := io.ReadFull(server, got); err != nil || string(got) != "hello" {
					t.Fatalf("node %d reads %q of node %d: %v", j, got, i, err)
				}
			}
		}
	})
}

// TestNodesAreIsolatedFromTheMachine checks that a node has its own interfaces and abstract
// sockets, which are not visible outside.
func TestNodesAreIsolatedFromTheMachine(t *testing.T) {
	needNamespaces(t)
	before := network()
	c := newCluster(t, devcluster.Options{Nodes: 2})
	if diff := cmp.Diff(before, network()); diff != "" {
		t.Errorf("the machine's own network changed: %s", diff)
	}
	const name = "\x00devcluster-test-isolation"
	listen := func() (l net.Listener, err error) { return net.Listen("unix", name) }
	for i := range c.Len() {
		n := c.Node(i)
		if err := n.Do(func() error {
			l, err := listen()
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		}); err != nil {
			t.Errorf("node %d has no abstract sockets of its own: %v", i, err)
		}
		if out, err := n.Command(0, "sh", "-c",
			"ls /proc/self/net/dev_snmp6 2>/dev/null; cat "+
				"/proc/self/net/dev").Output(); err != nil ||
			!strings.Contains(string(out), "eth0") {
			t.Errorf("node %d has the interfaces %s (%v)", i, out, err)
		}
	}
	if conn, err := net.Dial("unix", name); err == nil {
		conn.Close()
		t.Error("a node's abstract socket is visible outside")
	}
}

// TestClosedClusterLeavesNothing checks that it leaves no namespace, and so no link.
func TestClosedClusterLeavesNothing(t *testing.T) {
	needNamespaces(t)
	mark := marked(t)
	before := namespaces(t, mark)
	for range 5 {
		c, err := devcluster.New(devcluster.Options{
			Nodes: 4,
			Link:  devcluster.LinkState{Rate: 1e9},
		})
		if err != nil {
			t.Fatal(err)
		}
		cmd := c.Node(1).Command(0, "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if n := len(namespaces(t, mark)); n < len(before)+5 {
			t.Errorf("%d namespaces with a cluster, %d without", n, len(before))
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("a command survived its cluster")
		}
		if err := c.Close(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		if err := c.Node(0).Do(func() error { return nil }); err == nil {
			t.Error("a closed cluster's node still runs calls")
		}
		if err := c.Link(0).Set(devcluster.LinkState{}); err == nil {
			t.Error("a closed cluster's link can be changed")
		}
	}
	for inode := range namespaces(t, mark) {
		if !before[inode] {
			t.Errorf("%s is left", inode)
		}
	}
}

// send transfers bytes, and returns how long that took.
func send(t *testing.T, from, to net.Conn, bytes int64) time.Duration {
	t.Helper()
	failed := make(chan error, 1)
	start := time.Now()
	go func() {
		_, err := io.CopyN(from, zeros{}, bytes)
		failed <- err
	}()
	if _, err := io.CopyN(io.Discard, to, bytes); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestRateLimitsOneLinkInBothDirections checks also that other links are faster.
func TestRateLimitsOneLinkInBothDirections(t *testing.T) {
	needNamespaces(t)
	const rate, bytes = 8e6, 1 << 20 // a second's worth, and the bucket
	c := newCluster(t,
		devcluster.Options{Nodes: 3, LinkOf: map[int]devcluster.LinkState{1: {Rate: rate}}})
	for name, pair := range map[string][2]int{"to": {0, 1}, "from": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			client, server := connect(t, c.Node(pair[0]), c.Node(pair[1]))
			if took := send(t, client, server, bytes); took.Seconds() < 0.8*bytes*8/rate {
				t.Errorf("%d bytes took %v at %d bits per second", bytes, took, int(rate))
			}
		})
	}
	t.Run("unlimited", func(t *testing.T) {
		if err := c.Link(1).Set(devcluster.LinkState{}); err != nil {
			t.Fatal(err)
		}
		client, server := connect(t, c.Node(2), c.Node(1))
		if took := send(t, client, server, 16<<20); took.Seconds() > 16<<20*8/rate/2 {
			t.Errorf("without limits, 16 MiB took %v", took)
		}
	})
}

// TestLinkStateIsKeptByTheKernel checks also that an invalid state is rejected.
func TestLinkStateIsKeptByTheKernel(t *testing.T) {
	needNamespaces(t)
	c := newCluster(t, devcluster.Options{Nodes: 1})
	for _, want := range []devcluster.LinkState{
		{Rate: 1e9},
		{Down: true, Rate: 10e6},
		{Down: true},
		{},
		{Rate: 8e3},
		{Rate: 32e9},
		{Rate: 1e9},
		{},
	} {
		if err := c.Link(0).Set(want); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Link(0).State(); err != nil || got != want {
			t.Errorf("the link is %+v (%v), want %+v", got, err, want)
		}
	}
	for _, bad := range []devcluster.LinkState{
		{Rate: 1},
		{Rate: -1},
		{Rate: 1e12},
		{Delay: -1},
		{Delay: time.Hour},
	} {
		if err := c.Link(0).Set(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// TestRoundTripTakesFourDelays if the kernel has netem; otherwise the error must say what is
// missing.
func TestRoundTripTakesFourDelays(t *testing.T) {
	needNamespaces(t)
	const delay = 20 * time.Millisecond
	want := devcluster.LinkState{Delay: delay, Rate: 1e9}
	c, err := devcluster.New(devcluster.Options{Nodes: 2, Link: want})
	if err != nil {
		if !errors.Is(err, devcluster.ErrUnsupported) ||
			!strings.Contains(err.Error(), "sch_netem") {
			t.Fatal(err)
		}
		t.Skipf("delays cannot be tested here: %v", err)
	}
	defer c.Close()
	if got, err := c.Link(0).State(); err != nil || got != want {
		t.Errorf("the link is %+v (%v), want %+v", got, err, want)
	}
	client, server := connect(t, c.Node(0), c.Node(1))
	start := time.Now()
	send(t, client, server, 1)
	send(t, server, client, 1)
	if took := time.Since(start); took < 4*delay {
		t.Errorf("the round trip took %v, with 4 delays of %v", took, delay)
	}
}

// TestLinkThatIsDownDropsPackets checks also that TCP recovers when the link is up again.
func TestLinkThatIsDownDropsPackets(t *testing.T) {
	needNamespaces(t)
	c := newCluster(t, devcluster.Options{Nodes: 3})
	client, server := connect(t, c.Node(0), c.Node(1))
	send(t, client, server, 1)
	if err := c.Link(1).Set(devcluster.LinkState{Down: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if err := server.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := server.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %d bytes over a link that is down (%v)", n, err)
	}
	other, third := connect(t, c.Node(0), c.Node(2)) // the others' links are up
	send(t, other, third, 1)
	if err := c.Link(1).Set(devcluster.LinkState{}); err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, b); err != nil {
		t.Errorf("after the link came up again: %v", err)
	}
}

func TestMountsAreVisibleOnlyOnTheirNode(t *testing.T) {
	needNamespaces(t)
	dir := t.TempDir()
	for _, d := range []string{"0", "1", "here"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t,
		devcluster.Options{Nodes: 2, Mounts: []string{dir + "/{node}:" + dir + "/here"}})
	for i := range c.Len() {
		if out, err := c.Node(i).Command(0, "sh", "-c",
			"echo $GROUP_RANK > "+dir+"/here/node").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, d := range []string{"0", "1"} {
		if got, err := os.ReadFile(filepath.Join(dir, d, "node")); err != nil ||
			string(got) != d+"\n" {
			t.Errorf("node %s wrote %q (%v)", d, got, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "here")); len(left) > 0 {
		t.Error("the mount is visible outside")
	}
}
