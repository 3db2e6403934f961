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

	"github.com/hdmlp/hdmlp/internal/lib/files"
)

// stateVersion is the version of state files.
const stateVersion = 1

// state is what other processes need to know about a run. Its file is locked as long as the run's
// process lives: if another process can lock it, the run is dead.
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
	Mounts    bool      `json:"mounts"` // it also has a mount namespace
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

// stateDir returns the directory of this user's state files, which only the user can access.
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
		return "", fmt.Errorf("create the directory of running clusters: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("the directory of running clusters: %w", err)
	}
	if s := info.Sys().(*syscall.Stat_t); !info.IsDir() || int(s.Uid) != os.Getuid() ||
		info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s must be a directory that only user %d can access (mode 0700); "+
			"check its origin, and remove it", dir, os.Getuid())
	}
	return dir, nil
}

// stateFile is the state file of a run of this process.
type stateFile struct {
	path string
	file files.File // holds the lock
}

// newStateFile writes a state file, which is locked before it gets its name.
func newStateFile(disk files.Disk, s state) (f *stateFile, err error) {
	for range 3 { // the last run of the user that ends meanwhile removes the directory
		if f, err = tryStateFile(disk, s); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	return f, err
}

func tryStateFile(disk files.Disk, s state) (*stateFile, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	in, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory of running clusters: %w", err)
	}
	defer in.Close()
	path := filepath.Join(dir, s.Run+".json")
	f, err := files.Create(disk, int(in.Fd()), path, 0o600, func(f files.File) error {
		if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return err
		}
		return json.NewEncoder(f).Encode(s)
	})
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("a run named %q is running already (%s); choose another name", s.Run,
			path)
	}
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &stateFile{path, f}, nil
}

// remove removes the file. It does nothing if s is nil.
func (s *stateFile) remove() error {
	if s == nil {
		return nil
	}
	err := os.Remove(s.path)
	s.file.Close()
	_ = os.Remove(filepath.Dir(s.path)) // fails while it has files of other runs
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the state file: %w", err)
	}
	return nil
}

// flock calls flock(2), and repeats it if a signal interrupts it.
func flock(f interface{ Fd() uintptr }, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// readState opens and validates a state file. The caller must close the file.
func readState(path string) (*os.File, state, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, state{}, fmt.Errorf("open a state file: %w", err)
	}
	s, err := parseState(f)
	if err != nil {
		f.Close()
		return nil, state{}, fmt.Errorf("%s: %w; if there is no run of this name, remove the file",
			path, err)
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
		return s, fmt.Errorf("it is not a file that only user %d can access (mode 0600)", os.Getuid())
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
		return s, fmt.Errorf("it has version %d, but this program reads version %d", s.Version,
			stateVersion)
	case !runName.MatchString(s.Run) || s.Run+".json" != info.Name() ||
		!strings.HasPrefix(s.Marker, "hdmlp-dev-"+s.Run+"-"):
		return s, errors.New("it is not a state file: its name differs from its run's")
	case len(s.Nodes) < 1 || len(s.Nodes) > maxNodes:
		return s, fmt.Errorf("it is not a state file: it has %d nodes", len(s.Nodes))
	}
	return s, nil
}

// stateFiles returns the paths of all state files.
func stateFiles() ([]string, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	return filepath.Glob(dir + "/*.json")
}

// Sweep kills the processes of dead runs, whose own process died without doing so.
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

// Reap waits for the end of the process that holds the state file, and kills the processes that the
// run has left. It must run in a process of its own, which does not get the signals that end the
// first.
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
		return nil // the run is alive
	} else if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil || now.Nlink == 0 {
		return err // the run ended in order, and removed its file
	}
	if err := (processes{marker: s.Marker}).kill(); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the state file of a dead run: %w", err)
	}
	return nil
}
