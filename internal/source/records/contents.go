package records

import (
	"context"
	"errors"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// each calls do for the numbers below n, several at once, until one returns an error, which it
// returns.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return objects.Each(ctx, n, func(i int) {
		if err := do(ctx, i); err != nil {
			cancel(err)
		}
	})
}

// compareAll returns an error unless all objects of an index are as they were when it was made.
func compareAll(ctx context.Context, o objects.Objects, x *source.Index) error {
	names := make([]string, x.Objects())
	for i := range names {
		names[i] = x.Object(i).Name
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return objects.Stats(ctx, o, names, func(i int, now source.Object, err error) {
		if err == nil {
			listed := x.Object(i)
			if kind, _ := objects.Compare(&listed, &now); kind != nil || now.Stamp != listed.Stamp {
				err = errOutdated
			}
		}
		if err != nil {
			cancel(err)
		}
	})
}

// contentsOf returns the digests of the excerpts of a source's samples. The digest is
// source.Unreadable of what this user or the disk cannot read. Nothing is read of objects whose
// versions the place says.
func contentsOf(ctx context.Context, s *Source) ([][16]byte, error) {
	excerpts := s.index.Excerpts()
	digests := make([][16]byte, len(excerpts))
	if s.Versioned() {
		for i := range digests {
			digests[i] = source.Versioned
		}
		return digests, nil
	}
	err := each(ctx, len(excerpts), func(ctx context.Context, i int) (err error) {
		parts := make([][]byte, len(excerpts[i].Pieces))
		for k, p := range excerpts[i].Pieces {
			parts[k] = make([]byte, p.Length)
			if err = s.readPiece(ctx, excerpts[i].ID, p.Offset, parts[k]); err != nil {
				break
			}
		}
		switch {
		case err == nil:
			digests[i] = source.ContentDigest(parts...)
			return nil
		case errors.Is(err, source.ErrChanged), errors.Is(err, source.ErrShort),
			errors.Is(err, source.ErrLong), errors.Is(err, source.ErrMissing),
			errors.Is(err, source.ErrEmpty):
			return errOutdated
		case errors.Is(err, source.ErrUnreadable), source.OfOneFile(err):
			digests[i] = source.Unreadable
			return nil
		}
		return err
	})
	return digests, err
}

// readPiece fills dst with the bytes of the packed sample from offset on.
func (s *Source) readPiece(ctx context.Context, id int, offset int64, dst []byte) error {
	clear(dst)
	end := offset + int64(len(dst))
	b := s.scratch.Get().(*scratch)
	defer s.scratch.Put(b)
	b.layout(s.index, id)
	for f, r := range b.ranges {
		from, to := max(b.offsets[f], offset), min(b.offsets[f]+r.Length, end)
		if r.Length == source.Missing || from >= to {
			continue
		}
		o := s.index.Object(r.Object)
		part := dst[from-offset : to-offset]
		if _, err := s.objects.Read(ctx, &o, r.Offset+from-b.offsets[f], [][]byte{part}); err != nil {
			return s.failed(id, err)
		}
	}
	return nil
}

// coverage is what the dataset's version covers of a sample.
type coverage struct {
	pieces []source.Extent
	digest [16]byte
}

// coverages returns what the version covers, by sample, of samples that could be read.
func coverages(x *source.Index) map[int]coverage {
	covered := make(map[int]coverage)
	digests := x.Contents()
	for i, e := range x.Excerpts() {
		switch digests[i] {
		case source.Unreadable, source.Versioned, [16]byte{}:
		default:
			covered[e.ID] = coverage{e.Pieces, digests[i]}
		}
	}
	return covered
}

// has reports whether the bytes of a packed sample are those that the version covers.
func (c *coverage) has(data []byte) bool {
	parts := make([][]byte, len(c.pieces))
	for i, p := range c.pieces {
		parts[i] = data[p.Offset : p.Offset+p.Length]
	}
	return source.ContentDigest(parts...) == c.digest
}
