package devcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stateVersion is the version of state files.
const stateVersion = 1

// state is what other processes need to know of a run. Its file is locked for as long
// as the run's process lives: who can lock it has found a dead run.
type state struct {
	Version  int         `json:"version"`
	Run      string      `json:"run"`
	Marker   string      `json:"marker"` // TORCHELASTIC_RUN_ID of its processes
	Loopback string      `json:"loopback,omitempty"`
	Bridge   namespace   `json:"bridge"`
	Nodes    []nodeState `json:"nodes"`
}

type nodeState struct {
	Address   string    `json:"address"`
	Namespace namespace `json:"namespace"`
	Mounts    bool      `json:"mounts"` // it has a mount namespace as well
}

func (c *Cluster) describe() (s state, err error) {
	s = state{Version: stateVersion, Run: c.name, Marker: c.marker}
	if c.loopback != nil {
		s.Loopback = c.loopback.Error()
	} else if s.Bridge, err = c.bridge.namespace(); err != nil {
		return s, err
	}
	for _, n := range c.nodes {
		d := nodeState{Address: n.Address(), Mounts: len(c.options.Mounts) > 0}
		if d.Namespace, err = n.thread.namespace(); err != nil {
			return s, err
		}
		s.Nodes = append(s.Nodes, d)
	}
	return s, nil
}

// stateDir is where this user's state files lie: nobody else may write there.
func stateDir() (string, error) {
	dir := fmt.Sprintf("%s/hdmlp-dev-%d", os.TempDir(), os.Getuid())
	for _, parent := range []string{
		os.Getenv("XDG_RUNTIME_DIR"),
		fmt.Sprintf("/run/user/%d", os.Getuid()),
	} {
		if filepath.IsAbs(parent) && unix.Access(parent, unix.W_OK) == nil {
			dir = filepath.Join(parent, "hdmlp-dev")
			break
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make the directory of running clusters: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("the directory of running clusters: %w", err)
	}
	if s := info.Sys().(*syscall.Stat_t); !info.IsDir() || int(s.Uid) != os.Getuid() ||
		info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s must be a directory that belongs to user %d alone (mode 0700): "+
			"see who made it, and remove it", dir, os.Getuid())
	}
	return dir, nil
}

// stateFile is the state file of a run of this process.
type stateFile struct {
	path string
	file *os.File // holds the lock
}

// newStateFile writes a state file. It is locked before it has its name.
func newStateFile(s state) (*stateFile, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return nil, fmt.Errorf("make a state file: %w", err)
	}
	defer os.Remove(f.Name())
	path := filepath.Join(dir, s.Run+".json")
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = json.NewEncoder(f).Encode(s)
	}
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("a run named %q is running already (%s); give this one "+
				"another name", s.Run, path)
		}
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &stateFile{path, f}, nil
}

// remove removes the file; a nil file is removed already.
func (s *stateFile) remove() error {
	if s == nil {
		return nil
	}
	err := os.Remove(s.path)
	s.file.Close()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the state file: %w", err)
	}
	return nil
}

// flock is flock(2) that goes on after signals.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// readState opens and validates a state file. The file is to be closed.
func readState(path string) (*os.File, state, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, state{}, fmt.Errorf("open a state file: %w", err)
	}
	s, err := parseState(f)
	if err != nil {
		f.Close()
		return nil, state{}, fmt.Errorf("%s: %w; if no run is called so, remove it", path, err)
	}
	return f, s, nil
}

func parseState(f *os.File) (s state, err error) {
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	if u := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || int(u.Uid) != os.Getuid() ||
		info.Mode().Perm()&0o077 != 0 {
		return s,
			fmt.Errorf("it is not a file that belongs to user %d alone (mode 0600)", os.Getuid())
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("it is not a state file: %w", err)
	}
	switch {
	case s.Version != stateVersion:
		return s, fmt.Errorf("it is of version %d, and this program reads version %d", s.Version,
			stateVersion)
	case !runName.MatchString(s.Run) || s.Run+".json" != info.Name() ||
		!strings.HasPrefix(s.Marker, "hdmlp-dev-"+s.Run+"-"):
		return s, errors.New("it is not a state file: its name is not its run's")
	case len(s.Nodes) < 1 || len(s.Nodes) > maxNodes:
		return s, fmt.Errorf("it is not a state file: it has %d nodes", len(s.Nodes))
	}
	return s, nil
}

// stateFiles are the paths of all state files.
func stateFiles() ([]string, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	return filepath.Glob(dir + "/*.json")
}

// Sweep ends what runs have left whose process died without ending them.
func Sweep() error {
	paths, err := stateFiles()
	if err != nil {
		return err
	}
	for _, path := range paths {
		err = errors.Join(err, reap(path, unix.LOCK_EX|unix.LOCK_NB))
	}
	return err
}

// Reap waits for the end of the process that has the state file, and ends what
// the run left, if it left anything. It is to run in a process of its own, which
// no signal reaches that ends the first.
func Reap(path string) error { return reap(path, unix.LOCK_EX) }

func reap(path string, how int) error {
	f, s, err := readState(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := flock(f, how); errors.Is(err, unix.EWOULDBLOCK) {
		return nil // it lives
	} else if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil || now.Nlink == 0 {
		return err // it ended as it should
	}
	if err := (processes{marker: s.Marker}).kill(); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the state file of a dead run: %w", err)
	}
	return nil
}
