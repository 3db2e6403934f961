package folder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

// A file that cannot be read temporarily must not change the dataset's version. It counts as
// unreadable only when it has failed more often in a row than the failure rate of the other files
// explains. If that does not become certain, as when few or no files can be read, the source is at
// fault.
const (
	// contentDoubt bounds the probability that an intact file counts as unreadable.
	contentDoubt = 1e-9
	// lastDoubt is the same bound after mostAttempts or, on a disk that is slow to report a bad
	// sector, after attemptTime.
	lastDoubt    = 1e-3
	mostAttempts = 32
	attemptTime  = 20 * time.Second
	attemptPause = 50 * time.Millisecond
	longestPause = 250 * time.Millisecond
)

// readers is how many files are read in parallel.
const readers = 16

// content is the result of reading an excerpt.
type content struct {
	digest [16]byte
	stamp  source.Stamp // zero if it is not known
	kind   error        // why it cannot be read
	err    error        // why the source does not respond
}

func (c *content) failed() bool { return c.err != nil || source.OfOneFile(c.kind) }

// Calls monitors system calls, each of which may hang.
type Calls interface {
	// Begin records the start of a call on name in the directory dir, or on dir itself.
	Begin(op, dir, name string)
	// End records that the call has returned.
	End()
}

// Contents are what was found in the files, in the order of source.Index.Excerpts.
type Contents struct {
	Digests [][16]byte     // source.Unreadable: of a file that cannot be read
	Stamps  []source.Stamp // zero: not known
	// Doubt, if not nil, is why files that could not be read may be intact: the source may fail.
	Doubt error
}

// Read reads the files. An error means that the source does not respond. Each of its goroutines has
// Calls of its own.
func Read(ctx context.Context, r *tree.Root, x *source.Index,
	newCalls func() Calls,
) (Contents, error) {
	excerpts := x.Excerpts()
	found := make([]content, len(excerpts))
	left := make([]int, len(excerpts)) // still to be read
	for i := range left {
		left[i] = i
	}
	calls := make([]Calls, min(readers, len(excerpts)))
	for i := range calls {
		calls[i] = newCalls()
	}
	var all Contents
	begun := time.Now()
	faults := 0 // failed attempts on files that could be read later
	for attempt := 1; ; attempt++ {
		readContents(ctx, r, x, excerpts, found, left, calls)
		if err := ctx.Err(); err != nil {
			return Contents{}, err
		}
		tried := len(left)
		left = slices.DeleteFunc(left, func(i int) bool { return !found[i].failed() })
		faults += (tried - len(left)) * (attempt - 1)
		good := countRead(found)
		chance := chanceOf(attempt, good, faults)
		last := attempt >= mostAttempts
		late := last || time.Since(begun) > attemptTime
		if len(left) == 0 || chance <= contentDoubt || late && chance <= lastDoubt {
			break
		}
		if last || late && good == 0 {
			all.Doubt = inDoubt(r, len(left), len(found), found[left[0]].kind)
			break
		}
		if !sleep(ctx, min(time.Duration(attempt)*attemptPause, longestPause)) {
			return Contents{}, ctx.Err()
		}
	}
	all.Digests = make([][16]byte, len(excerpts))
	all.Stamps = make([]source.Stamp, len(excerpts))
	for i, c := range found {
		if c.err != nil {
			return Contents{}, &source.Error{
				Path: r.Path() + "/" + x.Name(excerpts[i].ID),
				Kind: source.ErrUnavailable,
				Err:  c.err,
			}
		}
		all.Digests[i], all.Stamps[i] = c.digest, c.stamp
	}
	return all, nil
}

// countRead returns how many files were read.
func countRead(found []content) (n int) {
	for _, c := range found {
		if c.err == nil && c.digest != source.Unreadable {
			n++
		}
	}
	return n
}

// chanceOf returns the probability that an intact file fails this often in a row, if good other
// files were read after this many faults. Each failure makes the next one likelier.
func chanceOf(attempts, good, faults int) float64 {
	chance := 1.0
	for all := faults; all < faults+attempts; all++ {
		// Half a fault more than were counted: a source that has never failed still may.
		chance *= (float64(all) + 0.5) / float64(good+all+1)
	}
	return chance
}

// inDoubt returns the error of a source that may be at fault for files that cannot be read.
func inDoubt(r *tree.Root, left, all int, why error) error {
	return &source.Error{
		Path: r.Path(), Kind: source.ErrUnavailable, Err: why,
		Hint: fmt.Sprintf("%d of the %d files that identify it cannot be read, and too few reads "+
			"of others succeed to tell bad files from a source that fails; check it, and try again",
			left, all),
	}
}

// readContents reads the excerpts that are left, several in parallel.
func readContents(ctx context.Context, r *tree.Root, x *source.Index, excerpts []source.Excerpt,
	found []content, left []int, calls []Calls,
) {
	var reading sync.WaitGroup
	for first, call := range calls[:min(len(calls), len(left))] {
		reading.Go(func() {
			for k := first; k < len(left) && ctx.Err() == nil; k += len(calls) {
				c := &found[left[k]]
				e := excerpts[left[k]]
				c.digest, c.stamp, c.kind, c.err = digest(r, call, x.Name(e.ID), e.Pieces)
				if c.failed() { // it may be the file that is listed all the same
					c.stamp = stampAt(r, call, x.Name(e.ID))
				}
			}
		})
	}
	reading.Wait()
}

// digest reads pieces of the file at path. If this user or the disk cannot read the file, it is
// unreadable, and why is the reason; an error means that the source does not respond.
func digest(r *tree.Root, call Calls, path string,
	pieces []source.Extent,
) (sum [16]byte, stamp source.Stamp, why, err error) {
	call.Begin("read", path, "")
	defer call.End()
	fd, err := tree.RetryEINTR(func() (int, error) {
		return r.Open(append([]byte(path), 0), tree.FileFlags)
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
		return source.Unreadable, 0, nil, nil
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
	return source.ContentDigest(parts...), tree.StampOf(&st), nil, nil
}

func unreadable(err error) (sum [16]byte, stamp source.Stamp, why, failure error) {
	if errors.Is(tree.Kind(err), source.ErrUnavailable) && !source.OfOneFile(err) {
		return sum, 0, nil, err
	}
	return source.Unreadable, 0, err, nil
}

// stampAt returns the stamp of the file at path, or zero if it cannot be found out.
func stampAt(r *tree.Root, call Calls, path string) source.Stamp {
	call.Begin("stat", path, "")
	defer call.End()
	var st unix.Statx_t
	if err := r.Statx(append([]byte(path), 0), &st); err != nil {
		return 0
	}
	return tree.StampOf(&st)
}

// coverage is what the dataset's version covers of a file.
type coverage struct {
	pieces []source.Extent
	digest [16]byte
}

// coverages returns what the version covers, by sample, of files that could be read.
func coverages(x *source.Index) map[int]coverage {
	covered := make(map[int]coverage)
	digests := x.Contents()
	for i, e := range x.Excerpts() {
		if digests[i] != source.Unreadable {
			covered[e.ID] = coverage{e.Pieces, digests[i]}
		}
	}
	return covered
}

// has reports whether the bytes of a file are those that the version covers.
func (c *coverage) has(data []byte) bool {
	var parts [4][]byte // as many as an Excerpt has
	for i, p := range c.pieces {
		parts[i] = data[p.Offset : p.Offset+p.Length]
	}
	return source.ContentDigest(parts[:len(c.pieces)]...) == c.digest
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
