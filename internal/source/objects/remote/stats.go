package remote

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

const (
	// A page of a listing has as many objects as a thousand questions answer. fewNames are asked for
	// one by one.
	fewNames = 1000
	// mostListed is how many objects are listed for each that is asked for.
	mostListed = 16
)

// errOthers ends a listing in which most objects are others.
var errOthers = errors.New("the listing has other objects")

// Stats implements objects.Many: where there are many, it lists them.
func (p *Objects) Stats(ctx context.Context, names []string,
	found func(i int, o source.Object, err error),
) error {
	rest := make(map[string]int, len(names))
	for i, name := range names {
		rest[name] = i
	}
	if len(rest) < len(names) || len(names) <= fewNames {
		return objects.Each(ctx, len(names), func(i int) {
			o, err := p.Stat(ctx, names[i])
			found(i, o, err)
		})
	}
	listed := 0
	err := p.List(ctx, common(names), func(o source.Object) error {
		if i, ok := rest[o.Name]; ok {
			delete(rest, o.Name)
			found(i, o, nil)
		}
		if listed++; listed > mostListed*len(names) {
			return errOthers
		}
		return nil
	})
	if errors.Is(err, source.ErrUnavailable) {
		return err
	}
	// What is not listed, because there is no permission to list or for another reason.
	left := slices.Collect(maps.Keys(rest))
	return objects.Each(ctx, len(left), func(i int) {
		o, err := p.Stat(ctx, left[i])
		found(rest[left[i]], o, err)
	})
}

// common returns what all names begin with.
func common(names []string) string {
	prefix := names[0]
	for _, name := range names[1:] {
		n := 0
		for n < len(prefix) && n < len(name) && prefix[n] == name[n] {
			n++
		}
		prefix = prefix[:n]
	}
	return prefix
}
