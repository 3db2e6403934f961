package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
)

// process runs in a child process of the test instead of the tests.
func process(mode string) int {
	address := &net.UnixAddr{Name: os.Getenv("HDMLP_TEST_ADDRESS"), Net: "unix"}
	switch mode {
	case "train": // with a child that inherits the socket, and outlives this process
		c, err := net.DialUnix("unix", nil, address)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		frames, _ := protocol.AppendJSON(nil, protocol.Hello,
			protocol.HelloMessage{Protocol: protocol.Version, Version: "test"})
		frames, _ = protocol.AppendJSON(frames, protocol.Open,
			openMessage(func(m *protocol.OpenMessage) { m.Stream.Epochs = 0 }))
		if _, err := c.Write(frames); err != nil {
			fmt.Println(err)
			return 1
		}
		f, err := c.File()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), "HDMLP_TEST_PROCESS=hold")
		child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{f}
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(child.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "hold": // until the test closes our input
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "greet":
		if _, err := Dial(context.Background(), address, "test"); err != nil {
			fmt.Println(err)
		}
		// without the client's own check of the daemon's user
		conn, err := net.DialUnix("unix", nil, address)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		c := &Client{conn: conn, r: bufio.NewReader(conn)}
		_, err = c.receive(protocol.Welcome)
		fmt.Println(err)
	}
	return 0
}

func (r *running) command(mode string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "HDMLP_TEST_PROCESS="+mode, "HDMLP_TEST_ADDRESS="+r.address.Name)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestDaemonNoticesAKilledProcessWhoseChildHoldsTheSocket kills a training process with SIGKILL
// while its child keeps the socket open: the daemon must still notice, and exit.
func TestDaemonNoticesAKilledProcessWhoseChildHoldsTheSocket(t *testing.T) {
	r := start(t)
	cmd := r.command("train")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(line, &child); err != nil {
		t.Fatalf("the process said %q", line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	r.end()
	if err := syscall.Kill(child, 0); err != nil {
		t.Errorf("the child, which should hold the socket, is gone: %v", err)
	}
	_ = syscall.Kill(child, syscall.SIGKILL)
}

func TestProcessOfAnotherUserIsRejected(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	r := start(t)
	stays := r.hello()
	cmd := r.command("greet")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	stays.close()
	if errors.Is(err, os.ErrPermission) {
		r.end()
		t.Skipf("the test binary cannot be run by another user here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"belongs to user root (0)", "serves user 0 and not user 65534"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the other user's process says %q, want %q", out, want)
		}
	}
	r.end()
}
