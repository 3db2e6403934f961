package remote

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/source"
)

// Probe implements objects.Objects: it reads a byte.
func (p *Objects) Probe(ctx context.Context, o *source.Object, offset int64) error {
	_, err := p.Read(ctx, o, offset, [][]byte{make([]byte, 1)})
	return err
}

// Drop implements objects.Objects: this machine keeps nothing of a store in its page cache.
func (p *Objects) Drop(context.Context, *source.Object, int64, int64) (cached bool, err error) {
	return false, nil
}
