// Package launch finds out which node of a launch this process is on, and where node 0 is, for
// commands that run on several nodes: from the variables of torchrun (and hdmlp dev cluster) and of
// srun, or from HDMLP_NODES and HDMLP_NODE. It knows fewer launchers than the Python package, which
// does this for jobs (python/hdmlp/_launch/launchers.py), and agrees with it about those.
//
// All functions are pure, except that ReadSecret reads the file that a variable names, or the
// user's.
package launch

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is this process's place in its launch.
type Place struct {
	Nodes, Node int
	LocalRank   int    // 0 on one process of each node
	Host        string // of node 0; "" if there is one node
	Port        int    // on which node 0 listens for the other nodes
	Launcher    string // what says so; "": nothing does
}

// Address returns where node 0 is to listen, or where to reach it.
func (p Place) Address() string {
	host := p.Host
	if p.Node == 0 {
		host = "" // a host's own name often means loopback
	}
	return net.JoinHostPort(host, strconv.Itoa(p.Port))
}

// environ looks up variables.
type environ func(name string) string

// number returns the value of the first variable that is a whole number, or -1.
func (e environ) number(names ...string) int {
	for _, name := range names {
		if n, err := strconv.ParseUint(strings.TrimSpace(e(name)), 10, 31); err == nil {
			return int(n)
		}
	}
	return -1
}

// launchers find the place by the variables of a launcher each; nil: it did not start the process.
var launchers = []func(e environ) *Place{torchrun, slurm}

func torchrun(e environ) *Place {
	p := Place{
		Nodes: e.number("GROUP_WORLD_SIZE"), Node: e.number("GROUP_RANK"),
		LocalRank: max(e.number("LOCAL_RANK"), 0), Launcher: "torchrun",
	}
	if p.Nodes < 0 || p.Node < 0 || e.number("RANK") < 0 {
		return nil
	}
	return &p
}

func slurm(e environ) *Place {
	if e("SLURM_PROCID") == "" || e("SLURM_STEP_ID") == "" {
		return nil // an allocation, in which something else started the process
	}
	p := Place{
		Nodes: e.number("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), Node: e.number("SLURM_NODEID"),
		LocalRank: max(e.number("SLURM_LOCALID"), 0), Host: firstHost(e("SLURM_STEP_NODELIST")),
		Launcher: "Slurm",
	}
	if p.Nodes < 0 || p.Node < 0 {
		return nil
	}
	if job := e("SLURM_JOB_ID"); job != "" {
		p.Port = portOf("slurm-" + job + "." + e("SLURM_STEP_ID"))
	}
	return &p
}

// defaultPort is node 0's port if nothing says another one.
const defaultPort = 29510

// portOf derives a port from the name of a launch, below Linux's ports for outgoing connections.
func portOf(name string) int { return 20000 + int(crc32.ChecksumIEEE([]byte(name)))%3000*4 }

// Find returns the place that the variables say. Without any there is one node.
func Find(getenv func(string) string) (Place, error) {
	e := environ(getenv)
	p := Place{Nodes: 1}
	for _, of := range launchers {
		if found := of(e); found != nil {
			p = *found
			break
		}
	}
	if addr := strings.TrimSpace(e("MASTER_ADDR")); addr != "" {
		p.Host = addr
	}
	var listed []string
	for part := range strings.SplitSeq(e("HDMLP_NODES"), ",") {
		if part = strings.TrimSpace(part); part != "" {
			listed = append(listed, part)
		}
	}
	if len(listed) > 1 {
		if p.Nodes > 1 && p.Nodes != len(listed) {
			return p, fmt.Errorf("HDMLP_NODES names %d nodes, but %s says that there are %d",
				len(listed), p.Launcher, p.Nodes)
		}
		if p.Nodes == 1 {
			p.Node = e.number("HDMLP_NODE", "JOB_COMPLETION_INDEX")
			if p.Node < 0 {
				p.Node = own(listed)
			}
			if p.Node < 0 {
				return p, fmt.Errorf("HDMLP_NODES=%s names %d nodes, and none of them is called as "+
					"this host: set HDMLP_NODE to this node's number, from 0", e("HDMLP_NODES"),
					len(listed))
			}
		}
		p.Nodes, p.Launcher = len(listed), "HDMLP_NODES"
	}
	if n := e.number("HDMLP_NODE"); n >= 0 {
		p.Node = n
	}
	switch {
	case p.Nodes <= 1:
		return Place{Nodes: 1, LocalRank: p.LocalRank, Launcher: p.Launcher}, nil
	case p.Node >= p.Nodes:
		return p, fmt.Errorf("this is node %d, but there are only %d nodes, counted from 0 (%s)",
			p.Node, p.Nodes, p.Launcher)
	}
	return p, p.meet(e, listed)
}

// meet adds node 0's host and port.
func (p *Place) meet(e environ, listed []string) error {
	port := e.number("HDMLP_PORT")
	if len(listed) > 0 {
		host, given, err := split(listed[0])
		if err != nil {
			return fmt.Errorf("HDMLP_NODES: %w", err)
		}
		p.Host = host
		if port < 0 {
			port = given
		}
	}
	if p.Host == "" {
		return fmt.Errorf("%s says that there are %d nodes, but not where node 0 is: set "+
			"MASTER_ADDR or HDMLP_NODES to node 0's host, on all nodes", p.Launcher, p.Nodes)
	}
	if master := e.number("MASTER_PORT"); port < 0 && master > 0 {
		if port = master + 10; port > 65535 {
			port = master - 10
		}
	}
	p.Port = cmp.Or(max(port, 0), p.Port, defaultPort)
	if p.Port > 65535 {
		return fmt.Errorf("the port of node 0 is %d; it must be at most 65535: correct "+
			"HDMLP_PORT, HDMLP_NODES or MASTER_PORT", p.Port)
	}
	return nil
}

// split splits host, host:port, [address], [address]:port or a bare IPv6 address; the port is -1 if
// there is none.
func split(text string) (host string, port int, err error) {
	if strings.Count(text, ":") > 1 && !strings.HasPrefix(text, "[") {
		return text, -1, nil
	}
	if !strings.Contains(text, ":") || strings.HasSuffix(text, "]") {
		return strings.Trim(text, "[]"), -1, nil
	}
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host or host:port", text)
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q: the port must be from 1 to 65535", text)
	}
	return host, int(n), nil
}

// own returns which of these nodes this host is, by its name; -1 if none or several are.
func own(listed []string) int {
	name, _ := os.Hostname()
	short := func(host string) string {
		host, _, _ = strings.Cut(strings.ToLower(host), ".")
		return host
	}
	at := -1
	for i, text := range listed {
		host, _, err := split(text)
		if err == nil && short(host) == short(name) {
			if at >= 0 {
				return -1
			}
			at = i
		}
	}
	return at
}

// firstHost returns the first of Slurm's n[01-03,7],gpu5.
func firstHost(list string) string {
	open := strings.IndexByte(list, '[')
	comma := strings.IndexByte(list, ',')
	switch {
	case open < 0 || comma >= 0 && comma < open:
		first, _, _ := strings.Cut(list, ",")
		return strings.TrimSpace(first)
	}
	end := strings.IndexByte(list[open:], ']')
	if end < 0 {
		return ""
	}
	first, _, _ := strings.Cut(list[open+1:open+end], ",")
	first, _, _ = strings.Cut(first, "-")
	rest, _, _ := strings.Cut(list[open+end+1:], ",")
	if strings.Contains(rest, "[") {
		return "" // several dimensions, which no common cluster has
	}
	return strings.TrimSpace(list[:open]) + first + rest
}

// minSecret is the least length of a secret, in bytes.
const minSecret = 16

// ReadSecret returns what only the nodes of the launch know: HDMLP_SECRET, the file
// HDMLP_SECRET_FILE, or the user's ~/.hdmlp/secret, as for jobs.
func ReadSecret(getenv func(string) string) ([]byte, error) {
	if text := strings.TrimSpace(getenv("HDMLP_SECRET")); text != "" {
		return long(text, "HDMLP_SECRET")
	}
	path, what := getenv("HDMLP_SECRET_FILE"), "HDMLP_SECRET_FILE"
	if path == "" {
		path, what = filepath.Join(getenv("HOME"), ".hdmlp", "secret"), "the user's secret"
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("the nodes need a secret in common: %w; set HDMLP_SECRET to the same "+
			"on all nodes ('openssl rand -hex 32' generates one)", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o077 != 0 ||
		int(st.Uid) != os.Getuid() && st.Uid != 0 {
		return nil, fmt.Errorf("%s, %s: it must be a regular file of this user that no other user "+
			"can read or write: chmod 600 it, and replace the secret in it", what, path)
	}
	buffer := make([]byte, 4096)
	n, err := f.Read(buffer)
	if n == 0 && err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return long(strings.TrimSpace(string(buffer[:n])), what+", "+path)
}

func long(text, what string) ([]byte, error) {
	if len(text) < minSecret {
		return nil, fmt.Errorf("%s has %d bytes, but a secret needs at least %d: generate one with "+
			"'openssl rand -hex 32'", what, len(text), minSecret)
	}
	return []byte(text), nil
}
