// Package directory implements objects.Objects for the files below one directory.
//
// Files that were read lately stay open, as many as Options.Open, so that reading a sample from a
// shard takes two system calls: one for its bytes, and one for the file's times, which shows
// whether it was written to meanwhile. A file that was replaced under its name is read as it was
// while it is open; Stat looks at the name.
//
// After its file system was remounted, the directory is opened again, by the process whose view it
// is, if the caller recognises the dataset there.
package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

// Options are the options of a Directory. The zero value is ready to use.
type Options struct {
	// View, if not nil, is the directory as another process sees it. Its descriptors are not needed
	// after Open returns.
	View *source.View
	// Open is how many files stay open; 0 means 256.
	Open int
	// Recognise, if not nil, returns an error unless the dataset is below a directory that was
	// opened again, which it can read.
	Recognise func(ctx context.Context, again objects.Objects) error
}

const (
	defaultOpen = 256
	// mostRoots is how often a directory may be opened again: each time takes descriptors.
	mostRoots = 100
)

// Directory is an open directory.
type Directory struct {
	path      string
	renew     func(context.Context) (*source.View, error)
	recognise func(context.Context, objects.Objects) error
	lister    *tree.Lister
	noAtime   atomic.Bool
	closed    atomic.Bool

	opened atomic.Pointer[opened]

	reopening sync.Mutex
	roots     []*tree.Root // guarded by reopening; reads may be in progress below any of them
	limit     int
}

// opened is the directory as it was opened once.
type opened struct {
	root *tree.Root
	open *descriptors
}

var (
	_ objects.Objects = (*Directory)(nil)
	_ objects.Ahead   = (*Directory)(nil)
)

// Open opens the directory at path, which is absolute.
func Open(path string, o Options) (*Directory, error) {
	r, err := tree.Open(path, o.View)
	if err != nil {
		return nil, &objects.Error{Path: path, Kind: kindOf(err), Err: err}
	}
	if o.Open <= 0 {
		o.Open = defaultOpen
	}
	d := &Directory{
		path: path, recognise: o.Recognise, lister: tree.NewLister(), limit: o.Open,
		roots: []*tree.Root{r},
	}
	if o.View != nil {
		d.renew = o.View.Renew
	}
	d.noAtime.Store(true)
	d.opened.Store(&opened{root: r, open: newDescriptors(o.Open)})
	return d, nil
}

// Root returns the directory that is in use.
func (d *Directory) Root() *tree.Root { return d.opened.Load().root }

// Path implements objects.Objects.
func (d *Directory) Path(name string) string {
	if d.path == "/" {
		return "/" + name
	}
	return d.path + "/" + name
}

// Close implements objects.Objects.
func (d *Directory) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.reopening.Lock()
	defer d.reopening.Unlock()
	d.opened.Load().open.close()
	for _, r := range d.roots {
		r.Close()
	}
	d.roots = nil
	return nil
}

func kindOf(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return source.ErrUnreadable
	}
	return tree.Kind(err)
}

func (d *Directory) failed(name string, err error) error {
	kind := kindOf(err)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		err = host.TooManyFiles(err)
	}
	return &objects.Error{Path: d.Path(name), Kind: kind, Err: err}
}

// mostAttempts is how often a call is made: a file may be replaced, and a file system remounted,
// between two of them.
const mostAttempts = 4

// again calls do with the directory as it is open, and once more if it failed because a file was
// replaced, or because the file system was remounted and the directory could be opened again.
func (d *Directory) again(ctx context.Context, name string, do func(p *opened) error) error {
	for attempt := 1; ; attempt++ {
		switch {
		case d.closed.Load():
			return d.failed(name, fs.ErrClosed)
		case ctx.Err() != nil:
			return &objects.Error{Path: d.Path(name), Kind: source.ErrUnavailable, Err: ctx.Err()}
		}
		p := d.opened.Load()
		err := do(p)
		var known *objects.Error
		if err == nil || errors.As(err, &known) {
			return err
		}
		if attempt < mostAttempts {
			err = d.reopen(ctx, p, err)
		}
		if err != nil {
			return d.failed(name, err)
		}
	}
}

// reopen handles a call that failed with err below the directory. If the file system was remounted
// it opens the directory again and returns nil. Otherwise it returns the error that the call should
// return.
func (d *Directory) reopen(ctx context.Context, was *opened, err error) error {
	if !tree.Gone(err) {
		return err
	}
	d.reopening.Lock()
	defer d.reopening.Unlock()
	if d.opened.Load() != was {
		return nil // another reader was faster
	}
	if errors.Is(err, unix.ESTALE) && was.root.Answers() {
		if !was.open.forget() {
			return err // the file is at fault
		}
		return nil // a descriptor of a file that was replaced
	}
	if len(d.roots) == 0 || len(d.roots) > mostRoots {
		return err
	}
	r, why := d.openAgain(ctx, was)
	if why != nil {
		return fmt.Errorf("%w; opened again: %w", err, why)
	}
	d.roots = append(d.roots, r)
	d.opened.Store(&opened{root: r, open: newDescriptors(d.limit)})
	was.open.close()
	return nil
}

func (d *Directory) openAgain(ctx context.Context, was *opened) (*tree.Root, error) {
	var view *source.View
	if was.root.Foreign() {
		if d.renew == nil {
			return nil, errors.New("the process that opened it has exited")
		}
		var err error
		if view, err = d.renew(ctx); err != nil {
			return nil, err
		}
		defer view.Close() //nolint:errcheck // the root has descriptors of its own
	}
	if d.recognise != nil {
		there, err := Open(d.path, Options{View: view, Open: 1})
		if err != nil {
			return nil, err
		}
		defer there.Close() //nolint:errcheck // it was only read
		if err := d.recognise(ctx, there); err != nil {
			return nil, err
		}
	}
	return tree.Open(d.path, view)
}

// Stat implements objects.Objects.
func (d *Directory) Stat(ctx context.Context, name string) (o source.Object, err error) {
	err = d.again(ctx, name, func(p *opened) error {
		var st unix.Statx_t
		if err := p.root.Statx(append([]byte(name), 0), &st); err != nil {
			return fmt.Errorf("stat: %w", err)
		}
		o, err = d.object(name, &st)
		return err
	})
	return o, err
}

func (d *Directory) object(name string, st *unix.Statx_t) (source.Object, error) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return source.Object{}, &objects.Error{
			Path: d.Path(name), Kind: source.ErrUnreadable,
			Err: errors.New("it is not a regular file"),
		}
	}
	return source.Object{
		Name: name, Size: int64(st.Size), Stamp: tree.StampOf(st), Modified: tree.Nanos(st.Mtime),
	}, nil
}

// Read implements objects.Objects. A system call that hangs cannot be cancelled: Read checks ctx
// before each call.
func (d *Directory) Read(ctx context.Context, o *source.Object, offset int64, parts [][]byte,
) (stamp source.Stamp, err error) {
	err = d.again(ctx, o.Name, func(p *opened) error {
		fd, err := p.open.take(o.Name, func() (int, error) { return d.open(ctx, p.root, o.Name) })
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer p.open.put(fd)
		if offset > 0 || length(parts) < o.Size {
			fd.advise(offset)
		}
		n, want, err := readInto(ctx, fd.number, offset, parts)
		if err != nil {
			return err
		}
		var st unix.Statx_t
		if err := p.root.Ask(fd.number, &st); err != nil {
			return fmt.Errorf("stat: %w", err)
		}
		now, err := d.object(o.Name, &st)
		if err != nil {
			return err
		}
		kind, why := objects.Compare(o, &now)
		if kind == nil && n < want {
			kind, why = source.ErrShort, fmt.Errorf("%d of %d bytes can be read", n, want)
		}
		if kind != nil {
			p.open.drop(fd)
			return &objects.Error{Path: d.Path(o.Name), Kind: kind, Err: why}
		}
		stamp = now.Stamp
		return nil
	})
	return stamp, err
}

// Ahead implements objects.Ahead.
func (d *Directory) Ahead(o *source.Object, offset, n int64) {
	p := d.opened.Load()
	fd, err := p.open.take(o.Name, func() (int, error) {
		return d.open(context.Background(), p.root, o.Name)
	})
	if err != nil {
		return
	}
	defer p.open.put(fd)
	fd.announced()
	// Where the kernel does not cache a file, or cannot report what it caches, as on a network, what
	// is read ahead might be read again.
	var first [1]byte
	_, err = unix.Preadv2(fd.number, [][]byte{first[:]}, offset, unix.RWF_NOWAIT)
	if errors.Is(err, unix.EAGAIN) {
		_ = unix.Fadvise(fd.number, offset, n, unix.FADV_WILLNEED)
	}
}

// readInto fills parts from offset on, and returns how many of how many bytes it has read.
func readInto(ctx context.Context, fd int, offset int64, parts [][]byte,
) (n, want int64, err error) {
	want = length(parts)
	rest := parts
	if len(parts) > 1 {
		rest = slices.Clone(parts) // what is left of it is cut
	}
	for n < want {
		var k int
		if len(rest) == 1 {
			k, err = unix.Pread(fd, rest[0][len(rest[0])-int(want-n):], offset+n)
		} else {
			k, err = unix.Preadv(fd, rest[:min(len(rest), mostParts)], offset+n)
		}
		switch {
		case errors.Is(err, unix.EINTR) && ctx.Err() == nil:
			continue
		case err != nil:
			return n, want, fmt.Errorf("read: %w", err)
		case k == 0:
			return n, want, nil
		}
		n += int64(k)
		for len(rest) > 1 && k >= len(rest[0]) {
			k -= len(rest[0])
			rest = rest[1:]
		}
		if len(rest) > 1 {
			rest[0] = rest[0][k:]
		}
	}
	return n, want, nil
}

func length(parts [][]byte) (n int64) {
	for _, part := range parts {
		n += int64(len(part))
	}
	return n
}

// mostParts is how many parts one system call takes (IOV_MAX).
const mostParts = 1024

// open opens a file for reading.
func (d *Directory) open(ctx context.Context, r *tree.Root, name string) (int, error) {
	flags := tree.FileFlags
	if d.noAtime.Load() {
		flags |= unix.O_NOATIME
	}
	for path := append([]byte(name), 0); ; {
		fd, err := r.Open(path, flags)
		switch {
		case errors.Is(err, unix.EINTR) && ctx.Err() == nil:
		case errors.Is(err, unix.EPERM) && flags&unix.O_NOATIME != 0:
			// Only the owner of a file may open it with O_NOATIME.
			flags &^= unix.O_NOATIME
			d.noAtime.Store(false)
		default:
			return fd, err
		}
	}
}

// List implements objects.Objects. It leaves out what is no regular file, and follows symbolic
// links.
func (d *Directory) List(ctx context.Context, prefix string, each func(source.Object) error) error {
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
	return d.list(ctx, strings.TrimSuffix(dir, "/"), prefix, 0, each)
}

// mostDepth bounds the depth of directories, which a cycle of symbolic links would exceed.
const mostDepth = 64

func (d *Directory) list(ctx context.Context, dir, prefix string, depth int,
	each func(source.Object) error,
) error {
	if depth > mostDepth {
		return &objects.Error{
			Path: d.Path(dir), Kind: source.ErrUnreadable,
			Err: fmt.Errorf("more than %d directories below one another", mostDepth),
		}
	}
	var entries []tree.Entry
	if err := d.again(ctx, dir, func(p *opened) error {
		fd, err := p.root.Directory(dir)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer unix.Close(fd) //nolint:errcheck // it was only listed
		entries, err = d.lister.List(fd, func() {})
		return err
	}); err != nil {
		if errors.Is(err, source.ErrMissing) && depth == 0 && dir != "" {
			return nil // nothing begins with the prefix
		}
		return err
	}
	found, err := d.look(ctx, dir, prefix, entries)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.directory {
			err = d.list(ctx, strings.TrimSuffix(f.Name, "/"), prefix, depth+1, each)
		} else {
			err = each(f.Object)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entry is a file or, with a slash at the end of its name, a directory.
type entry struct {
	source.Object
	directory bool
}

// look returns the entries of a directory that are files or directories and may have the prefix, in
// the order of the names of what is in them.
func (d *Directory) look(ctx context.Context, dir, prefix string, entries []tree.Entry,
) ([]entry, error) {
	var found []entry
	for _, e := range entries {
		name := e.Name
		if dir != "" {
			name = dir + "/" + name
		}
		if !strings.HasPrefix(name, prefix) && !strings.HasPrefix(prefix, name+"/") {
			continue
		}
		var st unix.Statx_t
		if err := d.again(ctx, name, func(p *opened) error {
			return p.root.Statx(append([]byte(name), 0), &st)
		}); err != nil {
			if errors.Is(err, source.ErrMissing) {
				continue // a link to nothing, or removed meanwhile
			}
			return nil, err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			found = append(found, entry{Object: source.Object{Name: name + "/"}, directory: true})
		case unix.S_IFREG:
			if o, err := d.object(name, &st); err == nil && strings.HasPrefix(name, prefix) {
				found = append(found, entry{Object: o})
			}
		}
	}
	slices.SortFunc(found, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}
