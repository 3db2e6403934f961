package shards

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
)

// # How a shard comes to its name
//
// It is written to a hidden file and synced. The file is read back, past the page cache where the
// kernel drops it, and its digest compared with that of the bytes which were written. Then its line
// is added to the journal, and the file gets its name, which nothing may have by then. A run that
// was interrupted in between finds the line and the hidden file, and does the rest. One that was
// interrupted earlier writes the shard again.

// ClassesName is the file with the names of the classes, a JSON list in the order of their numbers.
// It is there if the samples have classes whose names are known.
const ClassesName = "classes.json"

// bufferSize is how many bytes are written at once.
const bufferSize = 1 << 20

// Progress is how far a Write is.
type Progress struct {
	Samples, Shards int   // that are complete
	Bytes           int64 // of all shards
}

// WriteOptions are the options of Write.
type WriteOptions struct {
	Streams  int            // samples that are read at the same time
	Memory   int64          // bytes of samples that are in memory; a larger sample is alone
	Progress func(Progress) // nil: none; calls do not overlap
}

// Result is what a Write did.
type Result struct {
	Kept    int // shards of an earlier run
	Written int // shards
}

// Write writes the shards to a directory, which it creates if it is missing, or goes on with those
// of an earlier run. Errors of ErrInput are the user's; others are those of the source, or of the
// disk.
func (l *Layout) Write(ctx context.Context, src source.Source, dir string, o WriteOptions,
) (result Result, err error) {
	j, err := openJournal(dir, head{Format: 1, Layout: l.sum, Shards: len(l.shards)})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	w := &writer{Layout: l, source: src, dir: dir, options: o, journal: j}
	if err := w.adopt(); err != nil {
		return result, err
	}
	result.Kept = len(j.found)
	if err := w.classesFile(); err != nil {
		return result, err
	}
	if err := w.free(); err != nil {
		return result, err
	}
	for i := result.Kept; i < len(l.shards); i++ {
		if err := w.shard(ctx, &l.shards[i]); err != nil {
			return result, err
		}
		result.Written++
	}
	return result, nil
}

// writer writes the shards of a layout.
type writer struct {
	*Layout
	source  source.Source
	dir     string
	options WriteOptions
	journal *journal
	done    Progress
}

func (w *writer) path(name string) string { return filepath.Join(w.dir, name) }

func hidden(name string) string { return "." + name + ".part" }

// adopt checks the shards of an earlier run, and gives the last one its name if it has none yet.
func (w *writer) adopt() error {
	if len(w.journal.found) > len(w.shards) {
		return wrong("%s has more lines than there are shards: remove the directory, or give "+
			"another one", w.journal.file.Name())
	}
	for i, line := range w.journal.found {
		s := &w.shards[i]
		if line.Name != s.Name || line.Size != s.Size {
			return wrong("%s: line %d is not of %s: remove the directory, or give another one",
				w.journal.file.Name(), i+2, s.Name)
		}
		if _, err := os.Lstat(w.path(hidden(s.Name))); err == nil {
			if err := w.check(hidden(s.Name), line.Digest); err != nil {
				return err
			}
			if err := w.rename(s.Name); err != nil {
				return err
			}
		}
		info, err := os.Lstat(w.path(s.Name))
		if err != nil || !info.Mode().IsRegular() || info.Size() != s.Size {
			return wrong("%s was removed or changed since it was written: remove the directory, or "+
				"give another one", human.Name(w.path(s.Name)))
		}
		w.progress(s.End-s.First, s.Size)
		w.done.Shards++
	}
	for i := len(w.journal.found); i < len(w.shards); i++ {
		if _, err := os.Lstat(w.path(w.shards[i].Name)); err == nil {
			return wrong("%s is there already, and was not written by an earlier run: remove it, or "+
				"give another directory", human.Name(w.path(w.shards[i].Name)))
		}
	}
	return nil
}

// progress counts samples and bytes.
func (w *writer) progress(samples int, bytes int64) {
	w.done.Samples += samples
	w.done.Bytes += bytes
	if w.options.Progress != nil {
		w.options.Progress(w.done)
	}
}

// classesFile writes the names of the classes.
func (w *writer) classesFile() error {
	if w.names == nil {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(w.names); err != nil {
		return err
	}
	if there, err := os.ReadFile(w.path(ClassesName)); err == nil {
		if !bytes.Equal(there, b.Bytes()) {
			return wrong("%s is there already, and is another one: remove it, or give another "+
				"directory", human.Name(w.path(ClassesName)))
		}
		return nil
	}
	f, err := w.create(hidden(ClassesName))
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return w.rename(ClassesName)
}

// create creates a hidden file, in the place of one that an earlier run left.
func (w *writer) create(name string) (*os.File, error) {
	path := w.path(name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// rename gives a hidden file its name, unless there is a file of that name.
func (w *writer) rename(name string) error {
	from, to := w.path(hidden(name)), w.path(name)
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system cannot
		if err = unix.Link(from, to); err == nil {
			err = unix.Unlink(from)
		}
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return wrong("%s is there already, and was not written by this run: remove it, or give "+
			"another directory", human.Name(to))
	case err != nil:
		return &fs.PathError{Op: "rename", Path: from, Err: err}
	}
	return syncDirectory(w.dir)
}

// free checks that the disk has room for what is still to be written.
func (w *writer) free() error {
	var st unix.Statfs_t
	if err := unix.Statfs(w.dir, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: w.dir, Err: err}
	}
	free := int64(st.Bavail) * st.Bsize
	if need := w.Bytes() - w.done.Bytes; need > free {
		return wrong("%s: the shards take %s more, and its disk has %s free: free space on it, or "+
			"give a directory on another one", human.Name(w.dir), human.Format(need),
			human.Format(free))
	}
	return nil
}

// shard writes one shard.
func (w *writer) shard(ctx context.Context, s *Shard) error {
	f, err := w.create(hidden(s.Name))
	if err != nil {
		return err
	}
	sum := xxh3.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(f, sum), bufferSize)
	if err = w.fill(ctx, s, buffered); err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	total := sum.Sum128().Bytes()
	line := written{Name: s.Name, Size: s.Size, Digest: hex.EncodeToString(total[:])}
	if err := w.check(hidden(s.Name), line.Digest); err != nil {
		return err
	}
	if err := w.journal.add(line); err != nil {
		return err
	}
	if err := w.rename(s.Name); err != nil {
		return err
	}
	w.done.Shards++
	w.progress(0, 0)
	return nil
}

// check reads a file back, and compares its digest.
func (w *writer) check(name, digest string) error {
	f, err := os.Open(w.path(name))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	sum := xxh3.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	total := sum.Sum128().Bytes()
	if got := hex.EncodeToString(total[:]); got != digest {
		return fmt.Errorf("%s: what was written is not what is read back (digest %s, and not %s): "+
			"the disk or its memory is faulty", human.Name(w.path(name)), got, digest)
	}
	return nil
}

// read is a sample that is being read.
type read struct {
	id   int
	data []byte
	err  error
	done chan struct{}
}

// fill writes a shard's bytes. Samples are read several at once, and written in order.
func (w *writer) fill(ctx context.Context, s *Shard, to io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	queue := make(chan *read, w.options.Streams)
	memory := semaphore.NewWeighted(w.options.Memory)
	go w.readAll(ctx, s, queue, memory)
	defer func() {
		cancel()
		for r := range queue { // what is being read must have ended
			<-r.done
		}
	}()
	counter := &counter{to: to}
	archive := tar.NewWriter(counter)
	for r := range queue {
		<-r.done
		if r.err != nil {
			return r.err
		}
		before := counter.n
		if err := w.writeSample(archive, r.id, r.data); err != nil {
			return err
		}
		memory.Release(min(int64(len(r.data)), w.options.Memory))
		w.progress(1, counter.n-before)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	before := counter.n
	if err := archive.Close(); err != nil {
		return err
	}
	w.progress(0, counter.n-before)
	if counter.n != s.Size {
		return fmt.Errorf("%s has %d bytes, and not the %d of its layout: please report this",
			s.Name, counter.n, s.Size)
	}
	return nil
}

// readAll reads the samples of a shard, and closes the queue. The queue bounds their number.
func (w *writer) readAll(ctx context.Context, s *Shard, queue chan<- *read,
	memory *semaphore.Weighted,
) {
	defer close(queue)
	for at := s.First; at < s.End; at++ {
		r := &read{id: w.id(at), done: make(chan struct{})}
		size := w.index.Size(r.id)
		if memory.Acquire(ctx, min(size, w.options.Memory)) != nil {
			return
		}
		select {
		case queue <- r:
		case <-ctx.Done():
			return
		}
		go func() {
			defer close(r.done)
			r.data = make([]byte, size)
			_, r.err = w.source.Read(ctx, r.id, r.data)
		}()
	}
}

// counter counts what is written.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.n += int64(n)
	return n, err
}
