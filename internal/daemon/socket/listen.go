// Package socket determines where a node's daemon listens, from the environment of a process, and
// takes that address with a lock so that only one daemon listens there.
package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrRunning is returned by Listen if another daemon listens there, or has not ended yet.
var ErrRunning = errors.New("a daemon is running already")

// Listener accepts a daemon's connections.
type Listener interface {
	AcceptUnix() (*net.UnixConn, error)
	Close() error
}

// Listen takes the endpoint for this process alone. It returns ErrRunning if another process has
// it.
//
// The kernel frees an abstract name when the process that holds it ends, but it does not remove a
// path. So there is a lock file next to a socket with a path: only the process that has locked it
// may remove the socket and create a new one.
func Listen(e Endpoint) (Listener, error) {
	if strings.HasPrefix(e.Addr.Name, "@") {
		l, err := net.ListenUnix("unix", e.Addr)
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, taken(e.Addr)
		}
		return l, err
	}
	d, err := openDirectory(e)
	if err != nil {
		return nil, err
	}
	l, err := d.listen(e.Addr)
	if err != nil {
		d.file.Close()
		return nil, err
	}
	return l, nil
}

// taken returns the error for an abstract name that is in use.
func taken(a *net.UnixAddr) error {
	conn, err := net.DialUnix("unix", nil, a)
	if err != nil {
		// The other daemon is starting or shutting down.
		return fmt.Errorf("%w: the socket %s is in use", ErrRunning, a.Name)
	}
	defer conn.Close()
	cred, err := Peer(conn)
	if err == nil && int(cred.Uid) != os.Geteuid() {
		return Foreign(a, cred.Uid)
	}
	return ErrRunning
}

// Foreign is the error for a socket that belongs to another user.
func Foreign(a *net.UnixAddr, uid uint32) error {
	return fmt.Errorf("the socket %s belongs to user %s, not to %s; set XDG_RUNTIME_DIR to a "+
		"directory of your own (mode 0700), or HDMLP_SOCKET to another path or name",
		a.Name, userName(uid), userName(uint32(os.Geteuid())))
}

// directory is the open directory of a socket that has a path.
type directory struct {
	file *os.File
	path string
}

// openDirectory opens the endpoint's directory. One below XDG_RUNTIME_DIR is created if needed, and
// must be accessible to this user alone.
func openDirectory(e Endpoint) (directory, error) {
	path := filepath.Dir(e.Addr.Name)
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	if e.private {
		flags |= unix.O_NOFOLLOW
		if err := unix.Mkdir(path, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return directory{}, fmt.Errorf("create the directory %s of the daemon's socket: %w; "+
				"set HDMLP_SOCKET to another path or name", path, err)
		}
	}
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return directory{}, fmt.Errorf("open the directory %s of the daemon's socket: %w; set "+
			"HDMLP_SOCKET to another path or name", path, err)
	}
	d := directory{os.NewFile(uintptr(fd), path), path}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		d.file.Close()
		return d, fmt.Errorf("the directory %s of the daemon's socket: %w", path, err)
	}
	if e.private && (int(st.Uid) != os.Geteuid() || st.Mode&0o777 != 0o700) {
		d.file.Close()
		return d, fmt.Errorf("the directory %s of the daemon's socket has owner %s and mode "+
			"%04o, not %s and 0700: remove it, or set HDMLP_SOCKET to another path or name",
			path, userName(st.Uid), st.Mode&0o777, userName(uint32(os.Geteuid())))
	}
	return d, nil
}

// listen takes the lock, removes what a killed daemon left, and binds the socket.
func (d directory) listen(a *net.UnixAddr) (Listener, error) {
	name := filepath.Base(a.Name)
	lock, err := d.lock(name + ".lock")
	if err != nil {
		return nil, err
	}
	l, err := d.bind(name, a)
	if err != nil {
		d.unlock(lock.Name(), lock)
		lock.Close()
		return nil, err
	}
	return l.with(lock), nil
}

// lock opens and locks the file of this name in the directory, which it creates if needed.
func (d directory) lock(name string) (*os.File, error) {
	path := filepath.Join(d.path, name)
	for {
		fd, err := unix.Openat(int(d.file.Fd()), name,
			unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the lock file %s of the daemon's socket: %w; set "+
				"HDMLP_SOCKET to another path or name", path, err)
		}
		f := os.NewFile(uintptr(fd), name)
		var st, now unix.Stat_t
		err = unix.Fstat(fd, &st)
		switch {
		case err != nil:
		case st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid():
			err = fmt.Errorf("it is not a regular file of user %s: remove it, or set "+
				"HDMLP_SOCKET to another path or name", userName(uint32(os.Geteuid())))
		case st.Size != 0: // a daemon writes nothing to its lock file
			err = fmt.Errorf("it has %d bytes, but a daemon's lock file is empty; it is left as "+
				"it is; set HDMLP_SOCKET to another path or name", st.Size)
		default:
			err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, ErrRunning
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// A daemon removes its lock file when it ends. Another process may then have created and
		// locked a new one.
		err = unix.Fstatat(int(d.file.Fd()), name, &now, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && now.Ino == st.Ino && now.Dev == st.Dev {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// bind creates the socket. The caller holds the lock.
func (d directory) bind(name string, a *net.UnixAddr) (*pathListener, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(d.file.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return nil, fmt.Errorf("stat %s: %w", a.Name, err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return nil, fmt.Errorf("%s is not a socket, and is left as it is; set HDMLP_SOCKET to "+
			"another path or name", a.Name)
	case int(st.Uid) != os.Geteuid():
		return nil, Foreign(a, st.Uid)
	default:
		// The socket is this user's, and of no daemon that holds the lock. It may be another
		// program's.
		conn, err := net.DialUnix("unix", nil, a)
		switch {
		case err == nil:
			conn.Close()
			return nil, fmt.Errorf("another program listens at %s; it is left as it is; set "+
				"HDMLP_SOCKET to another path or name", a.Name)
		case !errors.Is(err, unix.ECONNREFUSED):
			return nil, fmt.Errorf("another program listens at %s and does not accept "+
				"connections (%w); it is left as it is; set HDMLP_SOCKET to another path or name",
				a.Name, err)
		}
		if err := unix.Unlinkat(int(d.file.Fd()), name, 0); err != nil &&
			!errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("remove the socket %s of a daemon that has ended: %w", a.Name, err)
		}
	}
	before := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", a)
	unix.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w; set HDMLP_SOCKET to another path or name",
			a.Name, err)
	}
	l.SetUnlinkOnClose(false) // it would remove whatever is at the path by then
	p := &pathListener{UnixListener: l, dir: d, name: name}
	if err := unix.Fstatat(int(d.file.Fd()), name, &p.made, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		l.Close()
		return nil, fmt.Errorf("the directory %s was replaced while the daemon created its "+
			"socket in it: %w", d.path, err)
	}
	return p, nil
}

// unlock removes the lock file of this name if it is still f, and is still empty.
func (d directory) unlock(name string, f *os.File) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil && st.Size == 0 {
		d.removeThat(name, &st)
	}
}

// removeThat removes the directory entry of this name if it is still that file.
func (d directory) removeThat(name string, that *unix.Stat_t) {
	var now unix.Stat_t
	if unix.Fstatat(int(d.file.Fd()), name, &now, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		now.Ino == that.Ino && now.Dev == that.Dev {
		_ = unix.Unlinkat(int(d.file.Fd()), name, 0)
	}
}

// pathListener listens at a path, and holds its lock.
type pathListener struct {
	*net.UnixListener
	dir  directory
	name string
	made unix.Stat_t // the socket
	lock *os.File
	once sync.Once
	err  error
}

func (p *pathListener) with(lock *os.File) *pathListener {
	p.lock = lock
	return p
}

// Close stops listening and removes the socket and the lock file. After that another daemon may
// listen at the path.
func (p *pathListener) Close() error {
	p.once.Do(func() {
		p.dir.removeThat(p.name, &p.made)
		p.err = p.UnixListener.Close()
		p.dir.unlock(p.lock.Name(), p.lock)
		p.lock.Close()
		p.dir.file.Close()
	})
	return p.err
}

// Peer returns the credentials of the process at the other end of the connection.
func Peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("peer of connection: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("peer of connection: %w", err)
	}
	if credErr != nil {
		return nil, fmt.Errorf("peer of connection: %w", credErr)
	}
	return cred, nil
}
