package index

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Beside reads and writes small files beside the index of a folder (source.Beside). The zero value
// has no place for any. It is safe for concurrent use.
type Beside struct {
	root      string
	rootFD    func() int
	locations []Location
}

// NewBeside returns the files beside the index of a folder. rootFD returns a descriptor of its
// root; -1: it has none.
func NewBeside(root string, rootFD func() int, locations []Location) Beside {
	return Beside{root: root, rootFD: rootFD, locations: locations}
}

// besideTimeout is how long a file may take to be read or written.
const besideTimeout = 10 * time.Second

// silent ignores system calls.
type silent struct{}

func (silent) Begin(_, _, _ string) {}
func (silent) End()                 {}

// found is a file, or why it cannot be used.
type found struct {
	data []byte
	path string
	time int64 // of its last change, nanoseconds
	err  error
}

// ReadBeside implements source.Beside.
func (b *Beside) ReadBeside(suffix string, most int64, usable func(data []byte) error) (
	data []byte, path string, err error,
) {
	f := b.within("read", func(files *Files) found {
		return files.newestBeside(suffix, most, usable)
	})
	return f.data, f.path, f.err
}

// WriteBeside implements source.Beside.
func (b *Beside) WriteBeside(suffix string, data []byte) (path string, err error) {
	f := b.within("write", func(files *Files) found { return files.writeBeside(suffix, data) })
	return f.path, f.err
}

// within calls do. If a system call hangs, it gives up: the goroutine then ends with that call, and
// has its own descriptor of the root.
func (b *Beside) within(op string, do func(*Files) found) found {
	if len(b.locations) == 0 {
		return found{err: errors.New("the dataset has no place for a file beside its index")}
	}
	root := b.rootFD()
	if root >= 0 {
		var err error
		if root, err = unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return found{err: fmt.Errorf("%s a file beside the index of %s: %w", op, b.root, err)}
		}
	}
	done := make(chan found, 1)
	go func() {
		defer unix.Close(root) //nolint:errcheck // a directory
		done <- do(&Files{
			Root: b.root, RootFD: root, Rootless: root < 0, Locations: b.locations, Calls: silent{},
		})
	}()
	select {
	case f := <-done:
		return f
	case <-time.After(besideTimeout):
		return found{err: fmt.Errorf("%s a file beside the index of %s: it has not returned for %v",
			op, b.root, besideTimeout)}
	}
}

// newestBeside reads the newest file of locations that can be used; if there is none, the first.
func (x *Files) newestBeside(suffix string, most int64, usable func([]byte) error) (best found) {
	for _, p := range x.Locations {
		p.name += suffix
		f := x.readBeside(p, most)
		if f.err == nil {
			f.err = usable(f.data)
		}
		switch {
		case errors.Is(f.err, unix.ENOENT):
		case best.path == "", f.err == nil && (best.err != nil || f.time > best.time):
			best = f
		}
	}
	return best
}

// readBeside reads the file at p.
func (x *Files) readBeside(p Location, most int64) found {
	f := found{path: p.Path()}
	fd, st, err := x.openFile(p)
	if err != nil {
		f.err = err
		return f
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	f.time = st.Mtim.Nano()
	if st.Size > most {
		f.err = fmt.Errorf("it has %s; at most %s are read", human.Format(st.Size), human.Format(most))
		return f
	}
	f.data, f.err = io.ReadAll(io.LimitReader(&reader{fd: fd, calls: x.Calls, location: p}, most))
	return f
}

// writeBeside replaces the file in the first of locations that is writable.
func (x *Files) writeBeside(suffix string, data []byte) found {
	var errs []error
	for _, p := range x.Locations {
		p.name += suffix
		err := x.replace(p, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
		if err == nil {
			return found{path: p.Path()}
		}
		errs = append(errs, fmt.Errorf("write %s: %w", p.Path(), tooLong(err)))
	}
	return found{err: nowhere(errs)}
}
