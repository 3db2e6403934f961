package devcluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Cmd is a command that runs on a node. It overrides Start, and the methods of exec.Cmd that call
// Start.
type Cmd struct {
	*exec.Cmd
	node *Node
}

// Command returns a command to run on the node as its local rank, with torchrun's variables. The
// command gets SIGKILL when the cluster is closed or this process dies.
func (n *Node) Command(local int, name string, args ...string) *Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = n.environment(os.Environ(), local)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return &Cmd{cmd, n}
}

// Start starts the command on its node.
func (c *Cmd) Start() error { return c.node.Do(c.Cmd.Start) }

// Run runs the command on its node, and waits for its end.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output.
func (c *Cmd) Output() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard error.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// inherited reports whether a process on a node inherits a variable of this process. Variables that
// an outer torchrun has set belong to another job.
func inherited(key string) bool {
	return !strings.HasPrefix(key, "TORCHELASTIC_") && key != "HDMLP_SECRET" &&
		key != "ROLE_NAME" && key != "ROLE_RANK" && key != "ROLE_WORLD_SIZE"
}

// environment returns the environment of a process on the node: base without variables of other
// jobs, and torchrun's variables.
func (n *Node) environment(base []string, local int) []string {
	c := n.cluster
	ranks := c.options.RanksPerNode
	rank := n.index*ranks + local
	interfaceName := nodeEnd
	if c.loopback != nil {
		interfaceName = "lo"
	}
	var out []string
	for _, kv := range base {
		if key, _, _ := strings.Cut(kv, "="); inherited(key) {
			out = append(out, kv)
		}
	}
	set := func(key string, value any) { out = append(out, fmt.Sprintf("%s=%v", key, value)) }
	set("RANK", rank)
	set("WORLD_SIZE", ranks*len(c.nodes))
	set("LOCAL_RANK", local)
	set("LOCAL_WORLD_SIZE", ranks)
	set("GROUP_RANK", n.index)
	set("GROUP_WORLD_SIZE", len(c.nodes))
	set("MASTER_ADDR", c.nodes[0].address)
	set("MASTER_PORT", c.port)
	set("TORCHELASTIC_RUN_ID", c.marker)
	set("TORCHELASTIC_RESTART_COUNT", 0)
	set("TORCHELASTIC_MAX_RESTARTS", 0)
	set("HDMLP_SECRET", c.secret)
	set("HDMLP_SOCKET", socket(c.marker, n.index))
	// The host's name resolves to an address that is not the node's, so torch's backends need the
	// interface to listen on.
	set("GLOO_SOCKET_IFNAME", interfaceName)
	set("NCCL_SOCKET_IFNAME", interfaceName)
	set("TP_SOCKET_IFNAME", interfaceName)
	own := strings.NewReplacer("{node}", strconv.Itoa(n.index), "{rank}", strconv.Itoa(rank),
		"{address}", n.Address())
	for _, kv := range c.options.Env {
		out = append(out, own.Replace(kv))
	}
	return out
}

// socket returns the name of the socket of a node's daemon. Nodes share this machine's
// XDG_RUNTIME_DIR and, without namespaces, abstract names, so the name must be unique.
func socket(marker string, node int) string { return marker + "-" + strconv.Itoa(node) }
