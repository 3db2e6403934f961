package main

import (
	"context"
	"encoding/hex"
	"errors"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/source"
)

// comparedSource is a dataset as a comparison reads it: slowed down to a rate that all nodes share,
// past the page cache, and with an environment of its own beside it, so that all policies begin
// with the same and what they measure is not stored.
//
// It implements itself what goes by samples, so that what unwraps it neither reads past it nor by
// other numbers.
type comparedSource struct {
	source.Indexed
	index       *source.Index // of part
	part        []int32       // the samples, by their numbers in the whole dataset; nil: all
	page        *comparePage
	rate        float64        // MB/s of all nodes together; 0: no limit
	dropper     source.Dropper // nil: there is no page cache to bypass
	prober      source.Prober  // nil: a sample is read as a whole
	locator     source.Locator // nil: samples have no path
	adjoins     source.Adjoining
	beside      source.Beside
	environment []byte // nil: none is known
	counts      *pageCounts
}

// pageCounts are the reads of samples, and those of which the sample could not be dropped from the
// page cache before.
type pageCounts struct {
	reads, cached atomic.Int64
	applies       atomic.Bool // the source has a page cache
}

// compareLimits are how a comparison reads a dataset.
type compareLimits struct {
	page        *comparePage
	part        []int32
	rate        float64
	version     string // of the dataset, which must not change; "": any
	environment []byte
	counts      *pageCounts
}

// compared returns the kind of source with these limits.
func (l *compareLimits) compared(k source.Kind) source.Kind {
	open := k.Open
	k.Open = func(ctx context.Context, path string, o source.OpenOptions) (source.Indexed, error) {
		src, err := open(ctx, path, o)
		if err != nil {
			return nil, err
		}
		return l.wrap(src)
	}
	return k
}

// wrap returns the source with these limits.
func (l *compareLimits) wrap(src source.Indexed) (source.Indexed, error) {
	s := &comparedSource{
		Indexed: src, index: src.Index(), part: l.part, page: l.page, rate: l.rate,
		environment: l.environment, counts: l.counts,
	}
	if v := src.Index().Fingerprint(); l.version != "" && hex.EncodeToString(v[:]) != l.version {
		err := errors.New("the dataset has changed since the comparison began: start it again")
		return nil, errors.Join(err, src.Close())
	}
	if l.part != nil {
		var err error
		if s.index, err = src.Index().Part(l.part); err != nil {
			return nil, errors.Join(err, src.Close())
		}
	}
	s.prober, _ = source.As[source.Prober](src)
	s.locator, _ = source.As[source.Locator](src)
	s.dropper, _ = source.As[source.Dropper](src)
	s.adjoins, _ = source.As[source.Adjoining](src)
	s.beside, _ = source.As[source.Beside](src)
	if r, ok := source.As[source.Requesting](src); ok && r.Requests() != nil {
		s.dropper = nil // it is read over the network, by this process
	}
	s.counts.applies.Store(s.dropper != nil)
	return s, nil
}

// Unwrap lets source.As find what the source can do besides.
func (s *comparedSource) Unwrap() source.Source { return s.Indexed }

// Index implements source.Indexed.
func (s *comparedSource) Index() *source.Index { return s.index }

// whole returns the number of a sample in the whole dataset.
func (s *comparedSource) whole(id int) int {
	if s.part == nil || uint(id) >= uint(len(s.part)) {
		return id
	}
	return int(s.part[id])
}

// Path implements source.Locator.
func (s *comparedSource) Path(id int) string {
	if s.locator == nil {
		return ""
	}
	return s.locator.Path(s.whole(id))
}

// Stat implements source.Source.
func (s *comparedSource) Stat(ctx context.Context, id int) (source.Stamp, error) {
	return s.Indexed.Stat(ctx, s.whole(id))
}

// Probe implements source.Prober.
func (s *comparedSource) Probe(ctx context.Context, id int) error {
	if s.prober == nil {
		_, err := s.Indexed.Read(ctx, s.whole(id), make([]byte, s.index.Size(id)))
		return err
	}
	return s.prober.Probe(ctx, s.whole(id))
}

// Drop implements source.Dropper.
func (s *comparedSource) Drop(ctx context.Context, id int) (cached bool, err error) {
	if s.dropper == nil {
		return false, nil
	}
	return s.dropper.Drop(ctx, s.whole(id))
}

// begin drops samples from the page cache, and reserves their time. Errors of dropping are those of
// the read that follows.
func (s *comparedSource) begin(ctx context.Context, ids ...int) (end int64) {
	bytes := int64(0)
	for _, id := range ids {
		bytes += s.index.Size(id)
		s.counts.reads.Add(1)
		if cached, err := s.Drop(ctx, id); err == nil && cached {
			s.counts.cached.Add(1)
		}
	}
	if s.rate == 0 {
		return 0
	}
	return s.page.reserve(bytes, s.rate)
}

// Read implements source.Source.
func (s *comparedSource) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	end := s.begin(ctx, id)
	stamp, err := s.Indexed.Read(ctx, s.whole(id), dst)
	if err == nil && end > 0 {
		err = s.late(ctx, id, end)
	}
	return stamp, err
}

// late waits for the end of a read.
func (s *comparedSource) late(ctx context.Context, id int, end int64) error {
	if err := await(ctx, end); err != nil {
		return &source.SampleError{ID: id, Path: s.Path(id), Kind: source.ErrUnavailable, Err: err}
	}
	return nil
}

// Span implements source.Adjoining. Samples of a part are read one by one: they do not lie beside
// one another.
func (s *comparedSource) Span(id int) (source.Span, bool) {
	if s.adjoins == nil || s.part != nil {
		return source.Span{}, false
	}
	return s.adjoins.Span(id)
}

// ReadRun implements source.Adjoining.
func (s *comparedSource) ReadRun(ctx context.Context, first int, dsts [][]byte) (
	[]source.Stamp, error,
) {
	ids := make([]int, len(dsts))
	for i := range ids {
		ids[i] = first + i
	}
	end := s.begin(ctx, ids...)
	stamps, err := s.adjoins.ReadRun(ctx, first, dsts)
	if err == nil && end > 0 {
		err = s.late(ctx, first, end)
	}
	return stamps, err
}

// ReadBeside implements source.Beside: the environment is the comparison's.
func (s *comparedSource) ReadBeside(suffix string, most int64, usable func([]byte) error) (
	data []byte, path string, err error,
) {
	switch {
	case suffix != envfile.Suffix:
		if s.beside == nil {
			return nil, "", nil
		}
		return s.beside.ReadBeside(suffix, most, usable)
	case s.environment == nil:
		return nil, "", nil
	}
	return s.environment, "(measured by hdmlp compare)", usable(s.environment)
}

// WriteBeside implements source.Beside: what a policy measures of the machine is not stored.
func (s *comparedSource) WriteBeside(suffix string, data []byte) (path string, err error) {
	if suffix == envfile.Suffix || s.beside == nil {
		return "", nil
	}
	return s.beside.WriteBeside(suffix, data)
}
