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
	"github.com/hdmlp/hdmlp/internal/printable"
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
	root       *root
	extensions []string
	known      *dataset.Index // nil: none
	progress   func(int64)    // nil: none
	calls      *calls
	now        time.Time // not later than the scan's begin
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
	stamp    dataset.Stamp
}

// task is a piece of a scan, done by the worker whose caller it is given.
type task func(*caller) error

// scanner walks the tree with a stack of tasks and a fixed number of workers. A
// task may push others; the scan ends when none is left, or one has failed. The
// newest task is taken first, so that a directory that was opened is done with
// before others are opened, and few are open at a time.
type scanner struct {
	scanConfig
	lister   *lister
	below    map[string][]int // known directory -> known directories in it
	numbers  map[string]int   // known directory -> its number
	layered  sync.Map         // device -> whether it is an overlayfs, as uint64 -> bool
	found    atomic.Int64
	reported atomic.Int64 // when Progress was called last, ns

	report sync.Mutex // held while Progress is called

	mu      sync.Mutex // guards the following
	wake    sync.Cond
	tasks   []task
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
	s.push(func(c *caller) error { return s.list(c, root) })
	stop := context.AfterFunc(ctx, func() { s.fail(ctx.Err()) })
	defer stop()

	var workers sync.WaitGroup
	for range scanWorkers {
		workers.Go(func() { s.work(s.calls.caller()) })
	}
	workers.Wait()
	for n := range s.open { // what a failure left open
		_ = unix.Close(n.fd)
	}
	if err := ctx.Err(); err != nil {
		return result{}, fmt.Errorf("scan %s: %w", s.root.path, err)
	}
	if err := s.failure(); err != nil {
		return result{}, err
	}
	res, err := s.assemble(root)
	if err != nil {
		return result{}, err
	}
	return s.withContents(ctx, res)
}

// withContents adds to a new index the contents that belong to the dataset's version, and compares a known
// one with them.
func (s *scanner) withContents(ctx context.Context, res result) (result, error) {
	digests, stamps, err := contents(ctx, s.root, res.index, s.calls.caller)
	if err != nil {
		return result{}, err
	}
	whole := res.index == s.known // nothing was listed anew
	same := true
	if s.known != nil && s.known.Listing() == res.index.Listing() {
		was := s.known.Contents()
		_, same = dataset.SameContents(digests, was)
		for i := range digests { // a file that cannot be read any more makes no other version
			if digests[i] == dataset.Unreadable {
				digests[i] = was[i]
			}
		}
	}
	if outdated(res.index, stamps, s.known != nil) || !same {
		return result{}, fmt.Errorf("%w: %w", errOutdated, &dataset.Error{
			Path: s.root.path, Kind: dataset.ErrUnsettled, Hint: "start again when nothing writes to them any more",
		})
	}
	if whole && slices.Equal(digests, s.known.Contents()) {
		return res, nil
	}
	if res.index, err = res.index.WithContents(digests); err == nil && s.known != nil && res.index.Equal(s.known) {
		res.index = s.known
	}
	return res, err
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

func (s *scanner) push(tasks ...task) {
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
func (s *scanner) work(c *caller) {
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
		do := s.tasks[last]
		s.tasks[last] = nil
		s.tasks = s.tasks[:last]
		s.mu.Unlock()
		err := do(c)
		s.mu.Lock()
		if err != nil && s.err == nil {
			s.err = err
		}
		if s.pending--; s.pending == 0 || s.err != nil {
			s.wake.Broadcast()
		}
	}
}

// visit keeps a directory as it is known, if its times show that it has not changed, or lists it.
func (s *scanner) visit(c *caller, n *node) error {
	if n.known < 0 {
		return s.list(c, n)
	}
	d := s.known.Directory(n.known)
	if !d.Settled {
		return s.list(c, n)
	}
	c.begin("stat", n.path, "")
	st, err := s.root.stat(n.path)
	c.end()
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), err == nil && !isDir(&st):
		return s.outdated(n, unix.ENOENT)
	case err != nil:
		return s.directoryError(n, err)
	}
	modified, changed := times(&st)
	if modified != d.Modified || changed != d.Changed || s.onOverlay(c, n, st.Dev) {
		return s.list(c, n)
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

// onOverlay reports whether directory n, on device dev, lies on overlayfs, or may do so. There a directory that
// is made of several layers has the times of the uppermost, which do not tell of entries that came to or left a
// lower one. The file system is asked once per device.
func (s *scanner) onOverlay(c *caller, n *node, dev uint64) bool {
	if known, ok := s.layered.Load(dev); ok {
		return known.(bool)
	}
	c.begin("statfs", n.path, "")
	kind, err := s.root.fileSystem(n.path)
	c.end()
	if err != nil {
		return true // listing it says what is wrong, if it still is
	}
	s.layered.Store(dev, kind == unix.OVERLAYFS_SUPER_MAGIC)
	return kind == unix.OVERLAYFS_SUPER_MAGIC
}

func (s *scanner) pushChildren(children []*node) {
	tasks := make([]task, len(children))
	for i, child := range children {
		tasks[i] = func(c *caller) error { return s.visit(c, child) }
	}
	s.push(tasks...)
}

// list lists a directory and asks for the files in it.
func (s *scanner) list(c *caller, n *node) error {
	c.begin("open", n.path, "")
	fd, err := s.root.directory(n.path)
	c.end()
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

	c.begin("stat", n.path, "")
	st, err := statOpen(fd)
	c.end()
	if err != nil {
		return s.directoryError(n, err)
	}
	n.modified, n.changed = times(&st)
	n.settled = dataset.Settled(n.modified, n.changed, s.now)
	n.dev, n.ino = st.Dev, st.Ino
	if err := s.checkCycle(n); err != nil {
		return err
	}
	entries, err := s.lister.list(fd, func() { c.begin("getdents", n.path, "") })
	c.end()
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
		return s.complete(c, n)
	}
	tasks := make([]task, len(chunks)-1)
	for i, chunk := range chunks[1:] {
		tasks[i] = func(c *caller) error { return s.ask(c, n, chunk) }
	}
	s.push(tasks...)
	return s.ask(c, n, chunks[0])
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
func (s *scanner) ask(c *caller, n *node, entries []dirent) error {
	samples := make([]sample, 0, len(entries))
	var children []*node
	settled := true
	for _, e := range entries {
		st, link, err := s.statEntry(c, n, e)
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
			var changed int64
			f.modified, changed = times(&st)
			f.size = st.Size
			f.stamp = dataset.NewStamp(f.size, f.modified, changed, st.Ino)
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
		return s.complete(c, n)
	}
	return nil
}

// errVanished: a file was removed after the directory was listed.
var errVanished = errors.New("the file has vanished")

// statEntry says what e is, behind a symbolic link if it is one. A link that
// leads nowhere, or where this user can not go, is given as a link.
func (s *scanner) statEntry(c *caller, n *node, e dirent) (st unix.Stat_t, link bool, err error) {
	c.begin("stat", n.path, e.name)
	defer c.end()
	st, err = stat(n.fd, e.name, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return st, false, errVanished
	}
	if err != nil || !isLnk(&st) {
		return st, false, err
	}
	c.begin("stat", n.path, e.name) // what it leads to
	target, err := s.target(n, e.name)
	switch {
	case err == nil:
		return target, true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.ENAMETOOLONG):
		return st, true, nil
	}
	return st, true, err
}

// target says what the symbolic link of this name in n leads to.
func (s *scanner) target(n *node, name string) (unix.Stat_t, error) {
	if !s.root.foreign {
		return stat(n.fd, name, 0)
	}
	if n.path != "" {
		name = n.path + "/" + name
	}
	return s.root.stat(name)
}

// complete puts a directory's files in order when all have been asked for.
func (s *scanner) complete(c *caller, n *node) error {
	c.begin("stat", n.path, "")
	st, err := statOpen(n.fd)
	c.end()
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
				Path: s.root.path, Kind: dataset.ErrLinkCycle,
				Hint: fmt.Sprintf("%s is %s again; remove the link", printable.Name(n.path), printable.Name(filepath.Join(s.root.path, a.path))),
			}
		}
	}
	return nil
}

func (s *scanner) outdated(n *node, err error) error {
	return fmt.Errorf("%w: %w", errOutdated, s.directoryError(n, err))
}

func (s *scanner) directoryError(n *node, err error) error {
	return directoryError(filepath.Join(s.root.path, n.path), err)
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
