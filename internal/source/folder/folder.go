// Package folder implements a source.Source for a folder with one subdirectory per class, as
// torchvision.datasets.ImageFolder reads it: the same classes, the same samples, the same order.
//
// # Scanning
//
// Open lists directories, in parallel, and stats every file; it opens only the files whose contents
// identify the dataset, at most 64. The result is stored in an index file, so that the next Open
// only stats every directory and lists again those that have changed. A file that is changed in
// place does not change its directory. Open therefore reads the files that the dataset's version
// covers, and scans again if one of them is not as listed; Read and Stat compare every other file
// with the index, and remove an outdated index, so that the next Open scans again.
//
// # Differences from ImageFolder
//
// A symbolic link that leads back to a directory above it is an error (ImageFolder follows it until
// the system refuses), and so is a directory that cannot be read (ImageFolder omits it). Extensions
// are compared case-insensitively, whatever the case in which they are passed (in ImageFolder,
// extensions in upper case match nothing).
//
// # Concurrency
//
// All methods of a Folder are safe for concurrent use, except that Close must be the last call.
// Open starts goroutines and waits for them, except for those in a system call that hangs
// (package hangs).
//
// excerpt.go reads the files that the dataset's version covers, and distinguishes those that cannot
// be read from a source that fails. It starts goroutines, and waits for them.
package folder

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats/classes"
	"github.com/hdmlp/hdmlp/internal/source/hangs"
	"github.com/hdmlp/hdmlp/internal/source/index"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

// Options are the options of Open. The zero value opens the folder as torchvision does.
type Options struct {
	// Extensions are the file name extensions of samples, in any case; nil means those of package
	// classes.
	Extensions []string
	// IndexDir is the directory for the index file. "" means the folder itself, where the file is
	// hidden, or, if that is not writable, $XDG_CACHE_HOME/hdmlp/index or ~/.cache/hdmlp/index.
	IndexDir string
	// Rescan makes Open ignore an existing index.
	Rescan bool
	// Unscanned makes Open not scan, and neither read nor write an index, for callers of ReadBeside
	// and WriteBeside alone.
	Unscanned bool
	// View, if not nil, is the folder as another process sees it; the root is its directory,
	// whatever is at that path in this process. Its descriptors are not needed after Open returns.
	View *source.View
	// Progress, if not nil, is called periodically during the scan with the number of files so far,
	// from any goroutine, one call at a time.
	Progress func(files int64)
	// Memory, if not nil, returns how many bytes of memory are available. An index file, which
	// comes with the dataset, may take a quarter of them.
	Memory func() (int64, error)
	// Warn, if not nil, is called with the reason if an existing index file is not used, and if the
	// classes seem to be the parts of a dataset.
	Warn func(text string)
	// Timeout is how long one system call may take before Open fails with a *source.Error that
	// names the call and its path; 0 means a minute.
	Timeout time.Duration
	// SlowAfter is the time after which a system call counts as slow; 0 means 10 seconds.
	SlowAfter time.Duration
	// Slow, if not nil, is called while a system call is slow, with its name, its path and its
	// start time.
	Slow func(op, path string, since time.Time)
	// Left, if not nil, counts the hanging system calls of all folders that share it, which bounds
	// the threads that further attempts block.
	Left *hangs.Left
}

// newMonitor returns what watches the system calls of an Open.
func newMonitor(root string, o Options) *hangs.Monitor {
	return hangs.New(root, hangs.Options{
		Timeout: o.Timeout, SlowAfter: o.SlowAfter, Slow: o.Slow, Left: o.Left,
	})
}

// Folder is an open folder: a source.Source.
type Folder struct {
	index.Beside

	// path of the root, absolute, as the view sees it
	path      string
	renew     func(context.Context) (*source.View, error) // renews the view; nil if there is none
	root      atomic.Pointer[tree.Root]                   // in use
	index     *source.Index
	scanned   result
	locations []index.Location // where its index file may be
	indexPath string
	indexErr  error
	fromIndex bool
	// covered has what the dataset's version covers of samples, by ID.
	covered map[int]coverage

	buffers sync.Pool // of *readBuffer
	// noAtime is true until opening a file with O_NOATIME fails.
	noAtime atomic.Bool
	closed  atomic.Bool
	stale   sync.Once // removes the index file once it is outdated

	reopening sync.Mutex
	// all roots so far, guarded by reopening; reads may be in progress below any of them
	roots []*tree.Root
}

var (
	_ source.Locator = (*Folder)(nil)
	_ source.Prober  = (*Folder)(nil)
	_ source.Beside  = (*Folder)(nil)
)

// Open scans the folder root, or the part of it that has changed since its index was written.
// Errors that the user can fix are a *source.Error. A failure to write the index is not an error;
// IndexError returns it.
func Open(ctx context.Context, root string, opts Options) (*Folder, error) {
	return openAt(ctx, root, opts, time.Now())
}

// openAt is Open at the time now.
func openAt(ctx context.Context, path string, opts Options, now time.Time) (*Folder, error) {
	extensions, err := classes.Normalize(opts.Extensions)
	if err != nil {
		return nil, &source.Error{Path: path, Kind: source.ErrExtensions, Hint: err.Error()}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, &source.Error{Path: path, Kind: source.ErrNoDirectory, Err: err}
	}
	return hangs.Open(ctx, newMonitor(absolute, opts),
		func(ctx context.Context, calls *hangs.Monitor) (*Folder, error) {
			call := calls.Caller()
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

// load finds the index file, and updates and writes it if it is outdated.
func (f *Folder) load(ctx context.Context, extensions []string, opts Options, now time.Time,
	calls *hangs.Monitor,
) (err error) {
	others := extensions
	if slices.Equal(extensions, classes.Extensions()) {
		others = nil
	}
	if f.locations, err = index.Locations(f.path, opts.IndexDir, others); err != nil {
		return &source.Error{Path: f.path, Kind: source.ErrNoDirectory, Err: err}
	}
	f.Beside = index.NewBeside(f.path, func() int { return f.root.Load().FD() }, f.locations)
	files := index.Files{
		Root: f.path, RootFD: f.root.Load().FD(), Locations: f.locations, Memory: opts.Memory,
		Warn: opts.Warn, Calls: calls.Caller(),
	}
	if err := files.Check(); err != nil || opts.Unscanned {
		return err
	}
	var known *source.Index
	if !opts.Rescan {
		known, f.indexPath = files.Read(extensions)
	}
	config := scanConfig{
		root: f.root.Load(), extensions: extensions,
		known: known, progress: opts.Progress, calls: calls, now: now,
	}
	f.scanned, err = scan(ctx, config)
	for range 2 { // rescan if the folder changes during the scan or the index is outdated
		if errors.Is(err, errOutdated) {
			known, config.known = nil, nil
			f.scanned, err = scan(ctx, config)
		}
	}
	var problem *source.Error
	switch {
	case errors.As(err, &problem):
		return problem
	case err != nil:
		return err
	}
	f.index = f.scanned.index
	f.covered = coverages(f.index)
	f.fromIndex = known != nil
	if f.index != known {
		f.indexPath, f.indexErr = files.Write(f.index)
	}
	if text := aboveParts(f.path, f.index.Classes()); text != "" && opts.Warn != nil {
		opts.Warn(text)
	}
	return nil
}

// parts are usual names of the parts of a dataset, each a folder of class folders itself.
var parts = []string{
	"train", "training", "val", "valid", "validation", "test", "testing", "eval", "dev",
}

// aboveParts returns a warning if the classes are the parts of a dataset; "" if they are not.
func aboveParts(path string, classes []string) string {
	for _, c := range classes {
		if !slices.Contains(parts, strings.ToLower(c)) {
			return ""
		}
	}
	training := func(c string) bool { return strings.HasPrefix(strings.ToLower(c), "train") }
	if len(classes) < 2 || !slices.ContainsFunc(classes, training) {
		return ""
	}
	return fmt.Sprintf("the classes of %s are %s, which seem to be parts of a dataset, each with "+
		"classes of its own: give one of them, such as %s", human.Name(path), human.And(classes),
		human.Name(strings.TrimSuffix(path, "/")+"/"+classes[0]))
}

// Index returns the index of the samples.
func (f *Folder) Index() *source.Index { return f.index }

// Root returns the folder's absolute path.
func (f *Folder) Root() string { return f.path }

// DirectoryID returns the root directory's device and inode.
func (f *Folder) DirectoryID() (device, inode uint64) {
	r := f.root.Load()
	return r.DirectoryID()
}

// Path returns the absolute path of sample id, or "" if there is no such sample.
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

// IndexPath returns the path of the index file, or "" if it could not be written anywhere.
func (f *Folder) IndexPath() string { return f.indexPath }

// IndexError returns why the index file could not be written, so that the next start has to scan
// the folder again. It is nil if the file was written or is up to date.
func (f *Folder) IndexError() error { return f.indexErr }

// FromIndex reports whether an index file was found and used, so that at most a part of the folder
// was scanned.
func (f *Folder) FromIndex() bool { return f.fromIndex }

// Listed returns the number of directories that Open listed, and of all directories. The root is
// always listed.
func (f *Folder) Listed() (listed, all int) { return f.scanned.listed, f.scanned.all }

// Close releases the folder. No Read may be in progress.
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

// directoryError returns the error of a directory that cannot be opened because of err.
func directoryError(path string, err error) *source.Error {
	e := &source.Error{Path: path, Err: err}
	switch {
	case errors.Is(err, unix.ENOENT):
		e.Kind, e.Hint = source.ErrNoDirectory,
			"check the path, and that its file system is mounted on this node"
	case errors.Is(err, unix.ENOTDIR):
		e.Kind, e.Hint = source.ErrNotDirectory,
			"give the directory that holds one subdirectory per class"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e.Kind, e.Hint = source.ErrUnreadableDirectory,
			"give this user the permission to read and to enter it (chmod a+rx)"
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		e.Kind, e.Hint = source.ErrUnreadableDirectory, "check the symbolic links on its path"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		e.Kind, e.Err = source.ErrUnavailable, host.TooManyFiles(err)
	default:
		e.Kind = source.ErrUnavailable
	}
	return e
}
