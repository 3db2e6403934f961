// Package dataset says what the samples of a dataset are: how many, how large,
// of which class, and how to read the bytes of one. Each kind of source (a
// folder, and later tar shards, LMDB, HDF5, object stores) is one sub-package
// that builds an Index and implements Source; conformance is checked by
// package sourcetest.
//
// An Index is immutable and safe for concurrent use, and so must be a Source; a
// Builder is for one goroutine. An Index is also a file, so that a dataset is
// scanned once (format.go). The package caches nothing: keeping samples is
// the business of storage classes, which it does not import.
package dataset

import (
	"context"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/printable"
)

// Source reads samples from where the dataset lies for good: the papers' PFS.
type Source interface {
	// Read fills dst with the bytes of one sample, and returns the stamp of the file
	// that they came from. len(dst) must be the size that the index gives for id. It
	// may be called from many goroutines, and blocks until dst is full or the read
	// has failed; after it returns it never touches dst again. A file that was written
	// to after the index was made is a failure of the kind ErrChanged, whatever its
	// size. A failure is a *SampleError.
	Read(ctx context.Context, id int, dst []byte) (Stamp, error)
	// Stat returns the stamp of the sample's file as it is now, without reading it:
	// what a copy of the sample is compared with before it counts. Failures are those
	// of Read; zero means that the source has no stamps.
	Stat(ctx context.Context, id int) (Stamp, error)
	// Close releases what the source holds. No Read may be under way.
	Close() error
}

// Locator is a Source that knows where its samples lie. Decorators of a Source
// need not implement it: As looks through them.
type Locator interface {
	// Path is where the source has sample id, for people to read.
	Path(id int) string
}

// Prober is a Source that can find out whether a sample can be read without
// reading all of it. Decorators need not implement it.
type Prober interface {
	// Probe reads a little of sample id from where the dataset lies, and not from
	// what the system has of it in memory. A failure is a *SampleError.
	Probe(ctx context.Context, id int) error
}

// As finds, in a source or in what it decorates, the first that is a T. A
// decorator has a method Unwrap() Source.
func As[T any](source Source) (T, bool) {
	for source != nil {
		if t, ok := source.(T); ok {
			return t, true
		}
		u, ok := source.(interface{ Unwrap() Source })
		if !ok {
			break
		}
		source = u.Unwrap()
	}
	var none T
	return none, false
}

// Reasons for which a sample cannot be read. All but ErrUnavailable are
// permanent: to try again cannot help.
var (
	ErrMissing     = errors.New("the file is missing")
	ErrUnreadable  = errors.New("the file cannot be read")
	ErrShort       = errors.New("the file is shorter than when the dataset was scanned")
	ErrLong        = errors.New("the file is longer than when the dataset was scanned")
	ErrEmpty       = errors.New("the file is empty")
	ErrChanged     = errors.New("the file was changed after the dataset was scanned")
	ErrUnavailable = errors.New("the source did not answer")
	ErrContent     = errors.New("the job's transforms cannot work with the file")
	ErrPython      = errors.New("the file cannot be decoded in Python")
	// These two are mistakes of the caller.
	ErrNoSample = errors.New("there is no sample with this number")
	ErrLength   = errors.New("the buffer is not as long as the sample")
)

// SampleError says which sample could not be read, where it lies, and why.
type SampleError struct {
	ID   int    // the sample
	Path string // where the source has it
	Kind error  // one of the reasons above
	Err  error  // what the system said; may be nil
}

func (e *SampleError) Error() string {
	return fmt.Sprintf("sample %d (%s): %s", e.ID, printable.Name(e.Path), e.Reason())
}

// Reason says why the sample could not be read.
func (e *SampleError) Reason() string {
	if e.Err == nil {
		return e.Kind.Error()
	}
	return fmt.Sprintf("%v: %v", e.Kind, e.Err)
}

// Unwrap lets errors.Is find both the reason and what the system said.
func (e *SampleError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}
