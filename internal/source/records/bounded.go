package records

import (
	"context"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

const (
	// listedSize is what an object of a listing takes at most until its index is made, besides its
	// name: as source.Object, and in the builder of the index.
	listedSize = 160
	// listingShare is the divisor of the available memory that a listing may take.
	listingShare = 4
)

// bounded is a place whose listings, which a server may never end, take a part of the memory.
type bounded struct {
	objects.Objects
	memory func() (int64, error) // available; nil: no limit
}

// List implements objects.Objects.
func (b *bounded) List(ctx context.Context, prefix string, each func(source.Object) error) error {
	if b.memory == nil {
		return b.Objects.List(ctx, prefix, each)
	}
	available, err := b.memory()
	if err != nil {
		return err
	}
	left, number := available/listingShare, 0
	return b.Objects.List(ctx, prefix, func(o source.Object) error {
		number++
		if left -= listedSize + int64(len(o.Name)); left < 0 {
			return &objects.Error{
				Path: b.Path(prefix), Kind: source.ErrUnreadable,
				Err: fmt.Errorf("its listing has more than %d objects, which take more memory than a "+
					"quarter of what is available, %s: give a part of it", number,
					human.Format(available/listingShare)),
			}
		}
		return each(o)
	})
}

// Stats implements objects.Many.
func (b *bounded) Stats(ctx context.Context, names []string,
	found func(i int, o source.Object, err error),
) error {
	return objects.Stats(ctx, b.Objects, names, found)
}

// Versioned implements objects.Versioned.
func (b *bounded) Versioned() bool {
	v, ok := b.Objects.(objects.Versioned)
	return ok && v.Versioned()
}
