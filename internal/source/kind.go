package source

import (
	"context"
	"time"
)

// Kind describes a kind of source to the daemon and the commands, which do not depend on particular
// kinds. Each kind is a sub-package that returns its Kind, and a line in the table of
// cmd/hdmlp/kinds.go.
type Kind struct {
	Name string // as in requests and commands
	Help string // what the path must lead to, without a full stop
	// Extensions are the default extensions of the names of samples; nil if names do not matter.
	Extensions []string
	// Open opens the dataset in the directory path, with an up-to-date index. An error is an
	// *Error, or ctx's.
	Open func(ctx context.Context, path string, o OpenOptions) (Indexed, error)
}

// Indexed is a source that has an index of its samples. The index does not change.
type Indexed interface {
	Source
	Index() *Index
}

// OpenOptions are the options for opening a dataset of any kind. A kind ignores those that do not
// apply to it.
type OpenOptions struct {
	Extensions []string      // of the names of samples; nil: the kind's default
	IndexDir   string        // directory of the index file; "": the kind's default
	Rescan     bool          // ignore an existing index
	Unscanned  bool          // only what lies beside the index is used (Beside); Index returns nil
	Timeout    time.Duration // of one system call; 0: the kind's default
	// View is the dataset as the process that opens it sees it; nil: as this process does. Its
	// descriptors are valid until Open returns, its Renew as long as the source is open.
	View *View

	// The following may be nil, and may be called from any goroutine.

	Progress func(files int64) // files scanned so far; may be called often
	Warn     func(text string) // reports problems to the user while the source is open
	// like Warn, during Open; also reported to the process that opens the dataset
	Tell func(text string)
}
