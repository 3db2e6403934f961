package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func addressOf(t *testing.T, environment map[string]string) (Endpoint, error) {
	t.Helper()
	return Address(func(key string) string { return environment[key] })
}

func mustAddress(t *testing.T, environment map[string]string) Endpoint {
	t.Helper()
	e, err := addressOf(t, environment)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestAddressFollowsTheDocumentedRule checks the rule of docs/FORMATS.md;
// python/tests/test_socket.py compares both implementations.
func TestAddressFollowsTheDocumentedRule(t *testing.T) {
	private, open := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chmod(private, 0o700), os.Chmod(open, 0o755)); err != nil {
		t.Fatal(err)
	}
	own := "@hdmlp-" + userNumber()
	long := strings.Repeat("x", 108)
	for _, c := range []struct {
		socket, dir, want, complaint string
	}{
		{"", "", own, ""},
		{"", private, private + "/hdmlp/daemon.sock", ""},
		{"", private + "//", private + "/hdmlp/daemon.sock", ""},
		{"", open, own, ""},
		{"", private + "/none", own, ""},
		{"", "relative", own, ""},
		{"name", private, "@name", ""},
		{"@name", private, "@name", ""},
		{"@", private, "@@", ""},
		{"/run/x.sock", private, "/run/x.sock", ""},
		{"x/y.sock", "", "", "relative path"},
		{"/run/user/1/", "", "", "a directory, not a socket"},
		{long, "", "", "108 bytes, sockets have at most 107"},
		{"/" + long, "", "", "109 bytes, sockets have at most 107"},
		{long[:107], "", "@" + long[:107], ""},
	} {
		e, err := addressOf(t,
			map[string]string{"HDMLP_SOCKET": c.socket, "XDG_RUNTIME_DIR": c.dir})
		switch {
		case c.complaint != "":
			if err == nil || !strings.Contains(err.Error(), c.complaint) {
				t.Errorf("%q, %q: %v, want %q", c.socket, c.dir, err, c.complaint)
			}
		case err != nil || e.Addr.Name != c.want:
			t.Errorf("%q, %q: %+v, %v, want %q", c.socket, c.dir, e, err, c.want)
		}
	}
}

func userNumber() string { return strconv.Itoa(os.Geteuid()) }

// TestOneDaemonListensAtAPath checks also that only what a killed daemon left is replaced, and
// nothing else.
func TestOneDaemonListensAtAPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d.sock")
	e := mustAddress(t, map[string]string{"HDMLP_SOCKET": path})
	first, err := Listen(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(e); !errors.Is(err, ErrRunning) {
		t.Errorf("a second daemon: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	first.Close()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("a daemon that has ended left %v", left)
	}

	// As after kill -9: the socket and the lock file exist, and no process holds them.
	stale, err := net.ListenUnix("unix", e.Addr)
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(e)
	if err != nil {
		t.Fatalf("after a daemon that was killed: %v", err)
	}
	// If the socket was replaced by another program's, that one is not removed.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := net.ListenUnix("unix", e.Addr)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("another program's socket was removed: %v", err)
	}
	if _, err := Listen(e); err == nil ||
		!strings.Contains(err.Error(), "another program listens") {
		t.Errorf("at another program's socket: %v", err)
	}
	other.Close()

	if err := os.WriteFile(path, []byte("letter"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(e); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("at a file: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "letter" {
		t.Errorf("the file now has %q", text)
	}
	if err := errors.Join(os.Remove(path), os.Symlink("target", path+".lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(e); err == nil || errors.Is(err, ErrRunning) {
		t.Errorf("with a link as lock file: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "target")); err == nil {
		t.Error("the link was followed")
	}
}

// TestLockFileWithContentsIsLeftAlone puts a user's file at the path of the lock file.
func TestLockFileWithContentsIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	e := mustAddress(t, map[string]string{"HDMLP_SOCKET": path})
	write := func() {
		t.Helper()
		if err := os.WriteFile(path+".lock", []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(when string) {
		t.Helper()
		if text, err := os.ReadFile(path + ".lock"); string(text) != "precious" {
			t.Errorf("%s the file has %q, %v", when, text, err)
		}
	}
	write()
	l, err := Listen(e)
	if err == nil || !strings.Contains(err.Error(), path+".lock: it has 8 bytes") ||
		!strings.Contains(err.Error(), "HDMLP_SOCKET") {
		t.Errorf("it was taken as the lock: %v", err)
	}
	if err == nil {
		l.Close()
	}
	kept("after a daemon that did not start")

	if err := os.Remove(path + ".lock"); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if l, err = Listen(e); err != nil {
		t.Fatal(err)
	}
	write()
	l.Close()
	kept("after a daemon during which it was written")
}

func TestDirectoryBelowRuntimeDirMustBePrivate(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	e := mustAddress(t, map[string]string{"XDG_RUNTIME_DIR": dir})
	l, err := Listen(e)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	own := filepath.Join(dir, "hdmlp")
	if info, err := os.Stat(own); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	if err := os.Chmod(own, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(e); err == nil || !strings.Contains(err.Error(), "mode 0777") {
		t.Errorf("in a directory that others may write to: %v", err)
	}
	if err := errors.Join(os.Remove(own), os.Symlink(t.TempDir(), own)); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(e); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("in a directory that is a link: %v", err)
	}
}

// TestConcurrentListenersTakeTurns starts and stops many at once: there must be one at a time.
func TestConcurrentListenersTakeTurns(t *testing.T) {
	e := mustAddress(t, map[string]string{"HDMLP_SOCKET": filepath.Join(t.TempDir(), "d.sock")})
	var now, most, served atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				l, err := Listen(e)
				if errors.Is(err, ErrRunning) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				served.Add(1)
				now.Add(-1)
				l.Close()
			}
		})
	}
	all.Wait()
	if most.Load() != 1 || served.Load() == 0 {
		t.Errorf("%d at a time, %d in all", most.Load(), served.Load())
	}
}
