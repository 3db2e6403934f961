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

// Endpoint is where this user's daemon listens, by the rule of docs/FORMATS.md, which
// python/hdmlp/_daemon.py follows as well.
type Endpoint struct {
	Addr *net.UnixAddr
	// private: the socket is in a directory of ours below XDG_RUNTIME_DIR, which the daemon makes.
	private bool
	// Other is where commands look for a daemon next: one that was started without XDG_RUNTIME_DIR,
	// or before sockets were paths. nil: nowhere.
	Other *net.UnixAddr
}

// longestName is how many bytes the kernel takes as a path, or as an abstract name.
const longestName = 107

// Address returns where this user's daemon listens: where HDMLP_SOCKET says, else below
// XDG_RUNTIME_DIR if that is a directory of this user alone, else at an abstract name. An error is
// wrong input.
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
		return e, fmt.Errorf("HDMLP_SOCKET=%s: a relative path, which other processes would take "+
			"for another file; give an absolute path, or a name without a slash", name)
	case name != "":
		name = "@" + name
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

// private reports whether dir is a directory of this user alone that can be written to.
func private(dir string) bool {
	var st unix.Stat_t
	return strings.HasPrefix(dir, "/") && unix.Stat(dir, &st) == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFDIR &&
		int(st.Uid) == os.Geteuid() && st.Mode&0o777 == 0o700 && unix.Access(dir, unix.W_OK) == nil
}

// userName is how messages name a user.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("%s (%s)", u.Username, id)
	}
	return id
}
