package devcluster

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Running is a cluster that is run by another process.
type Running struct{ state state }

// ErrNoRun is returned if there is no such run.
var ErrNoRun = errors.New("no such run")

// noRunError is ErrNoRun with a text of its own.
type noRunError struct{ text string }

func (e *noRunError) Error() string        { return e.text }
func (e *noRunError) Is(target error) bool { return target == ErrNoRun }

func noRun(format string, args ...any) error { return &noRunError{fmt.Sprintf(format, args...)} }

// Find returns this user's running cluster of this name or, if run is empty, the only one.
func Find(run string) (*Running, error) {
	all, err := running()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		if s.Run == run || run == "" && len(all) == 1 {
			return &Running{s}, nil
		}
		names = append(names, s.Run)
	}
	switch {
	case len(all) == 0:
		return nil, noRun("user %d runs no cluster; start one with `hdmlp dev cluster`", os.Getuid())
	case run == "":
		return nil, noRun("several clusters are running: choose one with --run: %s",
			strings.Join(names, ", "))
	}
	return nil, noRun("there is no run %q; give --run one that is running: %s", run,
		strings.Join(names, ", "))
}

// running returns the states of all live runs.
func running() ([]state, error) {
	paths, err := stateFiles()
	if err != nil {
		return nil, err
	}
	var out []state
	for _, path := range paths {
		f, s, err := readState(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if errors.Is(flock(f, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
			out = append(out, s)
		}
		f.Close()
	}
	slices.SortFunc(out, func(a, b state) int { return strings.Compare(a.Run, b.Run) })
	return out, nil
}

// Name returns the run's name.
func (r *Running) Name() string { return r.state.Run }

// Len returns the number of nodes.
func (r *Running) Len() int { return len(r.state.Nodes) }

// Link returns node i's link.
func (r *Running) Link(i int) Link {
	if r.state.Loopback != "" {
		return Link{node: i, err: noLinks(r.state.Loopback)}
	}
	return Link{node: i, bridge: r.state.Bridge, home: r.state.Nodes[i].Namespace}
}

// Enter moves the calling goroutine to node i for good, and returns the variables that a process
// there needs. The caller must then call exec.
func (r *Running) Enter(i int) (environment []string, err error) {
	n := r.state.Nodes[i]
	environment = []string{
		"TORCHELASTIC_RUN_ID=" + r.state.Marker,
		"HDMLP_SOCKET=" + socket(r.state.Marker, i),
	}
	if r.state.Loopback != "" {
		return environment, nil
	}
	runtime.LockOSThread()
	if err := enter(n.Namespace, "net", unix.CLONE_NEWNET); err != nil || !n.Mounts {
		return environment, err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return nil, fmt.Errorf("leave the shared working directory: %w", err)
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if err := enter(n.Namespace, "mnt", unix.CLONE_NEWNS); err != nil {
		return nil, err
	}
	if err := os.Chdir(here); err != nil {
		return nil, fmt.Errorf("on node %d: %w", i, err)
	}
	return environment, nil
}

func enter(n namespace, kind string, flag int) error {
	f, err := n.open(kind)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), flag); err != nil {
		return kernelError("enter a node's namespace", "", err)
	}
	return nil
}
