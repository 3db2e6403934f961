package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// givenTo gives a file to another user, which only root can do.
func givenTo(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to another user")
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Skipf("files cannot be given to another user here: %v", err)
	}
}

// TestRuntimeDirectoryOfAnotherUserIsIgnored has XDG_RUNTIME_DIR name another user's directory, as
// after su.
func TestRuntimeDirectoryOfAnotherUserIsIgnored(t *testing.T) {
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

// TestSocketDirectoryOfAnotherUserIsRejected: its owner could put another socket there.
func TestSocketDirectoryOfAnotherUserIsRejected(t *testing.T) {
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

// TestLockFileOfAnotherUserIsRejected: its owner could remove it, and a second daemon could start.
func TestLockFileOfAnotherUserIsRejected(t *testing.T) {
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

func TestSocketOfAnotherUserIsNotRemoved(t *testing.T) {
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
