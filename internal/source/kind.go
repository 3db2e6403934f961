package source

import (
	"context"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/option"
)

// Kind describes a kind of source to the daemon and the commands, which do not depend on particular
// kinds. Each kind is a sub-package that returns its Kind, and a line in the table of
// cmd/hdmlp/kinds.go.
type Kind struct {
	Name string // as in requests and commands
	Help string // what the path must lead to, without a full stop
	// Names are patterns of the names of a dataset's files, by which commands find its kind. The
	// first one says which files of a directory they are. nil: the kind does not follow from names.
	Names []string
	// Options are what a dataset of this kind is described by, besides its path.
	Options []option.Option
	// Manifest is set if a process lists the records of a dataset of this kind (OpenOptions), so that
	// commands cannot open it.
	Manifest bool
	// Exchanged is set if the samples of a dataset may take many requests to find, to a place that
	// all nodes read, so that one node of a job finds them for all (OpenOptions.Exchange).
	Exchanged bool
	// Open opens the dataset in the directory path, with an up-to-date index. An error is an
	// *Error, or ctx's.
	Open func(ctx context.Context, path string, o OpenOptions) (Indexed, error)
}

// Keys of options that mean the same in all kinds which have them.
const (
	ExtensionsKey = "extensions" // a list: how the names of samples end
	IndexDirKey   = "index_dir"  // a path: the directory of the index file
	RescanKey     = "rescan"     // a switch: ignore an existing index
	IndexKey      = "index"      // a file or URL: an index that was made before
)

// Indexed is a source that has an index of its samples. The index does not change.
type Indexed interface {
	Source
	Index() *Index
}

// OpenOptions are the options for opening a dataset of any kind.
type OpenOptions struct {
	Values    option.Values // of the kind's options; those that the kind does not have are ignored
	Manifest  *Manifest     // of a kind whose datasets have one, else nil
	Unscanned bool          // only what lies beside the index is used (Beside); Index returns nil
	// Without a manifest, Unscanned means what lies beside the indexes of all lists of the directory.
	Timeout time.Duration // of one system call; 0: the kind's default
	// View is the dataset as the process that opens it sees it; nil: as this process does. Its
	// descriptors are valid until Open returns, its Renew as long as the source is open.
	View *View
	// Exchange passes indexes between nodes; nil: this node is alone, or its kind does not do so.
	Exchange Exchange

	// The following may be nil, and may be called from any goroutine.

	Progress func(files int64) // files scanned so far; may be called often
	Warn     func(text string) // reports problems to the user while the source is open
	// Await is called during Open with what is waited for; it may be called often.
	Await func(text string)
	// like Warn, during Open; also reported to the process that opens the dataset
	Tell func(text string)
}
