// Package records implements source.Source for any index with records over any objects: what a
// format has found, wherever it is stored.
//
// A sample is read with few requests: ranges of one object that lie close to one another, as the
// members of a tar file do, are one.
//
// Whether an object is the one that was listed is checked with each read. Stat asks once per object
// and keeps the answer until Doubt, so that confirming the cached copies of a million samples takes
// a question per shard.
package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

const (
	// maxGap is how many bytes between two ranges are read rather than that another request is made:
	// with 2 ms per request and 100 MB/s, 200 KB take as long as a request; a tar header between two
	// members takes 512 bytes and padding.
	maxGap = 64 << 10
	// storeGap is the same at a place that counts its requests, of which many are in progress at a
	// time: so their latency costs little, and the bytes take the link from others, and cost money
	// where they leave the store. That fits headers and padding, but no member that is not wanted.
	storeGap = 4 << 10
)

// Source is a source.Source.
type Source struct {
	objects objects.Objects
	index   *source.Index
	closed  atomic.Bool
	listed  atomic.Bool      // all objects are as the index has them, for all that is known
	covered map[int]coverage // by sample; read-only
	scratch sync.Pool        // of *scratch
	stored  bool             // objects are at a place that counts its requests
	columns []int            // by field: the column of values with the same contents; -1: none
	gaps    atomic.Int64     // bytes that were read between pieces

	mu    sync.Mutex // guards the following
	asked map[int]answer
}

// answer is what Stat learned of an object.
type answer struct {
	stamp source.Stamp
	err   error // an *objects.Error; nil: it is the one that was listed
}

// piece is a range of an object, and where its bytes go.
type piece struct {
	object int
	offset int64
	dst    []byte
}

// scratch is the memory of one read.
type scratch struct {
	pieces  []piece
	ranges  []source.Range
	lengths []int64
	offsets []int64
	parts   [][]byte
	stamps  []stampOf // of the objects that were read
	value   []byte
	gap     [maxGap]byte
}

// stampOf is the stamp of an object.
type stampOf struct {
	object int
	stamp  source.Stamp
}

var (
	_ source.Indexed    = (*Source)(nil)
	_ source.Locator    = (*Source)(nil)
	_ source.Doubted    = (*Source)(nil)
	_ source.Versioner  = (*Source)(nil)
	_ source.Requesting = (*Source)(nil)
)

// New returns the source of the index's samples, and owns the objects: Close closes them.
func New(o objects.Objects, x *source.Index) *Source {
	s := &Source{objects: o, index: x, asked: map[int]answer{}}
	if x != nil {
		s.covered = coverages(x)
		for _, name := range x.Fields() {
			s.columns = append(s.columns, slices.Index(x.Columns(), name))
		}
	}
	_, s.stored = o.(objects.Requesting)
	s.scratch.New = func() any { return new(scratch) }
	return s
}

// Index implements source.Indexed.
func (s *Source) Index() *source.Index { return s.index }

// Close implements source.Source.
func (s *Source) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.objects.Close()
}

// Path returns where sample id is: its objects or, if it is a part of one, its key and first byte
// there.
func (s *Source) Path(id int) string {
	if id < 0 || id >= s.index.Len() {
		return ""
	}
	var paths []string
	for f, r := range s.index.Ranges(nil, id) {
		if r.Length == source.Missing {
			continue
		}
		o := s.index.Object(r.Object)
		path := s.objects.Path(o.Name)
		if r.Offset == 0 && r.Length == o.Size {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
			continue
		}
		if key := s.index.Name(id); key != o.Name {
			path += ", " + human.Name(key+"."+s.index.Fields()[f])
		}
		paths = append(paths, fmt.Sprintf("%s, byte %d", path, r.Offset))
		break
	}
	return strings.Join(paths, ", ")
}

func (s *Source) check(ctx context.Context, id int) error {
	switch {
	case id < 0 || id >= s.index.Len():
		return &source.SampleError{ID: id, Kind: source.ErrNoSample}
	case s.closed.Load():
		return s.sampleError(id, source.ErrUnreadable, fs.ErrClosed)
	case ctx.Err() != nil:
		return s.sampleError(id, source.ErrUnavailable, ctx.Err())
	}
	return nil
}

func (s *Source) sampleError(id int, kind, err error) error {
	return &source.SampleError{ID: id, Path: s.Path(id), Kind: kind, Err: err}
}

// failed returns the SampleError of a sample whose object failed with err.
func (s *Source) failed(id int, err error) error {
	var e *objects.Error
	if !errors.As(err, &e) {
		return s.sampleError(id, source.ErrUnavailable, err)
	}
	return &source.SampleError{ID: id, Path: s.Path(id), Kind: e.Kind, Err: e.Err}
}

// Read implements source.Source: it fills dst with the packed sample.
func (s *Source) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	if err := s.check(ctx, id); err != nil {
		return 0, err
	}
	if size := s.index.Size(id); int64(len(dst)) != size {
		return 0, s.sampleError(id, source.ErrLength, fmt.Errorf("%d bytes, not %d", len(dst), size))
	}
	b := s.scratch.Get().(*scratch)
	defer s.scratch.Put(b)
	b.reset()
	b.add(s, id, dst)
	if err := b.read(ctx, s); err != nil {
		return 0, s.failed(id, err)
	}
	if c, ok := s.covered[id]; ok && !c.has(dst) {
		return 0, s.sampleError(id, source.ErrChanged, errors.New("its bytes are not those that "+
			"identified the dataset when it was opened, although size and modification time are "+
			"the same; restart the job to use the files as they are now"))
	}
	return s.index.StampOf(id, b.stamp), nil
}

// stamp returns the stamp of an object that was read.
func (b *scratch) stamp(object int) source.Stamp {
	for _, s := range b.stamps {
		if s.object == object {
			return s.stamp
		}
	}
	return 0
}

// reset begins another read.
func (b *scratch) reset() {
	b.stamps, b.pieces = b.stamps[:0], b.pieces[:0]
}

// layout sets the ranges of sample id, and where they lie in the packed sample.
func (b *scratch) layout(x *source.Index, id int) {
	b.ranges = x.Ranges(b.ranges[:0], id)
	b.lengths = b.lengths[:0]
	for _, r := range b.ranges {
		b.lengths = append(b.lengths, r.Length)
	}
	b.offsets, _ = source.Pack(b.offsets[:0], b.lengths)
}

// add adds the pieces of sample id, which is packed into dst, and clears what lies between them.
func (b *scratch) add(s *Source, id int, dst []byte) {
	b.layout(s.index, id)
	read := s.fields(b, id)
	at := int64(0)
	for f, r := range b.ranges {
		if r.Length == source.Missing {
			continue
		}
		clear(dst[at:b.offsets[f]])
		at = b.offsets[f] + r.Length
		if into := dst[b.offsets[f]:at]; read || !s.value(b, f, id, r.Length) {
			b.pieces = append(b.pieces, piece{r.Object, r.Offset, into})
		} else {
			copy(into, b.value)
		}
	}
}

// fields reports whether all fields of the sample are to be read: those that the index has are not
// if its objects are known by versions, which the read of another field compares.
func (s *Source) fields(b *scratch, id int) bool {
	if !s.stored || !s.Versioned() {
		return true
	}
	for f, r := range b.ranges {
		if r.Length != source.Missing && !s.value(b, f, id, r.Length) {
			return false
		}
	}
	return true
}

// value sets b.value to the contents of a field of that length, and reports whether the index has
// them.
func (s *Source) value(b *scratch, f, id int, length int64) bool {
	if f >= len(s.columns) || s.columns[f] < 0 {
		return false
	}
	b.value = s.index.AppendValue(b.value[:0], s.columns[f], id)
	return int64(len(b.value)) == length
}

// read fills the pieces.
func (b *scratch) read(ctx context.Context, s *Source) error {
	// Fields may be asked for in another order than that in which they lie.
	slices.SortStableFunc(b.pieces, func(p, q piece) int {
		return cmp.Or(cmp.Compare(p.object, q.object), cmp.Compare(p.offset, q.offset))
	})
	for first := 0; first < len(b.pieces); {
		end, gaps := b.request(first, s.mostGap())
		p := b.pieces[first]
		o := s.index.Object(p.object)
		stamp, err := s.objects.Read(ctx, &o, p.offset, b.parts)
		if err != nil {
			return err
		}
		s.gaps.Add(gaps)
		b.stamps = append(b.stamps, stampOf{p.object, stamp})
		first = end
	}
	return nil
}

// mostGap is how many bytes between two ranges are read.
func (s *Source) mostGap() int64 {
	if s.stored {
		return storeGap
	}
	return maxGap
}

// request sets parts to those of the request that begins with piece first, and returns the piece
// after it. A piece follows in the same request if it begins at most so many bytes after the one
// before. gaps are the bytes between them.
func (b *scratch) request(first int, most int64) (end int, gaps int64) {
	b.parts = b.parts[:0]
	at := b.pieces[first].offset // where the request ends so far
	for end = first; end < len(b.pieces); end++ {
		p := b.pieces[end]
		gap := p.offset - at
		if p.object != b.pieces[first].object || gap < 0 || gap > most {
			break
		}
		if gap > 0 {
			b.parts = append(b.parts, b.gap[:gap])
			gaps += gap
		}
		b.parts = append(b.parts, p.dst)
		at += gap + int64(len(p.dst))
	}
	return end, gaps
}

// Stat implements source.Source.
func (s *Source) Stat(ctx context.Context, id int) (source.Stamp, error) {
	if err := s.check(ctx, id); err != nil {
		return 0, err
	}
	if s.listed.Load() {
		return s.index.Stamp(id), nil
	}
	var failed error
	stamp := s.index.StampOf(id, func(object int) source.Stamp {
		a, err := s.ask(ctx, object)
		if failed == nil {
			failed = err
		}
		return a
	})
	if failed != nil {
		return 0, s.failed(id, failed)
	}
	return stamp, nil
}

// ask returns the stamp of an object that is the one that was listed. What is only for the moment
// is not kept.
func (s *Source) ask(ctx context.Context, object int) (source.Stamp, error) {
	s.mu.Lock()
	known, ok := s.asked[object]
	s.mu.Unlock()
	if ok {
		return known.stamp, known.err
	}
	listed := s.index.Object(object)
	now, err := s.objects.Stat(ctx, listed.Name)
	if err == nil {
		if kind, why := objects.Compare(&listed, &now); kind != nil {
			err = &objects.Error{Path: s.objects.Path(listed.Name), Kind: kind, Err: why}
		}
	}
	if err == nil || !errors.Is(err, source.ErrUnavailable) {
		s.mu.Lock()
		s.asked[object] = answer{now.Stamp, err}
		s.mu.Unlock()
	}
	return now.Stamp, err
}

// Versioned implements source.Versioner.
func (s *Source) Versioned() bool {
	v, ok := s.objects.(objects.Versioned)
	return ok && v.Versioned()
}

// Requests implements source.Requesting.
func (s *Source) Requests() *source.Requests {
	r, ok := s.objects.(objects.Requesting)
	if !ok {
		return nil
	}
	counts := r.Requests()
	counts.Gaps = s.gaps.Load()
	return &counts
}

// fresh has Stat answer what the index has, which has just been compared with all objects.
func (s *Source) fresh() { s.listed.Store(true) }

// Doubt implements source.Doubted: Stat asks anew, because the objects may have changed since.
func (s *Source) Doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed.Store(false)
	clear(s.asked)
}
