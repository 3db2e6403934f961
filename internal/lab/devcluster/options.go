package devcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Options describe a cluster. Only Nodes is required.
type Options struct {
	Nodes        int
	RanksPerNode int               // 0: 1
	Name         string            // the run's name; empty: random
	Loopback     bool              // use loopback addresses even if namespaces are possible
	Link         LinkState         // initial state of all links
	LinkOf       map[int]LinkState // initial state of some nodes' links, instead of Link
	// Env has KEY=VALUE for every process; {node}, {rank} and {address} stand for the process's
	// own.
	Env []string
	// Mounts has SOURCE:TARGET, bind mounts that only the node sees; {node} stands for its number.
	Mounts     []string
	MasterPort int // 0: a free one
}

// maxNodes is the number of nodes that fit into a /24 network, and on a machine.
const maxNodes = 250

// runName matches valid names of runs.
var runName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,31}$`)

// Check validates the options. Its error joins one for each mistake.
func (o Options) Check() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}
	if o.Nodes < 1 || o.Nodes > maxNodes {
		fault("%d nodes; allowed: 1 to %d", o.Nodes, maxNodes)
	}
	if o.RanksPerNode < 0 || o.RanksPerNode > 1024 {
		fault("%d ranks per node; allowed: 1 to 1024", o.RanksPerNode)
	}
	if o.Name != "" && !runName.MatchString(o.Name) {
		fault("run name %q; allowed: up to 32 letters, digits and dashes", o.Name)
	}
	if o.MasterPort < 0 || o.MasterPort > 65535 {
		fault("master port %d; allowed: 1 to 65535", o.MasterPort)
	}
	if err := o.Link.check(); err != nil {
		fault("links: %w", err)
	}
	for node, s := range o.LinkOf {
		if o.Nodes > 0 && (node < 0 || node >= o.Nodes) {
			fault("link of node %d: no such node; nodes are 0 to %d", node, o.Nodes-1)
		}
		if err := s.check(); err != nil {
			fault("link of node %d: %w", node, err)
		}
	}
	for _, kv := range o.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
			fault("environment %q is not of the form KEY=VALUE", kv)
		}
	}
	for node := range min(max(o.Nodes, 1), maxNodes) {
		_, err := o.mounts(node)
		if err != nil {
			faults = append(faults, err)
			break // other nodes have the same mistake
		}
	}
	return errors.Join(faults...)
}

// needNamespaces names an option that loopback addresses do not support; "" if there is none.
func (o Options) needNamespaces() string {
	if len(o.Mounts) > 0 {
		return "mounts"
	}
	if o.Link != (LinkState{}) {
		return "link limits"
	}
	for _, s := range o.LinkOf {
		if s != (LinkState{}) {
			return "link limits"
		}
	}
	return ""
}

// link returns the initial state of node's link.
func (o Options) link(node int) LinkState {
	if s, ok := o.LinkOf[node]; ok {
		return s
	}
	return o.Link
}

// mount is a bind mount.
type mount struct{ from, to string }

// mounts returns the mounts of a node.
func (o Options) mounts(node int) ([]mount, error) {
	var out []mount
	for _, text := range o.Mounts {
		from, to, ok := strings.Cut(strings.ReplaceAll(text, "{node}", strconv.Itoa(node)), ":")
		if !ok || from == "" || !filepath.IsAbs(to) {
			return nil, fmt.Errorf("mount %q is not of the form SOURCE:TARGET with an absolute "+
				"path as target", text)
		}
		from, err := filepath.Abs(from)
		if err != nil {
			return nil, fmt.Errorf("mount %q: %w", text, err)
		}
		for _, path := range []string{from, to} {
			if _, err := os.Stat(path); err != nil {
				return nil, fmt.Errorf("mount %q on node %d: %w; source and target must exist",
					text, node, err)
			}
		}
		out = append(out, mount{from, to})
	}
	return out, nil
}
