// Package objects defines how what a dataset is stored in is listed and read, whatever its format:
// the files below a directory, or the objects of a store. Each kind of place is a sub-package;
// package objectstest checks that it conforms.
//
// An Objects is safe for concurrent use, except that Close must be the last call.
package objects

import (
	"context"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Objects are the objects of one place. Names are relative to it, with slashes.
type Objects interface {
	// List calls each for every object whose name begins with prefix, in the order of the bytes of
	// their names, until each returns an error, which List then returns.
	List(ctx context.Context, prefix string, each func(source.Object) error) error
	// Stat returns the object as it is now.
	Stat(ctx context.Context, name string) (source.Object, error)
	// Read fills the parts, one after another, with the bytes of the object from offset on, and
	// returns the stamp of the object that they came from. It fails if that is not what o describes:
	// with source.ErrShort, ErrLong, ErrEmpty or ErrChanged. Where it fails, parts have undefined
	// contents. It does not touch parts after it returns.
	Read(ctx context.Context, o *source.Object, offset int64, parts [][]byte) (source.Stamp, error)
	// Probe reads a few bytes of the object from offset on, which is before its end, past the caches
	// of this machine. It fails with source.ErrShort if there are none.
	Probe(ctx context.Context, o *source.Object, offset int64) error
	// Drop drops a range of the object from the page cache of this machine, as far as the kernel does
	// so, and reports whether it is in memory nevertheless, as source.Dropper does.
	Drop(ctx context.Context, o *source.Object, offset, length int64) (cached bool, err error)
	// Path returns where the object of that name is, for messages.
	Path(name string) string
	// Close releases what the place takes.
	Close() error
}

// Ahead is an Objects that can begin to read before it is asked to.
type Ahead interface {
	// Ahead has bytes of an object be on their way before Read is called for them, where that does
	// not read them twice. It does not wait for them, and does nothing where it fails.
	Ahead(o *source.Object, offset, n int64)
}

// Error reports which object could not be read or found, and why. Every error of an Objects but
// that of a context is one, except for those of a callback.
type Error struct {
	Path string // where it is
	Kind error  // source.ErrMissing and the others of package source
	Err  error  // the underlying error; may be nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", human.Name(e.Path), e.Kind)
	if e.Err != nil {
		text += fmt.Sprintf(": %v", e.Err)
	}
	return text
}

// Unwrap lets errors.Is find both the reason and the underlying error.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Compare returns why an object is not the one that was listed, as a kind of error and its details;
// nil if it is. A stamp shows what a size does not; tags do where the listing has any.
func Compare(listed, now *source.Object) (kind, details error) {
	sizes := func() error { return fmt.Errorf("%d bytes, not %d", now.Size, listed.Size) }
	switch {
	case now.Size == 0 && listed.Size > 0:
		return source.ErrEmpty, nil
	case now.Size < listed.Size:
		return source.ErrShort, sizes()
	case now.Size > listed.Size:
		return source.ErrLong, sizes()
	case now.Tag != listed.Tag && listed.Tag != [16]byte{} || now.Stamp.Written(listed.Stamp):
		return source.ErrChanged, nil
	}
	return nil, nil
}

// Requesting is a place that counts its requests.
type Requesting interface {
	Requests() source.Requests
}

// Versioned is a place whose answers say which version of an object they are from.
type Versioned interface {
	// Versioned reports whether all answers so far have said so. Then the tags of a dataset's objects
	// identify its contents, of which nothing has to be read.
	Versioned() bool
}
