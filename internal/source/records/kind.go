package records

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/hangs"
	"github.com/hdmlp/hdmlp/internal/source/index"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
)

// ObjectsKey is the option that says in which objects a dataset is: names below its directory, with
// braces, {000..099} and {a,b}, and the wildcards of a shell, * and ? and [...], in this order.
const ObjectsKey = "objects"

// Kind returns the kind of datasets in a format, in files below a directory. memory returns how
// many bytes of memory are available; an index file may take a quarter of them.
func Kind(f formats.Format, memory func() (int64, error)) source.Kind {
	k := source.Kind{Name: f.Name, Help: f.Help, Manifest: f.Manifest, Options: f.Options}
	if !f.Manifest {
		k.Names = append([]string{f.Pattern}, f.Names...)
		k.Options = append(k.Options, option.Option{
			Key: ObjectsKey, Kind: option.List, Default: f.Pattern,
			Help: "Files below the directory, in this order: names, with {000..099}, {a,b}, * and ?",
		}, option.Option{
			Key: source.RescanKey, Kind: option.Switch, Default: "off",
			Help: "Ignore an existing index file, and find the samples again",
		})
	}
	k.Options = append(k.Options, option.Option{
		Key: source.IndexDirKey, Kind: option.Path, Default: option.Auto, Job: "index_dir",
		Derived: "beside the files or, if that is read-only, in the user's cache directory",
		Help:    "Directory that keeps the index file",
	})
	left := new(hangs.Left)
	k.Open = func(ctx context.Context, path string, o source.OpenOptions) (source.Indexed, error) {
		opened, err := open(ctx, f, path, o, memory, left)
		if err != nil {
			return nil, err // not a nil *Opened
		}
		return opened, nil
	}
	return k
}

// Opened is an open dataset of a kind: a Source of a directory's files.
type Opened struct {
	*Source
	index.Beside
	directory *directory.Directory
	indexPath string
	indexErr  error
	fromIndex bool
}

var (
	_ source.Beside      = (*Opened)(nil)
	_ source.InDirectory = (*Opened)(nil)
)

// DirectoryID implements source.InDirectory.
func (o *Opened) DirectoryID() (device, inode uint64) { return o.directory.Root().DirectoryID() }

// IndexPath returns the path of the index file, or "" if it could not be written anywhere.
func (o *Opened) IndexPath() string { return o.indexPath }

// IndexError returns why the index file could not be written, so that the next start has to find
// the samples again; nil if it is up to date.
func (o *Opened) IndexError() error { return o.indexErr }

// FromIndex reports whether the samples are those of an index file that was found.
func (o *Opened) FromIndex() bool { return o.fromIndex }

// Close implements source.Source.
func (o *Opened) Close() error { return o.Source.Close() }

// opening is what a dataset is opened with.
type opening struct {
	format    formats.Format
	path      string
	options   source.OpenOptions
	memory    func() (int64, error)
	directory *directory.Directory
	place     objects.Objects // the directory, as the format reads it
	objects   objects.Objects // the same, watched
	names     []string        // of the objects
	locations []index.Location
	known     *source.Index // once it is open
}

func open(ctx context.Context, f formats.Format, at string, o source.OpenOptions,
	memory func() (int64, error), left *hangs.Left,
) (*Opened, error) {
	if option.IsURL(at) {
		return nil, &source.Error{
			Path: at, Kind: source.ErrNoDirectory, Hint: "it is " + option.NoURL,
		}
	}
	absolute, err := filepath.Abs(at)
	if err != nil {
		return nil, &source.Error{Path: at, Kind: source.ErrNoDirectory, Err: err}
	}
	monitor := hangs.New(absolute, hangs.Options{
		Timeout: o.Timeout, Left: left,
		Slow: func(op, path string, since time.Time) {
			o.Tell(fmt.Sprintf("opening the dataset: %s of %s has not returned for %.0f s", op, path,
				time.Since(since).Seconds()))
		},
	})
	x := &opening{format: f, path: absolute, options: o, memory: memory}
	return hangs.Open(ctx, monitor, func(ctx context.Context, m *hangs.Monitor) (*Opened, error) {
		call := m.Caller()
		call.Begin("open", absolute, "")
		d, err := directory.Open(absolute, directory.Options{
			View: o.View,
			Recognise: func(ctx context.Context, again objects.Objects) error {
				return x.recognise(ctx, again)
			},
		})
		call.End()
		if err != nil {
			return nil, datasetError(absolute, err)
		}
		x.directory, x.place = d, d
		if f.Objects != nil {
			x.place = f.Objects(d)
		}
		x.objects = &watched{Objects: x.place, monitor: m}
		opened, err := x.open(ctx, m)
		if err != nil {
			_ = d.Close()
			return nil, datasetError(absolute, err)
		}
		return opened, nil
	})
}

// datasetError returns err as the error of a dataset that cannot be opened.
func datasetError(at string, err error) error {
	var known *source.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	e := &source.Error{Path: at, Kind: source.ErrFormat, Hint: err.Error()}
	var object *objects.Error
	if !errors.As(err, &object) {
		return e
	}
	switch {
	case object.Path == at && errors.Is(object.Kind, source.ErrMissing):
		e.Kind, e.Hint = source.ErrNoDirectory,
			"check the path, and that its file system is mounted on this node"
	case errors.Is(object.Kind, source.ErrUnavailable):
		e.Kind = source.ErrUnavailable
	default:
		e.Kind = source.ErrUnusable
	}
	return e
}

// patterns returns which objects were asked for.
func (x *opening) patterns() []string {
	if patterns := option.Get[[]string](x.options.Values, ObjectsKey); len(patterns) > 0 {
		return patterns
	}
	return []string{x.format.Pattern}
}

// expand sets the names of the objects.
func (x *opening) expand(ctx context.Context) error {
	for _, p := range x.patterns() {
		names, err := braces(p)
		if err != nil {
			return fmt.Errorf("objects: %q: %w", p, err)
		}
		for _, name := range names {
			if !strings.ContainsAny(name, "*?[") {
				x.names = append(x.names, name)
				continue
			}
			found, err := x.glob(ctx, name)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return &source.Error{
					Path: filepath.Join(x.path, name), Kind: source.ErrNoSamples,
					Hint: "no file has such a name; check the pattern",
				}
			}
			x.names = append(x.names, found...)
		}
	}
	seen := map[string]bool{}
	for _, name := range x.names {
		if seen[name] {
			return fmt.Errorf("objects: %s is given twice; give each file once", human.Name(name))
		}
		seen[name] = true
	}
	return nil
}

// glob returns the objects whose names match, sorted. Hidden ones do not, unless the pattern says
// so.
func (x *opening) glob(ctx context.Context, pattern string) (names []string, err error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("objects: %q: %w", pattern, err)
	}
	prefix := pattern[:strings.IndexAny(pattern, "*?[")]
	err = x.objects.List(ctx, prefix, func(o source.Object) error {
		hidden := strings.HasPrefix(path.Base(o.Name), ".") &&
			!strings.HasPrefix(path.Base(pattern), ".")
		if ok, _ := path.Match(pattern, o.Name); ok && !hidden {
			names = append(names, o.Name)
		}
		return nil
	})
	return names, err
}

// mostNames bounds how many names braces stand for.
const mostNames = 10_000_000

// braces expands the first {a,b} or {000..099} of a pattern, and those after it, as webdataset's
// braceexpand does.
func braces(pattern string) ([]string, error) {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		return []string{pattern}, nil
	}
	depth, end := 0, -1
	var commas []int
	for i := open; i < len(pattern) && end < 0; i++ {
		switch pattern[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				end = i
			}
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		}
	}
	if end < 0 {
		return nil, errors.New("a { has no }")
	}
	var inner []string
	if body := pattern[open+1 : end]; len(commas) == 0 {
		list, ok := sequence(body)
		if !ok {
			return nil, fmt.Errorf("{%s} is neither {a,b} nor {000..099}", body)
		}
		inner = list
	} else {
		from := open + 1
		for _, at := range append(commas, end) {
			inner = append(inner, pattern[from:at])
			from = at + 1
		}
	}
	rest, err := braces(pattern[end+1:])
	if err != nil {
		return nil, err
	}
	var all []string
	for _, part := range inner {
		parts, err := braces(part)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			for _, r := range rest {
				if len(all) == mostNames {
					return nil, fmt.Errorf("it stands for more than %d names", mostNames)
				}
				all = append(all, pattern[:open]+p+r)
			}
		}
	}
	return all, nil
}
