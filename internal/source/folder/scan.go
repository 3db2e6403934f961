package folder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/hangs"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

const (
	// scanWorkers bounds the concurrent system calls. On network file systems round trips take the
	// time, not this machine's cores.
	scanWorkers = 32
	// scanChunk is how many files of one directory one worker stats; larger directories are split
	// among workers.
	scanChunk = 256
	// statAttempts is how often the status of a file is read that fails in a way which may be the
	// fault of that file alone. Such files are listed without a size, up to mostFaulty of them: with
	// more, the source is at fault.
	statAttempts = 5
	mostFaulty   = 100
	// progressEvery is the least time between two calls of Progress.
	progressEvery = 100 * time.Millisecond
)

// errOutdated means that a directory in the index or in its parent's listing does not exist any
// more: either the target of a link was removed, which does not change a directory, or the folder
// changes while it is scanned. It has to be scanned again.
var errOutdated = errors.New("the folder has changed")

// scanConfig is the input of a scan.
type scanConfig struct {
	root       *tree.Root
	extensions []string
	known      *source.Index // nil: none
	progress   func(int64)   // nil: none
	calls      *hangs.Monitor
	now        time.Time // not later than the scan's start
}

// node is a directory that is being scanned.
type node struct {
	path     string // below the root
	parent   *node
	linked   bool   // its path has, or may have, a symbolic link
	dev, ino uint64 // 0: not known

	known   int // its number in the known index, or -1
	kept    bool
	samples []sample // sorted once the node is complete; nil if kept

	modified, changed int64
	settled           bool

	fd        int
	remaining atomic.Int32 // chunks in progress
	mu        sync.Mutex   // guards children, samples and settled while chunks are
	children  []*node
}

// sample is a file that was scanned.
type sample struct {
	name     string
	size     int64
	modified int64
	stamp    source.Stamp
}

// task is a part of a scan. It runs in the worker whose caller is passed.
type task func(*hangs.Caller) error

// scanner walks the tree with a stack of tasks and a fixed number of workers. A task may push
// others; the scan ends when none is left, or one has failed. The newest task is taken first, so
// that an open directory is completed before others are opened, and few are open at a time.
type scanner struct {
	scanConfig
	lister   *tree.Lister
	below    map[string][]int // known directory -> known directories in it
	numbers  map[string]int   // known directory -> its number
	layered  sync.Map         // device -> whether it is an overlayfs, as uint64 -> bool
	found    atomic.Int64
	faulty   atomic.Int64 // files whose status cannot be read
	reported atomic.Int64 // time of the last call of Progress, ns

	report sync.Mutex // held while Progress is called

	mu      sync.Mutex // guards the following
	wake    sync.Cond
	tasks   []task
	pending int // tasks pushed and not yet done
	open    map[*node]struct{}
	err     error
}

// result is the result of a scan.
type result struct {
	index       *source.Index
	listed, all int // number of directories listed, and of all
}

// scan lists the directories that are not known, and builds the index. It returns the known index
// itself if nothing has changed.
func scan(ctx context.Context, config scanConfig) (result, error) {
	s := &scanner{scanConfig: config, lister: tree.NewLister(), open: make(map[*node]struct{})}
	s.wake.L = &s.mu
	if s.known != nil {
		s.learn()
	}
	root := &node{known: -1, fd: -1}
	s.push(func(c *hangs.Caller) error { return s.list(c, root) })
	stop := context.AfterFunc(ctx, func() { s.fail(ctx.Err()) })
	defer stop()

	var workers sync.WaitGroup
	for range scanWorkers {
		workers.Go(func() { s.work(s.calls.Caller()) })
	}
	workers.Wait()
	for n := range s.open { // left open by a failure
		_ = unix.Close(n.fd)
	}
	if err := ctx.Err(); err != nil {
		return result{}, fmt.Errorf("scan %s: %w", s.root.Path(), err)
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

// withContents adds the contents that the dataset's version covers to a new index, and compares a
// known index with them.
func (s *scanner) withContents(ctx context.Context, res result) (result, error) {
	found, err := Read(ctx, s.root, res.index, func() Calls {
		return s.calls.Caller()
	})
	if err != nil {
		return result{}, err
	}
	digests := found.Digests
	whole := res.index == s.known // nothing was listed again
	same := true
	if s.known != nil && s.known.Listing() == res.index.Listing() {
		was := s.known.Contents()
		_, same = source.SameContents(digests, was)
		// A file that can no longer be read does not change the version, unless it is another one.
		for i, e := range res.index.Excerpts() {
			stamp := found.Stamps[i]
			if digests[i] == source.Unreadable && (stamp == s.known.Stamp(e.ID) ||
				stamp == 0 && found.Doubt == nil) {
				digests[i] = was[i]
			}
		}
	}
	if outdated(res.index, found.Stamps, s.known != nil) || !same {
		return result{}, fmt.Errorf("%w: %w", errOutdated, &source.Error{
			Path: s.root.Path(), Kind: source.ErrUnsettled,
			Hint: "try again when nothing writes to them any more",
		})
	}
	if found.Doubt != nil && slices.Contains(digests, source.Unreadable) {
		return result{}, found.Doubt
	}
	if whole && slices.Equal(digests, s.known.Contents()) {
		return res, nil
	}
	if res.index, err = res.index.WithContents(digests); err == nil && s.known != nil &&
		res.index.Equal(s.known) {
		res.index = s.known
	}
	return res, err
}

// outdated reports whether a file of the excerpts was written to after it was listed or, if strict,
// replaced.
func outdated(x *source.Index, stamps []source.Stamp, strict bool) bool {
	for i, p := range x.Excerpts() {
		listed := x.Stamp(p.ID)
		if stamps[i].Written(listed) || strict && stamps[i] != 0 && stamps[i] != listed {
			return true
		}
	}
	return false
}

// learn records the tree of the known index.
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
func (s *scanner) work(c *hangs.Caller) {
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
