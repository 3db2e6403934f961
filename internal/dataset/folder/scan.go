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

	"github.com/hdmlp/hdmlp/internal/dataset"
)

const (
	// scanWorkers bounds what is asked of the file system at once. It is
	// round trips that take the time on network file systems, not this
	// machine's cores.
	scanWorkers = 32
	// scanChunk is the number of files of one directory that one worker asks
	// for; a larger directory is shared out.
	scanChunk = 256
	// progressEvery is the least time between two calls of Progress.
	progressEvery = 100 * time.Millisecond
)

// errOutdated: a directory that the index or its parent's listing has is gone.
// Either a link leads nowhere any more, which changes no directory, or the
// folder changes while it is scanned. It has to be scanned again.
var errOutdated = errors.New("the folder has changed")

// scanConfig is what a scan works on.
type scanConfig struct {
	root       string
	rootFD     int
	extensions []string
	known      *dataset.Index // nil: none
	progress   func(int64)    // nil: none
	now        time.Time      // not later than the scan's begin
}

// node is a directory on its way into the index.
type node struct {
	path     string // below the root
	parent   *node
	linked   bool   // a symbolic link lies on its path, or may do so
	dev, ino uint64 // 0: not known

	known   int // its number in the known index, or -1
	kept    bool
	samples []sample // in order once the node is complete; none if kept

	modified, changed int64
	settled           bool

	fd        int
	remaining atomic.Int32 // chunks being asked for
	mu        sync.Mutex   // guards children, samples and settled while chunks are
	children  []*node
}

// sample is a file on its way into the index.
type sample struct {
	name     string
	size     int64
	modified int64
}

// scanner walks the tree with a stack of tasks and a fixed number of workers. A
// task may push others; the scan ends when none is left, or one has failed. The
// newest task is taken first, so that a directory that was opened is done with
// before others are opened, and few are open at a time.
type scanner struct {
	scanConfig
	lister   *lister
	below    map[string][]int // known directory -> known directories in it
	numbers  map[string]int   // known directory -> its number
	found    atomic.Int64
	reported atomic.Int64 // when Progress was called last, ns

	report sync.Mutex // held while Progress is called

	mu      sync.Mutex // guards the following
	wake    sync.Cond
	tasks   []func() error
	pending int // tasks pushed and not done
	open    map[*node]struct{}
	err     error
}

// result is what a scan found.
type result struct {
	index       *dataset.Index
	listed, all int // directories listed anew, directories
}

// scan lists what is not known, and makes the index. It gives the known index
// itself if nothing has changed.
func scan(ctx context.Context, config scanConfig) (result, error) {
	s := &scanner{scanConfig: config, lister: newLister(), open: make(map[*node]struct{})}
	s.wake.L = &s.mu
	if s.known != nil {
		s.learn()
	}
	root := &node{known: -1, fd: -1}
	s.push(func() error { return s.list(root) })
	stop := context.AfterFunc(ctx, func() { s.fail(ctx.Err()) })
	defer stop()

	var workers sync.WaitGroup
	for range scanWorkers {
		workers.Go(s.work)
	}
	workers.Wait()
	for n := range s.open { // what a failure left open
		_ = unix.Close(n.fd)
	}
	if err := ctx.Err(); err != nil {
		return result{}, fmt.Errorf("scan %s: %w", s.root, err)
	}
	if err := s.failure(); err != nil {
		return result{}, err
	}
	return s.assemble(root)
}

// learn notes the tree of the known index.
func (s *scanner) learn() {
	s.numbers = make(map[string]int)
	s.below = make(map[string][]int)
	for i, d := range s.known.Directories() {
		s.numbers[d.Path] = i
		if d.Path == "" {
			continue
		}
		parent := ""
		if slash := strings.LastIndexByte(d.Path, '/'); slash >= 0 {
			parent = d.Path[:slash]
		}
		s.below[parent] = append(s.below[parent], i)
	}
}

func (s *scanner) push(tasks ...func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = append(s.tasks, tasks...)
	s.pending += len(tasks)
	for range tasks {
		s.wake.Signal()
	}
}

func (s *scanner) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.wake.Broadcast()
}

func (s *scanner) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// work runs tasks until none is left or one has failed.
func (s *scanner) work() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.tasks) == 0 && s.pending > 0 && s.err == nil {
			s.wake.Wait()
		}
		if s.err != nil || s.pending == 0 {
			return
		}
		last := len(s.tasks) - 1
		task := s.tasks[last]
		s.tasks[last] = nil
		s.tasks = s.tasks[:last]
		s.mu.Unlock()
		err := task()
		s.mu.Lock()
		if err != nil && s.err == nil {
			s.err = err
		}
		if s.pending--; s.pending == 0 || s.err != nil {
			s.wake.Broadcast()
		}
	}
}

// visit keeps a directory as it is known, if it has not changed, or lists it.
func (s *scanner) visit(n *node) error {
	if n.known < 0 {
		return s.list(n)
	}
	d := s.known.Directory(n.known)
	if !d.Settled {
		return s.list(n)
	}
	st, err := stat(s.rootFD, n.path, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), err == nil && !isDir(&st):
		return s.outdated(n, unix.ENOENT)
	case err != nil:
		return s.directoryError(n, err)
	}
	modified, changed := times(&st)
	if modified != d.Modified || changed != d.Changed {
		return s.list(n)
	}
	n.kept, n.settled = true, true
	n.modified, n.changed = modified, changed
	n.dev, n.ino = st.Dev, st.Ino
	n.linked = true // it is not known
	for _, i := range s.below[n.path] {
		n.children = append(n.children, &node{
			path: s.known.Directory(i).Path, parent: n, linked: true, known: i, fd: -1,
		})
	}
	s.pushChildren(n.children)
	s.count(d.End - d.First)
	return nil
}

func (s *scanner) pushChildren(children []*node) {
	tasks := make([]func() error, len(children))
	for i, child := range children {
		tasks[i] = func() error { return s.visit(child) }
	}
	s.push(tasks...)
}

// list lists a directory and asks for the files in it.
func (s *scanner) list(n *node) error {
	fd, err := openDirectory(s.rootFD, n.path)
	switch {
	case n.parent != nil && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)):
		return s.outdated(n, err)
	case err != nil:
		return s.directoryError(n, err)
	}
	n.fd = fd
	s.mu.Lock()
	s.open[n] = struct{}{}
	s.mu.Unlock()

	st, err := statOpen(fd)
	if err != nil {
		return s.directoryError(n, err)
	}
	n.modified, n.changed = times(&st)
	n.settled = dataset.Settled(n.modified, n.changed, s.now)
	n.dev, n.ino = st.Dev, st.Ino
	if err := s.checkCycle(n); err != nil {
		return err
	}
	entries, err := s.lister.list(fd)
	if err != nil {
		return s.directoryError(n, err)
	}
	isRoot := n.parent == nil
	ask := entries[:0]
	for _, e := range entries {
		switch e.kind {
		case unix.DT_DIR:
			n.children = append(n.children, s.child(n, e.name, false))
		case unix.DT_LNK, unix.DT_UNKNOWN:
			ask = append(ask, e)
		default:
			if !isRoot && matches(e.name, s.extensions) {
				ask = append(ask, e)
			}
		}
	}
	s.pushChildren(n.children)

	chunks := slices.Collect(slices.Chunk(ask, scanChunk))
	n.remaining.Store(int32(max(len(chunks), 1)))
	if len(chunks) == 0 {
		return s.complete(n)
	}
	tasks := make([]func() error, len(chunks)-1)
	for i, chunk := range chunks[1:] {
		tasks[i] = func() error { return s.ask(n, chunk) }
	}
	s.push(tasks...)
	return s.ask(n, chunks[0])
}

// child is the directory of this name in n.
func (s *scanner) child(n *node, name string, link bool) *node {
	c := &node{path: name, parent: n, linked: n.linked || link, known: -1, fd: -1}
	if n.path != "" {
		c.path = n.path + "/" + name
	}
	if number, ok := s.numbers[c.path]; ok {
		c.known = number
	}
	return c
}

// ask asks for the files of one chunk of a directory's entries.
func (s *scanner) ask(n *node, entries []dirent) error {
	samples := make([]sample, 0, len(entries))
	var children []*node
	settled := true
	for _, e := range entries {
		st, link, err := s.statEntry(n, e)
		switch {
		case errors.Is(err, errVanished):
			settled = false
			continue
		case err != nil:
			return s.directoryError(n, err)
		case isDir(&st):
			children = append(children, s.child(n, e.name, link))
			continue
		case n.parent == nil || !matches(e.name, s.extensions):
			continue
		}
		// What is no regular file, or a link to nothing, is a sample to
		// ImageFolder too; it can not be read, but it takes its number.
		f := sample{name: e.name}
		if isReg(&st) {
			f.modified, _ = times(&st)
			f.size = st.Size
			settled = settled && f.modified < s.now.Add(-2*time.Second).UnixNano()
		}
		samples = append(samples, f)
	}
	s.count(len(samples))
	n.mu.Lock()
	n.samples = append(n.samples, samples...)
	n.children = append(n.children, children...)
	n.settled = n.settled && settled
	n.mu.Unlock()
	s.pushChildren(children)
	if n.remaining.Add(-1) == 0 {
		return s.complete(n)
	}
	return nil
}

// errVanished: a file was removed after the directory was listed.
var errVanished = errors.New("the file has vanished")

// statEntry says what e is, behind a symbolic link if it is one. A link that
// leads nowhere, or where this user can not go, is given as a link.
func (s *scanner) statEntry(n *node, e dirent) (st unix.Stat_t, link bool, err error) {
	st, err = stat(n.fd, e.name, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return st, false, errVanished
	}
	if err != nil || !isLnk(&st) {
		return st, false, err
	}
	target, err := stat(n.fd, e.name, 0)
	switch {
	case err == nil:
		return target, true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.ENAMETOOLONG):
		return st, true, nil
	}
	return st, true, err
}

// complete puts a directory's files in order when all have been asked for.
func (s *scanner) complete(n *node) error {
	st, err := statOpen(n.fd)
	if err != nil {
		return s.directoryError(n, err)
	}
	if modified, changed := times(&st); modified != n.modified || changed != n.changed {
		n.settled = false // it changed while it was listed
	}
	slices.SortFunc(n.samples, func(a, b sample) int { return compare(a.name, b.name) })
	s.mu.Lock()
	delete(s.open, n)
	s.mu.Unlock()
	_ = unix.Close(n.fd)
	n.fd = -1
	return nil
}

// checkCycle looks for n among the directories above it.
func (s *scanner) checkCycle(n *node) error {
	if !n.linked || n.ino == 0 {
		return nil
	}
	for a := n.parent; a != nil; a = a.parent {
		if a.ino == n.ino && a.dev == n.dev {
			return &dataset.Error{
				Path: s.root, Kind: dataset.ErrLinkCycle,
				Hint: fmt.Sprintf("%s is %s again; remove the link", n.path, filepath.Join(s.root, a.path)),
			}
		}
	}
	return nil
}

func (s *scanner) outdated(n *node, err error) error {
	return fmt.Errorf("%w: %w", errOutdated, s.directoryError(n, err))
}

func (s *scanner) directoryError(n *node, err error) error {
	return directoryError(filepath.Join(s.root, n.path), err)
}

// count adds to the files found, and now and then says how many there are.
func (s *scanner) count(files int) {
	total := s.found.Add(int64(files))
	if s.progress == nil || !s.report.TryLock() {
		return
	}
	defer s.report.Unlock()
	if now := time.Now().UnixNano(); now-s.reported.Load() >= int64(progressEvery) {
		s.reported.Store(now)
		s.progress(total)
	}
}
