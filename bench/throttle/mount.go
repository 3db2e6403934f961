package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// mounted is a mounted source. gone is closed when it was unmounted, by this process or another.
type mounted struct {
	dir  string
	gone chan struct{}
}

// mount mounts the source on dir. Its goroutines end with the mount.
func mount(src *source, dir string, attrTimeout time.Duration) (*mounted, error) {
	st, err := src.stat()
	if err != nil {
		return nil, err
	}
	src.dev = uint64(st.Dev)
	return mountTree(src, dir, &node{src: src}, fs.Options{
		EntryTimeout: &attrTimeout,
		AttrTimeout:  &attrTimeout,
		MountOptions: fuse.MountOptions{
			Options:       []string{"ro"},
			DisableXAttrs: true,
			DisableSplice: true, // answers are in memory
		},
	})
}

// stat returns the state of the source's directory.
func (s *source) stat() (st syscall.Stat_t, err error) {
	if err := syscall.Stat(s.root, &st); err != nil {
		return st, &os.PathError{Op: "stat", Path: s.root, Err: err}
	}
	return st, nil
}

// mountTree mounts the tree below top on dir, with the options that all mounts have in addition.
func mountTree(src *source, dir string, top fs.InodeEmbedder, o fs.Options) (*mounted, error) {
	o.AllowOther = os.Getuid() == 0
	o.MaxWrite = fuse.MAX_KERNEL_WRITE // the largest read, too
	o.FsName, o.Name = src.root, "throttle"
	o.DirectMount = true
	o.Logger = log.New(os.Stderr, "throttle: ", 0)
	server, err := fs.Mount(dir, top, &o)
	if err != nil {
		return nil, fmt.Errorf("mount %s on %s: %w", src.root, dir, err)
	}
	m := &mounted{dir: dir, gone: make(chan struct{})}
	go func() { // ends when the mount is gone
		server.Wait()
		close(m.gone)
	}()
	return m, nil
}

// close unmounts the source at once, even if it is in use: later reads fail.
func (m *mounted) close() {
	select {
	case <-m.gone:
		return
	default:
	}
	if err := unix.Unmount(m.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		if out, err := exec.Command("fusermount3", "-uz", m.dir).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "throttle: unmount %s: %v: %s\n", m.dir, err, out)
		}
	}
}
