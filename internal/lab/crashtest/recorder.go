package crashtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Recorder performs operations on files below a directory and records those that change something.
// Directories are given by their descriptors, as in openat(2). It is safe for concurrent use.
type Recorder struct {
	path string

	mu struct { // guards the following
		sync.Mutex
		root        *node
		directories map[uint64]*node // by inode number
		ops         []op
		units       []unit
		freed       []freed
	}
}

// node is a file or a directory, whatever its names are.
type node struct {
	name string // its first one, for reports
	// what is durable when the recording begins, and what the system shows now
	durable, now contents
}

// contents of a file or a directory; entries is nil for a file.
type contents struct {
	data    []byte
	entries map[string]*node
}

// op is an operation, or a synchronization.
type op struct {
	text  string
	units int // recorded when it ended
	freed int
}

// freed are the bytes of a file that was removed or truncated: what the disk still holds there, and
// what a file that is given the blocks shows until they are written.
type freed struct {
	name string
	data []byte
}

// New returns a recorder for a directory. What it contains is durable.
func New(path string) (*Recorder, error) {
	r := &Recorder{path: path}
	r.mu.directories = map[uint64]*node{}
	root, err := r.load(path)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", path, err)
	}
	root.name = "."
	r.mu.root = root
	return r, nil
}

// Disk is a recorder whose Open returns an F: the interface of files that the code under test has,
// which *File must implement.
type Disk[F any] struct{ *Recorder }

// Open opens a file; see [Recorder.Open].
func (d Disk[F]) Open(dir int, name, path string, flags int) (F, error) {
	f, err := d.Recorder.Open(dir, name, path, flags)
	if err != nil {
		var none F // not a nil *File
		return none, err
	}
	return any(f).(F), nil
}

// load returns the directory at path with all that is below it.
func (r *Recorder) load(path string) (*node, error) {
	n := newNode(filepath.Base(path), true)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, err
	}
	r.mu.directories[st.Ino] = n
	all, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, entry := range all {
		var child *node
		if below := filepath.Join(path, entry.Name()); entry.IsDir() {
			child, err = r.load(below)
		} else {
			child = newNode(entry.Name(), false)
			child.durable.data, err = os.ReadFile(below)
			child.now.data = slices.Clone(child.durable.data)
		}
		if err != nil {
			return nil, err
		}
		n.durable.entries[entry.Name()] = child
		n.now.entries[entry.Name()] = child
	}
	return n, nil
}

func newNode(name string, directory bool) *node {
	n := &node{name: name}
	if directory {
		n.durable.entries, n.now.entries = map[string]*node{}, map[string]*node{}
	}
	return n
}

// add records an operation on a node, which consists of these units.
func (r *Recorder) add(n *node, text string, units ...unit) {
	for _, u := range units {
		u.node, u.durable = n, never
		r.mu.units = append(r.mu.units, u)
	}
	r.mu.ops = append(r.mu.ops, op{text, len(r.mu.units), len(r.mu.freed)})
}

// synced records that all changes of a node are durable from now on.
func (r *Recorder) synced(n *node) {
	for i := range r.mu.units {
		if u := &r.mu.units[i]; u.node == n {
			u.durable = min(u.durable, len(r.mu.ops))
		}
	}
	r.add(n, "sync "+n.name)
}

// free records that data of a file is not part of it any more.
func (r *Recorder) free(n *node, data []byte) {
	if len(data) > 0 {
		r.mu.freed = append(r.mu.freed, freed{n.name, slices.Clone(data)})
	}
}

// in returns a directory, given its descriptor. r.mu is held.
func (r *Recorder) in(dir int) (*node, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return nil, err
	}
	n := r.mu.directories[st.Ino]
	if n == nil {
		return nil, fmt.Errorf("crashtest: descriptor %d is not of a directory below %s", dir, r.path)
	}
	return n, nil
}

// change calls do, and, if it succeeds, record with the directory.
func (r *Recorder) change(dir int, do func() error, record func(*node)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.in(dir)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	record(n)
	return nil
}

// Open opens a file; path is its Name.
func (r *Recorder) Open(dir int, name, path string, flags int) (f *File, err error) {
	err = r.change(dir, func() error {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			f = &File{file: os.NewFile(uintptr(fd), path), recorder: r}
		}
		return err
	}, func(d *node) {
		n := d.now.entries[name]
		if n == nil {
			n = newNode(name, false)
			d.now.entries[name] = n
			r.add(d, "create "+name, unit{kind: entrySet, name: name, to: n})
		}
		f.node = n
		if flags&unix.O_TRUNC != 0 {
			f.truncated(0)
		}
	})
	return f, err
}

// Rename renames an entry of a directory, and replaces one that has the name.
func (r *Recorder) Rename(dir int, from, to string) error {
	return r.change(dir, func() error { return unix.Renameat(dir, from, dir, to) }, func(d *node) {
		n := d.known(from)
		if old := d.now.entries[to]; old != nil && old != n {
			r.free(old, old.now.data)
		}
		delete(d.now.entries, from)
		d.now.entries[to] = n
		r.add(d, fmt.Sprintf("rename %s to %s", from, to),
			unit{kind: entrySet, name: to, from: from, to: n})
	})
}

// Link gives a file a second name, which must be new.
func (r *Recorder) Link(dir int, from, to string) error {
	return r.change(dir, func() error { return unix.Linkat(dir, from, dir, to, 0) }, func(d *node) {
		n := d.known(from)
		d.now.entries[to] = n
		r.add(d, fmt.Sprintf("link %s to %s", from, to), unit{kind: entrySet, name: to, to: n})
	})
}

// Remove removes a file.
func (r *Recorder) Remove(dir int, name string) error {
	return r.change(dir, func() error { return unix.Unlinkat(dir, name, 0) }, func(d *node) {
		n := d.known(name)
		r.free(n, n.now.data)
		delete(d.now.entries, name)
		r.add(d, "remove "+name, unit{kind: entrySet, name: name})
	})
}

// Mkdir creates a directory.
func (r *Recorder) Mkdir(dir int, name string) error {
	var st unix.Stat_t
	return r.change(dir, func() error {
		if err := unix.Mkdirat(dir, name, 0o700); err != nil {
			return err
		}
		return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}, func(d *node) {
		n := newNode(name, true)
		r.mu.directories[st.Ino] = n
		d.now.entries[name] = n
		r.add(d, "mkdir "+name, unit{kind: entrySet, name: name, to: n})
	})
}

// RemoveDirectory removes a directory, which must be empty.
func (r *Recorder) RemoveDirectory(dir int, name string) error {
	remove := func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) }
	return r.change(dir, remove, func(d *node) {
		delete(d.now.entries, name)
		r.add(d, "rmdir "+name, unit{kind: entrySet, name: name})
	})
}

// Sync makes the entries of a directory durable.
func (r *Recorder) Sync(dir int) error {
	return r.change(dir, func() error { return nil }, r.synced)
}

// File is an open file whose changes are recorded. What only reads goes to the system's file.
type File struct {
	file     *os.File
	recorder *Recorder
	node     *node
	at       int64 // of Write; guarded by the recorder's mu
}

// WriteAt implements io.WriterAt.
func (f *File) WriteAt(b []byte, at int64) (int, error) {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	n, err := f.file.WriteAt(b, at)
	f.written(b[:n], at)
	return n, err
}

// Write implements io.Writer. A file is written either by Write or by WriteAt.
func (f *File) Write(b []byte) (int, error) {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	n, err := f.file.Write(b)
	f.written(b[:n], f.at)
	f.at += int64(n)
	return n, err
}

// Truncate changes the size.
func (f *File) Truncate(size int64) error {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	if err := f.file.Truncate(size); err != nil {
		return err
	}
	f.truncated(size)
	return nil
}

// Sync makes the contents of the file durable; its name is not.
func (f *File) Sync() error {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	f.recorder.synced(f.node)
	return nil
}

// Chmod changes the mode, which is not recorded.
func (f *File) Chmod(mode fs.FileMode) error { return f.file.Chmod(mode) }

// Read implements io.Reader.
func (f *File) Read(b []byte) (int, error) { return f.file.Read(b) }

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(b []byte, at int64) (int, error) { return f.file.ReadAt(b, at) }

// Stat returns the file's status.
func (f *File) Stat() (fs.FileInfo, error) { return f.file.Stat() }

// Name returns the file's path.
func (f *File) Name() string { return f.file.Name() }

// Fd returns the descriptor, by which nothing may be written.
func (f *File) Fd() uintptr { return f.file.Fd() }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// written records a write: for each page the size, if it grows, and the page's sectors as memory
// now has them.
func (f *File) written(b []byte, at int64) {
	if len(b) == 0 {
		return
	}
	n, end := f.node, at+int64(len(b))
	old := int64(len(n.now.data))
	n.resize(max(old, end))
	copy(n.now.data[at:], b)
	var units []unit
	for first := at / sector * sector; first < end; {
		last := min((first/page+1)*page, (end+sector-1)/sector*sector) // of this page
		if stop := min(last, end); stop > old {
			units = append(units, unit{kind: sizeGrown, at: stop})
			old = stop
		}
		for ; first < last; first += sector {
			data := slices.Clone(n.now.data[first:min(first+sector, int64(len(n.now.data)))])
			units = append(units, unit{kind: sectorWritten, at: first, data: data})
		}
	}
	f.recorder.add(n, fmt.Sprintf("write %s, %d to %d", n.name, at, end), units...)
}

func (f *File) truncated(size int64) {
	n := f.node
	if size == int64(len(n.now.data)) {
		return
	}
	if size < int64(len(n.now.data)) {
		f.recorder.free(n, n.now.data)
	}
	n.resize(size)
	text := fmt.Sprintf("truncate %s to %d", n.name, size)
	f.recorder.add(n, text, unit{kind: sizeSet, at: size})
}

// resize changes the length of the data that memory has.
func (n *node) resize(size int64) {
	if old := int64(len(n.now.data)); size > old {
		n.now.data = append(n.now.data, make([]byte, size-old)...)
	}
	n.now.data = n.now.data[:size]
}

// known returns an entry of a directory, which must have been made through the recorder.
func (n *node) known(name string) *node {
	child := n.now.entries[name]
	if child == nil {
		panic(fmt.Sprintf("crashtest: %s in %s was made without the recorder", name, n.name))
	}
	return child
}
