package records

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/source"
)

var (
	_ source.Prober  = (*Source)(nil)
	_ source.Dropper = (*Source)(nil)
)

// Probe implements source.Prober: it reads the first bytes of each range of sample id. The object
// of an empty one is asked for.
func (s *Source) Probe(ctx context.Context, id int) error {
	if err := s.check(ctx, id); err != nil {
		return err
	}
	var room [8]source.Range
	for _, r := range s.index.Ranges(room[:0], id) {
		if r.Length == source.Missing {
			continue
		}
		o := s.index.Object(r.Object)
		var err error
		if r.Length > 0 {
			err = s.objects.Probe(ctx, &o, r.Offset)
		} else {
			_, err = s.objects.Stat(ctx, o.Name)
		}
		if err != nil {
			return s.failed(id, err)
		}
	}
	return nil
}

// Drop implements source.Dropper: the ranges of sample id are dropped, in all objects that it is
// in. A sample is in memory if any of them is.
func (s *Source) Drop(ctx context.Context, id int) (cached bool, err error) {
	if err := s.check(ctx, id); err != nil {
		return false, err
	}
	var room [8]source.Range
	for _, r := range s.index.Ranges(room[:0], id) {
		if r.Length <= 0 { // or missing
			continue
		}
		o := s.index.Object(r.Object)
		is, err := s.objects.Drop(ctx, &o, r.Offset, r.Length)
		if err != nil {
			return false, s.failed(id, err)
		}
		cached = cached || is
	}
	return cached, nil
}
