package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// given returns the index that the option names; nil: there is no option. An index that was made of
// something else is an error; whether the objects are still the same, the caller finds out.
func (x *opening) given(ctx context.Context, made []string) (*source.Index, error) {
	at := option.Get[string](x.options.Values, source.IndexKey)
	if at == "" {
		return nil, nil
	}
	found, err := x.readIndex(ctx, at)
	if err == nil && !slices.Equal(found.Extensions(), made) {
		err = fmt.Errorf("it was made of other shards or with other options; make it of these with "+
			"`hdmlp dataset --index FILE%s`", x.flags())
	}
	if err != nil {
		return nil, &source.Error{
			Path: x.path, Kind: source.ErrGivenIndex,
			Hint: fmt.Sprintf("%s: %v", human.Name(objects.Shown(at)), err),
		}
	}
	return found, nil
}

// flags returns the options as they are given to commands.
func (x *opening) flags() string {
	var b strings.Builder
	for _, o := range x.format.Options {
		text := ""
		switch v := x.options.Values[o.Key].(type) {
		case string:
			text = v
		case []string:
			text = strings.Join(v, ",")
		}
		if text != "" {
			fmt.Fprintf(&b, " --option %s=%s", o.Key, text)
		}
	}
	return b.String()
}

func (x *opening) readIndex(ctx context.Context, at string) (*source.Index, error) {
	limit, err := int64(1<<62), error(nil)
	if x.memory != nil {
		if limit, err = x.memory(); err != nil {
			return nil, err
		}
		limit /= 4
	}
	if option.IsURL(at) {
		return x.fetchIndex(ctx, at, limit)
	}
	f, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	return source.DecodeWithin(f, info.Size(), limit)
}

// fetchIndex reads an index from an object.
func (x *opening) fetchIndex(ctx context.Context, at string, limit int64) (*source.Index, error) {
	cut := strings.LastIndexByte(at, '/')
	p, err := objects.ByURL(x.places, at)
	if err != nil {
		return nil, err
	}
	if x.options.View == nil || x.options.View.Access == nil {
		return nil, errors.New("the shards are files, so that how a URL is reached is not known: " +
			"give a path")
	}
	place, err := p.Open(at[:cut], x.options.View)
	if err != nil {
		return nil, err
	}
	defer place.Close() //nolint:errcheck // it was only read
	o, err := place.Stat(ctx, objects.Called(at, at[cut+1:]))
	if err != nil {
		return nil, err
	}
	if o.Size > limit {
		return nil, fmt.Errorf("it has %s, and a quarter of the memory that is available is %s",
			human.Format(o.Size), human.Format(limit))
	}
	data := make([]byte, o.Size)
	if _, err := place.Read(ctx, &o, 0, [][]byte{data}); err != nil {
		return nil, err
	}
	return source.DecodeWithin(io.Reader(bytes.NewReader(data)), o.Size, limit)
}
