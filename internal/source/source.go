// Package source describes the samples of a dataset (their number, sizes and classes) and defines
// how to read them. A kind of source builds an Index and implements Source; package sourcetest
// checks that it conforms. There are two: a folder of class folders, and records, which are ranges
// of objects. Sub-packages of formats find the records of tar shards, LMDB and so on; those of
// objects read from a directory, an object store or a web server.
//
// An Index is immutable and safe for concurrent use, and so must be a Source; a Builder is for one
// goroutine. An Index is also a file, so that a dataset is scanned once (format.go). The package
// caches nothing: storage classes keep samples, and it does not import them.
package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Source reads samples from the dataset's permanent storage, the PFS of the papers.
type Source interface {
	// Read fills dst with the bytes of one sample and returns the stamp of the file that they came
	// from. len(dst) must be the size that the index gives for id. Read is safe for concurrent use;
	// it blocks until dst is full or the read has failed, and does not touch dst after it returns.
	// It fails with ErrChanged if the file was written to after the index was made, whatever its
	// size. Every error is a *SampleError.
	Read(ctx context.Context, id int, dst []byte) (Stamp, error)
	// Stat returns the current stamp of the sample's file without reading the file. A cached copy
	// of the sample is valid only if its stamp agrees. Stat fails as Read does; a zero stamp means
	// that the source has no stamps.
	Stat(ctx context.Context, id int) (Stamp, error)
	// Close releases the source's resources. No Read may be in progress.
	Close() error
}

// Locator is a Source that can return where its samples are stored. Decorators of a Source need not
// implement it: As unwraps them.
type Locator interface {
	// Path returns where the source stores sample id, for messages.
	Path(id int) string
}

// Prober is a Source that can check whether a sample is readable without reading all of it.
// Decorators need not implement it.
type Prober interface {
	// Probe reads a few bytes of sample id from the dataset's storage, bypassing the page cache.
	// Every error is a *SampleError.
	Probe(ctx context.Context, id int) error
}

// Dropper is a Source whose samples this machine may keep in its page cache. Decorators need not
// implement it.
type Dropper interface {
	// Drop drops sample id from the page cache, as far as the kernel does so, and reports whether it
	// is in memory nevertheless: on a file system in memory, or in use by another process. It is for
	// measurements. Every error is a *SampleError.
	Drop(ctx context.Context, id int) (cached bool, err error)
}

// Doubted is a Source that remembers what Stat answers. Decorators need not implement it.
type Doubted interface {
	// Doubt has it ask anew.
	Doubt()
}

// Adjoining is a Source whose samples lie beside one another, so that a request can bring several.
// Decorators need not implement it.
type Adjoining interface {
	// Span returns where a sample lies; ok is false if it is not read together with others.
	Span(id int) (s Span, ok bool)
	// ReadRun is Read for samples first, first+1 and so on, whose spans follow one another in one
	// object, in one request. They all fail together.
	ReadRun(ctx context.Context, first int, dsts [][]byte) ([]Stamp, error)
}

// Span is the part of an object that a sample lies in.
type Span struct {
	Object     int
	Begin, End int64
}

// Versioner is a Source that may identify its objects by versions that their store gives.
// Decorators need not implement it.
type Versioner interface {
	// Versioned reports whether it does so with all of them. Then two datasets with the same
	// fingerprint are the same in all of their bytes.
	Versioned() bool
}

// Requests are what a place was asked for so far, of all kinds.
type Requests struct {
	Gets   int64 // for bytes, with those that follow
	Again  int64 // of these, after a failure for the moment
	Hedges int64 // of these, beside one that was slow
	Won    int64 // hedges whose answer came first
	Heads  int64 // for what an object is
	Lists  int64 // listings, each of any number of pages
	Bytes  int64 // of bodies, with those of hedges
	Gaps   int64 // of these, between fields and samples that one request brings
}

// Requesting is a Source that reads by requests which it counts. Decorators need not implement it.
type Requesting interface {
	// Requests returns the counts; nil: it reads otherwise.
	Requests() *Requests
}

// Where the samples of a dataset are known from.
const (
	FromObjects = "objects" // they were found there
	FromKept    = "kept"    // the index file of an earlier start
	FromGiven   = "given"   // the index that the option IndexKey names
	FromNode    = "node"    // another node of the job, which has found them
)

// Indexing is what it took to find the samples of a dataset at a place that counts its requests.
type Indexing struct {
	From     string // where they were found, as above
	Objects  int    // of the dataset
	Resumed  int    // of these, known from an attempt that was interrupted
	Seconds  float64
	Requests Requests
}

// Indexer is a Source that has found its samples by requests. Decorators need not implement it.
type Indexer interface {
	// Indexing returns what that took, in this process, when the index was made, or else when the
	// dataset was opened; nil: it needed none.
	Indexing() *Indexing
}

// Beside is a Source that stores small files beside its index. Decorators need not implement it.
type Beside interface {
	// ReadBeside returns the contents of the file whose name is that of the index and suffix, and
	// its path; "": there is none. Where there are several, because the first one could not be
	// replaced, it is the newest that can be used. A file cannot be used if it is larger than most
	// bytes, if a user could have written it who may not change the dataset, or if usable returns an
	// error for its contents; if there are only such files, ReadBeside returns the first one's path
	// and error.
	ReadBeside(suffix string, most int64, usable func(data []byte) error) (
		data []byte, path string, err error)
	// WriteBeside replaces that file atomically where it can, else elsewhere, and returns its path.
	WriteBeside(suffix string, data []byte) (path string, err error)
}

// As returns the first source that is a T in the chain that begins with source. A decorator has a
// method Unwrap() Source.
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

// Reasons why a sample cannot be read. All but ErrUnavailable are permanent: retrying cannot help.
var (
	ErrMissing     = errors.New("the file is missing")
	ErrUnreadable  = errors.New("the file cannot be read")
	ErrShort       = errors.New("the file is shorter than when the dataset was scanned")
	ErrLong        = errors.New("the file is longer than when the dataset was scanned")
	ErrEmpty       = errors.New("the file is empty")
	ErrChanged     = errors.New("the file was changed after the dataset was scanned")
	ErrUnavailable = errors.New("the source did not answer")
	ErrContent     = errors.New("the job's transforms cannot work with the file")
	ErrPython      = errors.New("the file cannot be decoded and transformed in Python")
	ErrElsewhere   = errors.New("another node could not use the file")
	// The following two are errors of the caller.
	ErrNoSample = errors.New("there is no sample with this number")
	ErrLength   = errors.New("the buffer is not as long as the sample")
)

// SampleError reports which sample could not be read, where it is stored, and why.
type SampleError struct {
	ID   int    // the sample
	Path string // where the source stores it
	Kind error  // one of the reasons above
	Err  error  // the underlying error; may be nil
}

func (e *SampleError) Error() string {
	return fmt.Sprintf("sample %d (%s): %s", e.ID, human.Name(e.Path), e.Reason())
}

// Reason returns why the sample could not be read.
func (e *SampleError) Reason() string {
	if e.Err == nil {
		return e.Kind.Error()
	}
	return fmt.Sprintf("%v: %v", e.Kind, e.Err)
}

// Advice returns what the user can do; "" if the error is the caller's.
func (e *SampleError) Advice() string {
	const orLeaveOut = `, or leave such samples out with on_error = "skip" (an argument of ` +
		`loaders, a key of the configuration file, or HDMLP_ON_ERROR=skip)`
	switch e.Kind {
	case ErrUnavailable:
		return "check that its file system answers, or raise source_timeout"
	case ErrMissing:
		return "restore the file" + orLeaveOut
	case ErrUnreadable:
		return "give this user permission to read the file, put a regular file there, or repair it" +
			orLeaveOut
	case ErrShort, ErrLong, ErrChanged:
		return "start the job again, which scans the dataset again" + orLeaveOut
	case ErrEmpty, ErrElsewhere:
		return "repair or remove the file" + orLeaveOut
	case ErrContent, ErrPython:
		return "repair or remove the file, change the transforms" + orLeaveOut
	}
	return ""
}

// Unwrap lets errors.Is find both the reason and the underlying error.
func (e *SampleError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}
