package folder

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats/classes"
	"github.com/hdmlp/hdmlp/internal/source/hangs"
)

// Name is the kind's name.
const Name = "folder"

// options are what a folder is described by.
func options() []option.Option {
	return []option.Option{
		{
			Key: source.ExtensionsKey, Kind: option.List,
			Default: strings.Join(classes.Extensions(), ", "),
			Help:    "Extensions of the names of samples, in upper or lower case",
		},
		{
			Key: source.IndexDirKey, Kind: option.Path, Default: option.Auto, Job: "index_dir",
			Derived: "in the folder or, if that is read-only, in the user's cache directory",
			Help:    "Directory that keeps the index file",
		},
		{
			Key: source.RescanKey, Kind: option.Switch, Default: "off",
			Help: "Ignore an existing index file, and scan the whole folder",
		},
	}
}

// Kind returns the kind for folders. elsewhere opens those that are no directory, but named by a
// URL. memory returns how many bytes of memory are available; an index file may take a quarter of
// them. All folders that are opened through the same Kind share the count of hanging system calls.
func Kind(elsewhere source.Kind, memory func() (int64, error)) source.Kind {
	left := new(hangs.Left)
	return source.Kind{
		Name: Name,
		Help: "a directory with one subdirectory per class, as torchvision's " +
			"ImageFolder reads it",
		Options: options(),
		Open: func(ctx context.Context, path string,
			o source.OpenOptions,
		) (source.Indexed, error) {
			if option.IsURL(path) {
				return openURL(ctx, elsewhere, path, o)
			}
			f, err := Open(ctx, path, Options{
				Extensions: option.Get[[]string](o.Values, source.ExtensionsKey),
				IndexDir:   option.Get[string](o.Values, source.IndexDirKey),
				Rescan:     option.Get[bool](o.Values, source.RescanKey),
				View:       o.View, Timeout: o.Timeout, Unscanned: o.Unscanned,
				Memory: memory, Progress: o.Progress, Warn: o.Tell, Left: left,
				Slow: func(op, path string, since time.Time) { o.Tell(slow(op, path, since)) },
			})
			if err != nil {
				return nil, err // not a nil *Folder
			}
			return f, nil
		},
	}
}

func openURL(ctx context.Context, k source.Kind, url string, o source.OpenOptions,
) (source.Indexed, error) {
	opened, err := k.Open(ctx, url, o)
	if err != nil {
		return nil, err
	}
	if text := aboveParts(url, opened.Index().Classes()); text != "" {
		o.Tell(text)
	}
	return opened, nil
}

// slow returns the message for a slow system call while a dataset is opened.
func slow(op, path string, since time.Time) string {
	return fmt.Sprintf("opening the dataset: %s of %s has not returned for %.0f s", op, path,
		time.Since(since).Seconds())
}
