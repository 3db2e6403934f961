package main

import (
	"context"
	"math/rand/v2"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// source is the directory that is mounted, and the state that all its files share.
type source struct {
	root     string
	dev      uint64
	bucket   bucket
	sleeper  sleeper
	settings atomic.Pointer[current]
	counts   counts
	reading  atomic.Int64 // reads in progress
}

// lossless is how many readers do not slow each other down.
const lossless = 4

// bandwidth returns the bandwidth of all readers together now, in bytes per second; 0: unlimited.
func (s *source) bandwidth() int64 {
	now := s.settings.Load()
	over := float64(max(s.reading.Load()-lossless, 0))
	return int64(float64(now.bandwidth) * max(1-now.loss*over, 0.01))
}

// current is the settings in force.
type current struct {
	settings
	replaced chan struct{} // closed when the settings are replaced

	faults struct { // guards the following
		sync.Mutex
		rng *rand.Rand
	}
}

// counts are the counters of what readers got. Names and attributes are not counted.
type counts struct {
	opens  atomic.Int64
	reads  atomic.Int64 // answered with bytes or end of file
	bytes  atomic.Int64
	failed atomic.Int64 // reads that failed, injected or not
	hung   atomic.Int64 // reads and other requests that hang at the moment
}

func newSource(root string, s settings) *source {
	src := &source{root: root, bucket: bucket{now: monotonic}}
	src.settings.Store(newCurrent(s))
	return src
}

func newCurrent(s settings) *current {
	c := &current{settings: s, replaced: make(chan struct{})}
	c.faults.rng = rand.New(rand.NewPCG(s.failSeed, 0))
	return c
}

// set replaces the settings. Requests that hang check the new ones.
func (s *source) set(to settings) {
	old := s.settings.Swap(newCurrent(to))
	close(old.replaced)
}

// matches reports whether the pattern matches the file's path below the source, or its last
// element. An empty pattern matches no file.
func matches(pattern, name string) bool {
	if pattern == "" {
		return false
	}
	whole, _ := path.Match(pattern, name)
	last, _ := path.Match(pattern, path.Base(name))
	return whole || last
}

// fault returns the injected error of a read of the named file, if any. It blocks while the file
// hangs.
func (s *source) fault(ctx context.Context, name string) syscall.Errno {
	c, errno := s.whileHangs(ctx, name, func(now settings) string { return now.hang })
	switch {
	case errno != 0:
		return errno
	case matches(c.fail, name) || c.drawFault():
		return c.errno()
	}
	return 0
}

// nameFault is fault for requests about names instead of bytes.
func (s *source) nameFault(ctx context.Context, name string) syscall.Errno {
	c, errno := s.whileHangs(ctx, name, func(now settings) string { return now.hangNames })
	if errno == 0 && matches(c.failNames, name) {
		return c.errno()
	}
	return errno
}

// whileHangs blocks while the pattern matches the name, and returns the settings in which it does
// not.
func (s *source) whileHangs(ctx context.Context, name string,
	pattern func(settings) string,
) (*current, syscall.Errno) {
	for {
		c := s.settings.Load()
		if !matches(pattern(c.settings), name) {
			return c, 0
		}
		s.counts.hung.Add(1)
		select {
		case <-ctx.Done():
			s.counts.hung.Add(-1)
			return nil, syscall.EINTR
		case <-c.replaced:
			s.counts.hung.Add(-1)
		}
	}
}

func (c *current) drawFault() bool {
	if c.failRate == 0 {
		return false
	}
	c.faults.Lock()
	defer c.faults.Unlock()
	return c.faults.rng.Float64() < c.failRate
}

// node is one file or directory of the source.
type node struct {
	fs.Inode
	src *source
}

var (
	_ fs.NodeLookuper   = (*node)(nil)
	_ fs.NodeGetattrer  = (*node)(nil)
	_ fs.NodeReaddirer  = (*node)(nil)
	_ fs.NodeReadlinker = (*node)(nil)
	_ fs.NodeOpener     = (*node)(nil)
	_ fs.NodeStatfser   = (*node)(nil)
	_ fs.FileReader     = (*file)(nil)
	_ fs.FileReleaser   = (*file)(nil)
)

// below returns the path below the source, and real the path in the mounted directory.
func (n *node) below() string { return n.Path(n.Root()) }
func (n *node) real() string  { return filepath.Join(n.src.root, n.below()) }

// Lookup looks up a name in a directory.
func (n *node) Lookup(ctx context.Context, name string,
	out *fuse.EntryOut,
) (*fs.Inode, syscall.Errno) {
	if errno := n.src.nameFault(ctx, path.Join(n.below(), name)); errno != 0 {
		return nil, errno
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(n.real(), name), &st); err != nil {
		return nil, fs.ToErrno(err)
	}
	out.FromStat(&st)
	id := fs.StableAttr{Mode: st.Mode, Ino: st.Ino ^ bitsOf(uint64(st.Dev)^n.src.dev), Gen: 1}
	return n.NewInode(ctx, &node{src: n.src}, id), 0
}

// bitsOf moves the difference of two device numbers to bits that inode numbers do not use.
func bitsOf(dev uint64) uint64 { return dev<<32 | dev>>32 }

// Getattr returns the attributes of a file or directory.
func (n *node) Getattr(ctx context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if errno := n.src.nameFault(ctx, n.below()); errno != 0 {
		return errno
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(n.real(), &st); err != nil {
		return fs.ToErrno(err)
	}
	out.FromStat(&st)
	return 0
}

// Readdir lists a directory.
func (n *node) Readdir(ctx context.Context) (fs.DirStream, syscall.Errno) {
	if errno := n.src.nameFault(ctx, n.below()); errno != 0 {
		return nil, errno
	}
	return fs.NewLoopbackDirStream(n.real())
}

// Readlink returns the target of a link.
func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	buf := make([]byte, unix.PathMax)
	k, err := unix.Readlink(n.real(), buf)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return buf[:k], 0
}

// Statfs returns the status of the source's file system.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	var st syscall.Statfs_t
	if err := syscall.Statfs(n.real(), &st); err != nil {
		return fs.ToErrno(err)
	}
	out.FromStatfsT(&st)
	return 0
}

// Open waits for the latency, then opens the file for direct I/O.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		return nil, 0, syscall.EROFS
	}
	if latency := n.src.settings.Load().latency; latency > 0 {
		n.src.sleeper.until(monotonic() + int64(latency/time.Nanosecond))
	}
	fd, err := syscall.Open(n.real(), syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	n.src.counts.opens.Add(1)
	return &file{src: n.src, name: n.below(), fd: fd}, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0
}

// file is one open regular file.
type file struct {
	src  *source
	name string
	fd   int
}

// Read reads at once, and answers when the bytes would have been transferred.
func (f *file) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := f.src.fault(ctx, f.name); errno != 0 {
		f.src.counts.failed.Add(1)
		return nil, errno
	}
	k, err := syscall.Pread(f.fd, dest, off)
	if err != nil {
		f.src.counts.failed.Add(1)
		return nil, fs.ToErrno(err)
	}
	f.src.reading.Add(1)
	f.src.sleeper.until(f.src.bucket.take(k, f.src.bandwidth()))
	f.src.reading.Add(-1)
	f.src.counts.reads.Add(1)
	f.src.counts.bytes.Add(int64(k))
	return fuse.ReadResultData(dest[:k]), 0
}

// Release closes the source's file.
func (f *file) Release(context.Context) syscall.Errno {
	return fs.ToErrno(syscall.Close(f.fd))
}
