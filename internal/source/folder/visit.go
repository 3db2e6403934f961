package folder

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats/classes"
	"github.com/hdmlp/hdmlp/internal/source/hangs"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

// visit takes a directory from the known index if its times show that it has not changed; otherwise
// it lists it.
func (s *scanner) visit(c *hangs.Caller, n *node) error {
	if n.known < 0 {
		return s.list(c, n)
	}
	d := s.known.Directory(n.known)
	if !d.Settled {
		return s.list(c, n)
	}
	c.Begin("stat", n.path, "")
	st, err := s.root.Stat(n.path)
	c.End()
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), err == nil && !tree.IsDir(&st):
		return s.outdated(n, unix.ENOENT)
	case err != nil:
		return s.directoryError(n, err)
	}
	modified, changed := tree.Times(&st)
	if modified != d.Modified || changed != d.Changed || s.onOverlay(c, n, st.Dev) {
		return s.list(c, n)
	}
	n.kept, n.settled = true, true
	n.modified, n.changed = modified, changed
	n.dev, n.ino = st.Dev, st.Ino
	n.linked = true // whether it has a link is not known
	for _, i := range s.below[n.path] {
		n.children = append(n.children, &node{
			path: s.known.Directory(i).Path, parent: n, linked: true, known: i, fd: -1,
		})
	}
	s.pushChildren(n.children)
	s.count(d.End - d.First)
	return nil
}

// onOverlay reports whether directory n, on device dev, is or may be on overlayfs. There a merged
// directory has the times of its uppermost layer, which do not change with the entries of lower
// ones. The file system type is read once per device.
func (s *scanner) onOverlay(c *hangs.Caller, n *node, dev uint64) bool {
	if known, ok := s.layered.Load(dev); ok {
		return known.(bool)
	}
	c.Begin("statfs", n.path, "")
	kind, err := s.root.FileSystem(n.path)
	c.End()
	if err != nil {
		return true // listing it reports the error, if it persists
	}
	s.layered.Store(dev, kind == unix.OVERLAYFS_SUPER_MAGIC)
	return kind == unix.OVERLAYFS_SUPER_MAGIC
}

func (s *scanner) pushChildren(children []*node) {
	tasks := make([]task, len(children))
	for i, child := range children {
		tasks[i] = func(c *hangs.Caller) error { return s.visit(c, child) }
	}
	s.push(tasks...)
}

// list lists a directory and stats the files in it.
func (s *scanner) list(c *hangs.Caller, n *node) error {
	c.Begin("open", n.path, "")
	fd, err := s.root.Directory(n.path)
	c.End()
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

	c.Begin("stat", n.path, "")
	st, err := tree.StatOpen(fd)
	c.End()
	if err != nil {
		return s.directoryError(n, err)
	}
	n.modified, n.changed = tree.Times(&st)
	n.settled = source.Settled(n.modified, n.changed, s.now)
	n.dev, n.ino = st.Dev, st.Ino
	if err := s.checkCycle(n); err != nil {
		return err
	}
	entries, err := s.lister.List(fd, func() { c.Begin("getdents", n.path, "") })
	c.End()
	if err != nil {
		return s.directoryError(n, err)
	}
	isRoot := n.parent == nil
	ask := entries[:0]
	for _, e := range entries {
		switch e.Kind {
		case unix.DT_DIR:
			n.children = append(n.children, s.child(n, e.Name, false))
		case unix.DT_LNK, unix.DT_UNKNOWN:
			ask = append(ask, e)
		default:
			if !isRoot && classes.Matches(e.Name, s.extensions) {
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
		tasks[i] = func(c *hangs.Caller) error { return s.ask(c, n, chunk) }
	}
	s.push(tasks...)
	return s.ask(c, n, chunks[0])
}

// child returns the node of the directory of this name in n.
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

// ask stats the files of one chunk of a directory's entries.
func (s *scanner) ask(c *hangs.Caller, n *node, entries []tree.Entry) error {
	samples := make([]sample, 0, len(entries))
	var children []*node
	settled := true
	for _, e := range entries {
		st, link, err := s.statEntry(c, n, e)
		for attempt := 1; attempt < statAttempts && source.OfOneFile(err); attempt++ {
			time.Sleep(min(time.Duration(attempt)*attemptPause, longestPause))
			st, link, err = s.statEntry(c, n, e)
		}
		switch {
		case errors.Is(err, errVanished):
			settled = false
			continue
		case s.isFaulty(n, e, err):
			settled = false
			samples = append(samples, sample{name: e.Name})
			continue
		case err != nil:
			return s.directoryError(n, err)
		case tree.IsDir(&st):
			children = append(children, s.child(n, e.Name, link))
			continue
		case n.parent == nil || !classes.Matches(e.Name, s.extensions):
			continue
		}
		// ImageFolder also counts files that are not regular, and dangling links, as samples: they
		// cannot be read, but they take a number.
		f := sample{name: e.Name}
		if tree.IsReg(&st) {
			var changed int64
			f.modified, changed = tree.Times(&st)
			f.size = st.Size
			f.stamp = source.NewStamp(f.size, f.modified, changed, st.Ino)
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

// isFaulty reports whether the status of a sample cannot be read because of a fault that may be its
// own, as of a bad sector. Reading the sample shows whether it is, and is subject to on_error.
func (s *scanner) isFaulty(n *node, e tree.Entry, err error) bool {
	return source.OfOneFile(err) && n.parent != nil && classes.Matches(e.Name, s.extensions) &&
		s.faulty.Add(1) <= mostFaulty
}

// errVanished means that a file was removed after its directory was listed.
var errVanished = errors.New("the file has vanished")

// statEntry returns the status of e, or of the target if e is a symbolic link. For a dangling link,
// or one whose target this user cannot access, it is the link's own.
func (s *scanner) statEntry(c *hangs.Caller, n *node,
	e tree.Entry,
) (st unix.Stat_t, link bool, err error) {
	c.Begin("stat", n.path, e.Name)
	defer c.End()
	st, err = tree.Stat(n.fd, e.Name, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return st, false, errVanished
	}
	if err != nil || !tree.IsLnk(&st) {
		return st, false, err
	}
	c.Begin("stat", n.path, e.Name) // of its target
	target, err := s.target(n, e.Name)
	switch {
	case err == nil:
		return target, true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.ENAMETOOLONG):
		return st, true, nil
	}
	return st, true, err
}

// target returns the status of the target of the symbolic link of this name in n.
func (s *scanner) target(n *node, name string) (unix.Stat_t, error) {
	if !s.root.Foreign() {
		return tree.Stat(n.fd, name, 0)
	}
	if n.path != "" {
		name = n.path + "/" + name
	}
	return s.root.Stat(name)
}

// complete sorts a directory's files after the last chunk.
func (s *scanner) complete(c *hangs.Caller, n *node) error {
	c.Begin("stat", n.path, "")
	st, err := tree.StatOpen(n.fd)
	c.End()
	if err != nil {
		return s.directoryError(n, err)
	}
	if modified, changed := tree.Times(&st); modified != n.modified || changed != n.changed {
		n.settled = false // it changed while it was listed
	}
	slices.SortFunc(n.samples, func(a, b sample) int { return classes.Compare(a.name, b.name) })
	s.mu.Lock()
	delete(s.open, n)
	s.mu.Unlock()
	_ = unix.Close(n.fd)
	n.fd = -1
	return nil
}

// checkCycle returns an error if n is one of the directories above it.
func (s *scanner) checkCycle(n *node) error {
	if !n.linked || n.ino == 0 {
		return nil
	}
	for a := n.parent; a != nil; a = a.parent {
		if a.ino == n.ino && a.dev == n.dev {
			return &source.Error{
				Path: s.root.Path(), Kind: source.ErrLinkCycle,
				Hint: fmt.Sprintf("%s is %s again; remove the link", human.Name(n.path),
					human.Name(filepath.Join(s.root.Path(), a.path))),
			}
		}
	}
	return nil
}

func (s *scanner) outdated(n *node, err error) error {
	return fmt.Errorf("%w: %w", errOutdated, s.directoryError(n, err))
}

func (s *scanner) directoryError(n *node, err error) error {
	return directoryError(filepath.Join(s.root.Path(), n.path), err)
}

// count adds to the files found, and periodically calls Progress.
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
