package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/source"
)

var _ source.Adjoining = (*Source)(nil)

// Span implements source.Adjoining. A sample whose bytes are compared with those that identify the
// dataset is read alone, as is one with more between its fields than is read.
func (s *Source) Span(id int) (at source.Span, ok bool) {
	if _, ok := s.covered[id]; ok {
		return at, false
	}
	b := s.scratch.Get().(*scratch)
	defer s.scratch.Put(b)
	b.ranges = s.index.Ranges(b.ranges[:0], id)
	read, sum := s.fields(b, id), int64(0)
	for f, r := range b.ranges {
		switch end := r.Offset + r.Length; {
		case r.Length == source.Missing, !read && s.value(b, f, id, r.Length):
			continue
		case !ok:
			at, ok = source.Span{Object: r.Object, Begin: r.Offset, End: end}, true
		case r.Object != at.Object:
			return at, false
		default:
			at.Begin, at.End = min(at.Begin, r.Offset), max(at.End, end)
		}
		sum += r.Length
	}
	return at, ok && at.End > at.Begin && at.End-at.Begin-sum <= s.mostGap()
}

// ReadRun implements source.Adjoining.
func (s *Source) ReadRun(ctx context.Context, first int, dsts [][]byte) ([]source.Stamp, error) {
	b := s.scratch.Get().(*scratch)
	defer s.scratch.Put(b)
	b.reset()
	for i, dst := range dsts {
		id := first + i
		if err := s.check(ctx, id); err != nil {
			return nil, err
		}
		if size := s.index.Size(id); int64(len(dst)) != size {
			return nil, s.sampleError(id, source.ErrLength,
				fmt.Errorf("%d bytes, not %d", len(dst), size))
		}
		b.add(s, id, dst)
	}
	if err := b.read(ctx, s); err != nil {
		return nil, s.failed(first, err)
	}
	if len(b.stamps) != 1 {
		return nil, s.sampleError(first, source.ErrUnreadable, errors.New("its neighbours are not "+
			"beside it"))
	}
	stamps := make([]source.Stamp, len(dsts))
	for i := range stamps {
		stamps[i] = s.index.StampOf(first+i, b.stamp)
	}
	return stamps, nil
}
