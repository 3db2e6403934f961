package folder

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/dataset/tree"
)

// A file that cannot be read temporarily must not change the dataset's version. It counts as
// unreadable only when it has failed more often in a row than the failure rate of the other files
// explains.
const (
	// contentDoubt bounds the probability that an intact file counts as unreadable.
	contentDoubt = 1e-9
	// If nothing can be read, reading ends after this many attempts or, on a disk that is slow to
	// report a bad sector, after this time: unreadable files match any contents.
	mostAttempts = 32
	attemptTime  = 20 * time.Second
	attemptPause = 50 * time.Millisecond
	longestPause = 250 * time.Millisecond
)

// contentReaders is how many files are read in parallel.
const contentReaders = 16

// content is the result of reading an excerpt.
type content struct {
	digest [16]byte
	stamp  dataset.Stamp // zero if it cannot be read
	kind   error         // why it cannot be read
	err    error         // why the source does not respond
}

func (c *content) failed() bool { return c.err != nil || errors.Is(c.kind, unix.EIO) }

// contents reads the files that the dataset's version covers, and returns their digests and stamps,
// which are zero for files that cannot be read. Each of its goroutines has a caller.
func contents(ctx context.Context, r *tree.Root, x *dataset.Index,
	newCaller func() *caller,
) (digests [][16]byte, stamps []dataset.Stamp, err error) {
	excerpts := x.Excerpts()
	found := make([]content, len(excerpts))
	left := make([]int, len(excerpts)) // still to be read
	for i := range left {
		left[i] = i
	}
	callers := make([]*caller, min(contentReaders, len(excerpts)))
	for i := range callers {
		callers[i] = newCaller()
	}
	begun := time.Now()
	faults := 0 // failed attempts on files that could be read later
	for attempt := 1; len(left) > 0; attempt++ {
		readContents(ctx, r, x, excerpts, found, left, callers)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		tried := len(left)
		left = slices.DeleteFunc(left, func(i int) bool { return !found[i].failed() })
		faults += (tried - len(left)) * (attempt - 1)
		if attempt >= attemptsFor(len(found)-len(left), faults) || time.Since(begun) > attemptTime {
			break
		}
		if len(left) > 0 && !sleep(ctx, min(time.Duration(attempt)*attemptPause, longestPause)) {
			return nil, nil, ctx.Err()
		}
	}
	digests = make([][16]byte, len(excerpts))
	stamps = make([]dataset.Stamp, len(excerpts))
	for i, c := range found {
		if c.err != nil {
			return nil, nil, &dataset.Error{
				Path: r.Path() + "/" + x.Name(excerpts[i].ID),
				Kind: dataset.ErrUnavailable,
				Err:  c.err,
			}
		}
		digests[i], stamps[i] = c.digest, c.stamp
	}
	return digests, stamps, nil
}

// attemptsFor returns how often a file must fail before it counts as unreadable, if good other
// files were read after this many faults.
func attemptsFor(good, faults int) int {
	// Half a fault more than were counted: a source that has never failed still may.
	share := (float64(faults) + 0.5) / float64(good+faults+1)
	return min(int(math.Ceil(math.Log(contentDoubt)/math.Log(share))), mostAttempts)
}

// readContents reads the excerpts that are left, several in parallel.
func readContents(ctx context.Context, r *tree.Root, x *dataset.Index, excerpts []dataset.Excerpt,
	found []content, left []int, callers []*caller,
) {
	var readers sync.WaitGroup
	for first, call := range callers[:min(len(callers), len(left))] {
		readers.Go(func() {
			for k := first; k < len(left) && ctx.Err() == nil; k += len(callers) {
				c := &found[left[k]]
				e := excerpts[left[k]]
				c.digest, c.stamp, c.kind, c.err = digest(r, call, x.Name(e.ID), e.Pieces)
			}
		})
	}
	readers.Wait()
}

// outdated reports whether a file of the excerpts was written to after it was listed or, if strict,
// replaced.
func outdated(x *dataset.Index, stamps []dataset.Stamp, strict bool) bool {
	for i, p := range x.Excerpts() {
		listed := x.Stamp(p.ID)
		if stamps[i].Written(listed) || strict && stamps[i] != 0 && stamps[i] != listed {
			return true
		}
	}
	return false
}

// digest reads pieces of the file at path. If this user or the disk cannot read the file, it is
// unreadable, and why is the reason; an error means that the source does not respond.
func digest(r *tree.Root, call *caller, path string,
	pieces []dataset.Extent,
) (sum [16]byte, stamp dataset.Stamp, why, err error) {
	call.Begin("read", path, "")
	defer call.End()
	fd, err := tree.RetryEINTR(func() (int, error) {
		return r.Open(append([]byte(path), 0), openFlags)
	})
	if err != nil {
		return unreadable(err)
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	// Pieces are far apart: disable read-ahead.
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
	var st unix.Statx_t
	if err := tree.StatxOpen(fd, &st); err != nil {
		return unreadable(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return dataset.Unreadable, 0, nil, nil
	}
	parts := make([][]byte, len(pieces))
	for i, p := range pieces {
		parts[i] = make([]byte, p.Length)
		n := 0
		for n < len(parts[i]) {
			k, err := tree.RetryEINTR(func() (int, error) {
				return unix.Pread(fd, parts[i][n:], p.Offset+int64(n))
			})
			if err != nil {
				return unreadable(err)
			}
			if k == 0 { // shorter than listed, which its stamp shows
				break
			}
			n += k
		}
		parts[i] = parts[i][:n]
	}
	return dataset.ContentDigest(parts...), stampOf(&st), nil, nil
}

func unreadable(err error) (sum [16]byte, stamp dataset.Stamp, why, failure error) {
	if kind := kindOf(err); errors.Is(kind, dataset.ErrUnavailable) && !errors.Is(err, unix.EIO) {
		return sum, 0, nil, err
	}
	return dataset.Unreadable, 0, err, nil
}

// sleep waits for the duration, and reports whether it passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func stampOf(st *unix.Statx_t) dataset.Stamp {
	return dataset.NewStamp(int64(st.Size), tree.Nanos(st.Mtime), tree.Nanos(st.Ctime), st.Ino)
}
