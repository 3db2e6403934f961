package dataset

import (
	"context"
	"time"
)

// Kind describes a kind of source to the daemon and to the commands, which know no kind by itself.
// Each is one sub-package, which returns its Kind, and one line in the table of cmd/hdmlp/kinds.go.
type Kind struct {
	Name string // as requests and commands have it
	Help string // what lies at the path, in one sentence without its full stop
	// Extensions are the endings that the names of samples have if the user gives none; nil: names
	// do not matter.
	Extensions []string
	// Open opens the dataset at path, a directory, with an index that is up to date. A failure is
	// an *Error, or ctx's.
	Open func(ctx context.Context, path string, o OpenOptions) (Indexed, error)
}

// Indexed is a source with the index of its samples, which does not change.
type Indexed interface {
	Source
	Index() *Index
}

// OpenOptions say how to open a dataset, whatever its kind. What a kind has no use for it leaves
// alone.
type OpenOptions struct {
	Extensions []string      // endings of the names of samples; nil: the kind's own
	IndexDir   string        // directory that keeps the index; "": the kind says where
	Rescan     bool          // scan as if there were no index
	Timeout    time.Duration // how long one system call may take; 0: the kind says
	// View is the dataset as the process that opens it sees it; nil: as this process does. Its
	// descriptors are valid until Open has returned, its Renew as long as the source.
	View *View

	// Progress may be nil. All three may be called from any goroutine.

	Progress func(files int64) // how far a scan has come; may be called often
	Warn     func(text string) // is told what a user should know, as long as the source is open
	// as Warn, while Open runs: the process that opens the dataset is told as well
	Tell func(text string)
}
