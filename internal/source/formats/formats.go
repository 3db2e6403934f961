// Package formats defines how the samples of a dataset are found in the objects that it is stored
// in. Each format is a sub-package; any works on any place of objects.
package formats

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// Format describes a format.
type Format struct {
	Name string // as in requests and commands
	Help string // what the objects are, without a full stop
	// Options are what a dataset of this format is described by, besides its objects.
	Options []option.Option
	// Pattern is which files of a directory are the objects, if none are named; "" if objects are not
	// given by name.
	Pattern string
	// Names are patterns that other files match which are named: in the format, or close to it, so
	// that Index says what is wrong with them.
	Names []string
	// Manifest is set if the records come in a manifest, instead of being found in objects.
	Manifest bool
	// Listing is set if the samples are found by listing the place, at each opening: no index file is
	// kept.
	Listing bool
	// Index finds the samples in the objects of these names, in this order. An error names the
	// object, where in it, and what to do.
	Index func(ctx context.Context, o objects.Objects, names []string, opts Options,
	) (*source.Index, error)
	// Objects, if not nil, returns the place as samples of the format are to be read from it: where
	// an object may change in place, the reads check more than its size and times.
	Objects func(o objects.Objects) objects.Objects
}

// Options are the options of Format.Index.
type Options struct {
	Values   option.Values    // of the format's options
	Manifest *source.Manifest // of a format that has one, else nil
	// Origin is what the index says that it was made of.
	Origin []string
	// Kept, if not nil, has what was found before an interruption.
	Kept Kept
	// Progress, if not nil, is called with the number of samples found so far, now and then, from
	// any goroutine.
	Progress func(samples int64)
}

// Kept keeps what is found in objects, so that an index that is interrupted can be gone on with.
// Its methods are safe for concurrent use.
type Kept interface {
	// Found returns what Keep was given for this version of the object; nil: nothing.
	Found(o *source.Object) []byte
	// Keep keeps what was found in an object.
	Keep(o *source.Object, found []byte)
}
