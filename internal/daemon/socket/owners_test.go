package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// givenTo makes a file another user's; only root can.
func givenTo(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to another user")
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Skipf("files cannot be given to another user here: %v", err)
	}
}

// TestRuntimeDirectoryOfAnotherUser: XDG_RUNTIME_DIR counts only where it is this user's own, and
// not, as after su, the user's before.
func TestRuntimeDirectoryOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	givenTo(t, dir)
	if e := mustAddress(t, map[string]string{"XDG_RUNTIME_DIR": dir}); e.Addr.Name != "@hdmlp-"+
		userNumber() {
		t.Errorf("the daemon listens at %s", e.Addr.Name)
	}
}

// TestSocketDirectoryOfAnotherUser: no daemon listens in a directory whose owner could put another
// socket there.
func TestSocketDirectoryOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "hdmlp")
	if err := errors.Join(os.Chmod(dir, 0o700), os.Mkdir(own, 0o700)); err != nil {
		t.Fatal(err)
	}
	givenTo(t, own)
	l, err := Listen(mustAddress(t, map[string]string{"XDG_RUNTIME_DIR": dir}))
	if err == nil {
		l.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "has owner") {
		t.Errorf("it listens: %v", err)
	}
}

// TestLockOfAnotherUser: a lock file of another user, who could remove it and let a second daemon
// in, is no lock.
func TestLockOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	givenTo(t, path+".lock")
	l, err := Listen(mustAddress(t, map[string]string{"HDMLP_SOCKET": path}))
	if err == nil {
		l.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "not a regular file of user") {
		t.Errorf("it is taken: %v", err)
	}
	if _, err := os.Stat(path + ".lock"); err != nil {
		t.Errorf("it was removed: %v", err)
	}
}

// TestSocketOfAnotherUser: a socket that another user has left is not removed.
func TestSocketOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	e := mustAddress(t, map[string]string{"HDMLP_SOCKET": path})
	stale, err := net.ListenUnix("unix", e.Addr)
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	givenTo(t, path)
	l, err := Listen(e)
	if err == nil {
		l.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "belongs to user") {
		t.Errorf("it is taken: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("it was removed: %v", err)
	}
}
