package folder

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/dataset/folder/indexfile"
)

// besideTimeout is how long a file beside the index may take to be read or written.
const besideTimeout = 10 * time.Second

// ReadBeside implements dataset.Beside.
func (f *Folder) ReadBeside(suffix string, most int64) (data []byte, path string, err error) {
	type result struct {
		data []byte
		path string
		err  error
	}
	r, err := beside(f, "read", func(files *indexfile.Files) (r result) {
		r.data, r.path, r.err = files.ReadBeside(suffix, most)
		return r
	})
	if err != nil {
		return nil, f.places[0].Path() + suffix, err
	}
	return r.data, r.path, r.err
}

// WriteBeside implements dataset.Beside.
func (f *Folder) WriteBeside(suffix string, data []byte) (path string, err error) {
	type result struct {
		path string
		err  error
	}
	r, err := beside(f, "write", func(files *indexfile.Files) (r result) {
		r.path, r.err = files.WriteBeside(suffix, data)
		return r
	})
	if err != nil {
		return "", err
	}
	return r.path, r.err
}

// beside calls do with the places of the index. If a system call hangs, it gives up: the goroutine
// then ends with that call, and has its own descriptor of the root.
func beside[R any](f *Folder, op string, do func(*indexfile.Files) R) (r R, err error) {
	root, err := unix.FcntlInt(uintptr(f.root.Load().FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return r, fmt.Errorf("%s a file beside the index of %s: %w", op, f.path, err)
	}
	done := make(chan R, 1)
	go func() {
		defer unix.Close(root) //nolint:errcheck // a directory
		done <- do(&indexfile.Files{
			Root: f.path, RootFD: root, Places: f.places, Calls: new(caller),
		})
	}()
	select {
	case r = <-done:
		return r, nil
	case <-time.After(besideTimeout):
		return r, fmt.Errorf("%s a file beside the index of %s: it has not returned for %v", op,
			f.path, besideTimeout)
	}
}
