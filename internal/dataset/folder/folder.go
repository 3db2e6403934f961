// Package folder is the dataset as a folder with one sub-directory per class,
// as torchvision.datasets.ImageFolder takes it: the same classes, the same
// samples, the same order.
//
// # Scanning
//
// Open lists directories, in parallel, and asks for the size of every file by name; of files it
// opens those that tell which dataset it is, 64 at most. What it finds is kept in an index file, so
// that the next Open only asks every directory for its times and lists again those that have
// changed. A file that is changed in place changes no directory. Open reads the files that belong
// to the dataset's version, and scans again if one of them is not as listed; Read and Stat compare
// every other file with the index, and remove an index that is outdated, so that the next Open
// scans again.
//
// # Where it differs from ImageFolder
//
// A symbolic link that leads back to a directory above it is an error (there, a
// walk until the system gives up), and so is a directory that cannot be read
// (there, it is left out). Extensions are compared without regard to case
// whatever the case in which they are given (there, those given in upper case
// match nothing).
//
// # Concurrency
//
// A Folder is immutable but for what Close does; all methods may be called in
// parallel, Close last. Open starts goroutines and waits for them, but for those
// in a system call that hangs (calls.go).
package folder

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/dataset/folder/indexfile"
	"github.com/hdmlp/hdmlp/internal/dataset/tree"
)

// Options say how to open a folder. The zero value is torchvision's.
type Options struct {
	// Extensions are the endings of the names of files that are samples, in
	// any case; nil stands for Extensions().
	Extensions []string
	// IndexDir is the directory for the index file. "" is the folder itself,
	// where the file is hidden, and where that cannot be written
	// $XDG_CACHE_HOME/hdmlp/index or ~/.cache/hdmlp/index.
	IndexDir string
	// Rescan scans the folder as if there were no index.
	Rescan bool
	// View, if not nil, is the folder as a process sees it; its root is that directory, whatever
	// lies at its path here. Its descriptors are not needed once Open has returned.
	View *dataset.View
	// Progress, if not nil, is called now and then while files are counted,
	// from any goroutine, one call at a time, with the number so far.
	Progress func(files int64)
	// Memory, if not nil, says how many bytes of memory are available. An index
	// file, which comes with the dataset, may take a quarter of them.
	Memory func() (int64, error)
	// Warn, if not nil, is told why an index file that is there is not used.
	Warn func(text string)
	// Timeout is how long one system call may take before Open gives up, with a
	// *dataset.Error that names the call and its path; 0 stands for a minute.
	Timeout time.Duration
	// SlowAfter is the time after which a system call counts as slow; 0 stands
	// for 10 seconds.
	SlowAfter time.Duration
	// Slow, if not nil, is called while a system call is slow: which one, of which
	// path, and since when.
	Slow func(op, path string, since time.Time)
	// Left, if not nil, counts the system calls that hang over all folders that
	// are given it, so that each further attempt does not cost more threads.
	Left *Left
}

// Extensions are the endings by which torchvision knows images.
func Extensions() []string {
	return []string{".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}
}

// Folder is an open folder: a dataset.Source.
type Folder struct {
	// of the root, absolute, as the view sees it
	path      string
	renew     func(context.Context) (*dataset.View, error) // of the view; nil: there is none
	root      atomic.Pointer[tree.Root]                    // in use
	index     *dataset.Index
	scanned   result
	places    []indexfile.Place // where its index file may lie
	indexPath string
	indexErr  error
	fromIndex bool

	buffers sync.Pool // of *readBuffer
	// noAtime: files are opened with O_NOATIME, until one cannot be.
	noAtime atomic.Bool
	closed  atomic.Bool
	stale   sync.Once // the index file is outdated, and removed

	reopening sync.Mutex
	// all that there were; guarded by reopening. Reads may be under way below any of them
	roots []*tree.Root
}

var (
	_ dataset.Source  = (*Folder)(nil)
	_ dataset.Locator = (*Folder)(nil)
	_ dataset.Prober  = (*Folder)(nil)
)

// Open scans the folder root, or the part of it that has changed since its index
// was written. An error of the user is a *dataset.Error; that the index could
// not be written is none, see IndexError.
func Open(ctx context.Context, root string, opts Options) (*Folder, error) {
	return openAt(ctx, root, opts, time.Now())
}

// openAt opens the folder as Open would at the time now.
func openAt(ctx context.Context, path string, opts Options, now time.Time) (*Folder, error) {
	extensions, err := normalize(opts.Extensions)
	if err != nil {
		return nil, &dataset.Error{Path: path, Kind: dataset.ErrExtensions, Hint: err.Error()}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, &dataset.Error{Path: path, Kind: dataset.ErrNoDirectory, Err: err}
	}
	return newCalls(absolute, opts).open(ctx,
		func(ctx context.Context, calls *calls) (*Folder, error) {
			call := calls.caller()
			call.Begin("open", absolute, "")
			r, err := tree.Open(absolute, opts.View)
			call.End()
			if err != nil {
				return nil, directoryError(absolute, err)
			}
			f := &Folder{path: absolute, roots: []*tree.Root{r}}
			if opts.View != nil {
				f.renew = opts.View.Renew
			}
			f.root.Store(r)
			f.buffers.New = func() any { return new(readBuffer) }
			f.noAtime.Store(true)
			if err := f.load(ctx, extensions, opts, now, calls); err != nil {
				f.closeRoots()
				return nil, err
			}
			return f, nil
		})
}

// load finds the index file, brings it up to date, and writes it if it was not.
func (f *Folder) load(ctx context.Context, extensions []string, opts Options, now time.Time,
	calls *calls,
) (err error) {
	others := extensions
	if slices.Equal(extensions, Extensions()) {
		others = nil
	}
	if f.places, err = indexfile.Places(f.path, opts.IndexDir, others); err != nil {
		return &dataset.Error{Path: f.path, Kind: dataset.ErrNoDirectory, Err: err}
	}
	files := indexfile.Files{
		Root: f.path, RootFD: f.root.Load().FD(), Places: f.places, Memory: opts.Memory,
		Warn: opts.Warn, Calls: calls.caller(),
	}
	var known *dataset.Index
	if !opts.Rescan {
		known, f.indexPath = files.Read(extensions)
	}
	config := scanConfig{
		root: f.root.Load(), extensions: extensions,
		known: known, progress: opts.Progress, calls: calls, now: now,
	}
	f.scanned, err = scan(ctx, config)
	for range 2 { // times to scan anew if the folder does not hold still, or the index is outdated
		if errors.Is(err, errOutdated) {
			known, config.known = nil, nil
			f.scanned, err = scan(ctx, config)
		}
	}
	var problem *dataset.Error
	switch {
	case errors.As(err, &problem):
		return problem
	case err != nil:
		return err
	}
	f.index = f.scanned.index
	f.fromIndex = known != nil
	if f.index != known {
		f.indexPath, f.indexErr = files.Write(f.index)
	}
	return nil
}

// Index says what the samples are.
func (f *Folder) Index() *dataset.Index { return f.index }

// Root is the folder's absolute path.
func (f *Folder) Root() string { return f.path }

// Place identifies the root directory: its device and inode.
func (f *Folder) Place() (device, inode uint64) {
	r := f.root.Load()
	return r.Place()
}

// Path is the absolute path of sample id, or "" if there is none.
func (f *Folder) Path(id int) string {
	if id < 0 || id >= f.index.Len() {
		return ""
	}
	return string(f.appendPath(nil, id))
}

// appendPath appends the absolute path of sample id to dst.
func (f *Folder) appendPath(dst []byte, id int) []byte {
	dst = append(dst, f.path...)
	if f.path != "/" {
		dst = append(dst, '/')
	}
	return f.index.AppendName(dst, id)
}

// IndexPath is where the index file lies; "" if it could be written nowhere.
func (f *Folder) IndexPath() string { return f.indexPath }

// IndexError says why the index file could not be written: the next start has to
// scan the folder again. It is nil if it was written, or needed not be.
func (f *Folder) IndexError() error { return f.indexErr }

// FromIndex reports whether an index file was found and served, so that the folder
// was scanned in part at most.
func (f *Folder) FromIndex() bool { return f.fromIndex }

// Listed gives the number of directories that Open listed, and of all: what a
// start on an index cost. The root is always listed.
func (f *Folder) Listed() (listed, all int) { return f.scanned.listed, f.scanned.all }

// Close releases the folder. No Read may be under way.
func (f *Folder) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	f.closeRoots()
	return nil
}

func (f *Folder) closeRoots() {
	f.reopening.Lock()
	defer f.reopening.Unlock()
	for _, r := range f.roots {
		r.Close()
	}
	f.roots = nil
}

// normalize checks the extensions and brings them into one form.
func normalize(extensions []string) ([]string, error) {
	if extensions == nil {
		return Extensions(), nil
	}
	if len(extensions) == 0 {
		return nil, errors.New("it is empty: no file can be a sample")
	}
	list := make([]string, len(extensions))
	for i, e := range extensions {
		if e == "" || strings.ContainsAny(e, "/\x00") {
			return nil, errors.New("an extension is a piece of a file name, such as .jpg")
		}
		list[i] = lower(e)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// directoryError says what err means for the one who wants to open path.
func directoryError(path string, err error) *dataset.Error {
	e := &dataset.Error{Path: path, Err: err}
	switch {
	case errors.Is(err, unix.ENOENT):
		e.Kind, e.Hint = dataset.ErrNoDirectory,
			"check the path, and that its file system is mounted on this node"
	case errors.Is(err, unix.ENOTDIR):
		e.Kind, e.Hint = dataset.ErrNotDirectory,
			"give the directory that holds one sub-directory per class"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e.Kind, e.Hint = dataset.ErrUnreadableDirectory,
			"give this user the permission to read and to enter it (chmod a+rx)"
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		e.Kind, e.Hint = dataset.ErrUnreadableDirectory, "check the symbolic links on its path"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		e.Kind, e.Err = dataset.ErrUnavailable, tooManyFiles(err)
	default:
		e.Kind = dataset.ErrUnavailable
	}
	return e
}
