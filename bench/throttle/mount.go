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
	var st syscall.Stat_t
	if err := syscall.Stat(src.root, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: src.root, Err: err}
	}
	src.dev = uint64(st.Dev)
	server, err := fs.Mount(dir, &node{src: src}, &fs.Options{
		EntryTimeout: &attrTimeout,
		AttrTimeout:  &attrTimeout,
		MountOptions: fuse.MountOptions{
			AllowOther:    os.Getuid() == 0,
			MaxWrite:      fuse.MAX_KERNEL_WRITE, // the largest read, too
			FsName:        src.root,
			Name:          "throttle",
			DirectMount:   true,
			Options:       []string{"ro"},
			DisableXAttrs: true,
			DisableSplice: true, // answers are in memory
			Logger:        log.New(os.Stderr, "throttle: ", 0),
		},
	})
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
