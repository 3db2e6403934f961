package socket

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Endpoint is where this user's daemon listens. docs/FORMATS.md defines it;
// python/hdmlp/_daemon/address.py implements the same rule.
type Endpoint struct {
	Addr *net.UnixAddr
	// private means that the socket is in a directory of this user below XDG_RUNTIME_DIR, which the
	// daemon creates.
	private bool
	// Other is the address at which commands look next, for a daemon that was started without
	// XDG_RUNTIME_DIR. nil: none.
	Other *net.UnixAddr
}

// longestName is the kernel's limit on the bytes of a socket's path or abstract name.
const longestName = 107

// Address returns where this user's daemon listens: at HDMLP_SOCKET if that is set, else below
// XDG_RUNTIME_DIR if that directory is private to this user, else at an abstract name. An error
// means that a variable has a wrong value.
func Address(environment func(string) string) (Endpoint, error) {
	abstract := &net.UnixAddr{Name: "@hdmlp-" + strconv.Itoa(os.Geteuid()), Net: "unix"}
	key, e := "HDMLP_SOCKET", Endpoint{}
	name := environment(key)
	switch {
	case strings.HasSuffix(name, "/"):
		return e, fmt.Errorf("HDMLP_SOCKET=%s: a directory, not a socket; give the path of a "+
			"socket in it", name)
	case strings.HasPrefix(name, "/"):
	case strings.Contains(name, "/"):
		return e, fmt.Errorf("HDMLP_SOCKET=%s: a relative path, which means another "+
			"file in other processes; give an absolute path, or a name without a slash", name)
	case name != "":
		if !strings.HasPrefix(name, "@") || name == "@" {
			name = "@" + name // as messages write a name, which users copy from them
		}
	default:
		key = "XDG_RUNTIME_DIR"
		dir := strings.TrimRight(environment(key), "/")
		if !private(dir) {
			return Endpoint{Addr: abstract}, nil
		}
		name = dir + "/hdmlp/daemon.sock"
		e.private, e.Other = true, abstract
	}
	if n := len(strings.TrimPrefix(name, "@")); n > longestName {
		return e, fmt.Errorf("%s: the socket %s has %d bytes, sockets have at most %d; set "+
			"HDMLP_SOCKET to a shorter path or name",
			key, strings.TrimPrefix(name, "@"), n, longestName)
	}
	e.Addr = &net.UnixAddr{Name: name, Net: "unix"}
	return e, nil
}

// private reports whether dir is a writable directory that only this user can access.
func private(dir string) bool {
	var st unix.Stat_t
	return strings.HasPrefix(dir, "/") && unix.Stat(dir, &st) == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFDIR &&
		int(st.Uid) == os.Geteuid() && st.Mode&0o777 == 0o700 && unix.Access(dir, unix.W_OK) == nil
}

// userName returns a user's name and number for messages.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("%s (%s)", u.Username, id)
	}
	return id
}
