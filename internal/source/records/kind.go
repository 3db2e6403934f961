package records

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/hangs"
	"github.com/hdmlp/hdmlp/internal/source/index"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
)

// ObjectsKey is the option for the objects of a dataset: names below its directory, with
// braces, {000..099} and {a,b}, and the wildcards of a shell, * and ? and [...], in this order.
const ObjectsKey = "objects"

// mostIndexName bounds the length of IndexKey, in bytes.
const mostIndexName = 4096

// Kind returns the kind of datasets in a format, in files below a directory or objects of one of
// the places. memory returns how many bytes of memory are available; an index file may take a
// quarter of them.
func Kind(f formats.Format, places []objects.Place, memory func() (int64, error)) source.Kind {
	k := source.Kind{
		Name: f.Name, Help: f.Help, Manifest: f.Manifest, Options: f.Options,
		Exchanged: !f.Manifest && !f.Listing,
	}
	if f.Pattern != "" {
		k.Names = append([]string{f.Pattern}, f.Names...)
		k.Options = append(k.Options, option.Option{
			Key: ObjectsKey, Kind: option.List, Default: f.Pattern,
			Help: "Files below the directory, in this order: names, with {000..099}, {a,b}, * and ?",
		}, option.Option{
			Key: source.RescanKey, Kind: option.Switch, Default: "off",
			Help: "Ignore an existing index file, and find the samples again",
		}, option.Option{
			Key: source.IndexKey, Kind: option.Text, Max: mostIndexName, Default: "",
			Help: "An index made before, by hdmlp dataset --index: a file, or the URL of an object",
		})
	}
	k.Options = append(k.Options, option.Option{
		Key: source.IndexDirKey, Kind: option.Path, Default: option.Auto, Job: "index_dir",
		Derived: "beside the files or, if that is read-only, in the user's cache directory",
		Help:    "Directory that keeps the index file",
	})
	left, made := new(hangs.Left), new(history)
	k.Open = func(ctx context.Context, path string, o source.OpenOptions) (source.Indexed, error) {
		began := time.Now()
		opened, err := open(ctx, &opening{
			format: f, path: path, options: o, memory: memory, places: places,
		}, left)
		if err != nil {
			return nil, err // not a nil *Opened
		}
		opened.measure(began, made)
		return opened, nil
	}
	return k
}

// Opened is an open dataset of a kind: a Source of a place's objects.
type Opened struct {
	*Source
	index.Beside
	at        func() (device, inode uint64)
	indexPath string
	indexErr  error
	from      string // as of source.Indexing
	resumed   int
	kept      bool             // an index file is kept
	indexing  *source.Indexing // nil: it is in a directory
}

var (
	_ source.Beside      = (*Opened)(nil)
	_ source.InDirectory = (*Opened)(nil)
	_ source.Indexer     = (*Opened)(nil)
)

// DirectoryID implements source.InDirectory. Of a URL it is a hash of the store and of the URL.
func (o *Opened) DirectoryID() (device, inode uint64) { return o.at() }

// IndexPath returns the path of the index file, or "" if it could not be written anywhere.
func (o *Opened) IndexPath() string { return o.indexPath }

// IndexError returns why the index file could not be written, so that the next start has to find
// the samples again; nil if it is up to date.
func (o *Opened) IndexError() error { return o.indexErr }

// FromIndex reports whether the samples are those of an index file that was found.
func (o *Opened) FromIndex() bool { return o.from != source.FromObjects }

// Indexing implements source.Indexer.
func (o *Opened) Indexing() *source.Indexing { return o.indexing }

// KeepsIndex reports whether there is an index file: not of what is listed at each start.
func (o *Opened) KeepsIndex() bool { return o.kept }

// measure sets what it took to find the samples.
func (o *Opened) measure(began time.Time, made *history) {
	r, x := o.Requests(), o.Index()
	if r == nil || x == nil {
		return
	}
	took := made.note(o.indexPath, x, source.Indexing{
		From: o.from, Objects: x.Objects(), Resumed: o.resumed,
		Seconds: time.Since(began).Seconds(), Requests: *r,
	})
	o.indexing = &took
}

// Close implements source.Source.
func (o *Opened) Close() error { return o.Source.Close() }

// opening is what a dataset is opened with.
type opening struct {
	format    formats.Format
	path      string // absolute, or a URL
	options   source.OpenOptions
	memory    func() (int64, error)
	places    []objects.Place
	directory *directory.Directory          // nil: it is at a URL
	at        func() (device, inode uint64) // as of Opened.DirectoryID
	place     objects.Objects               // what the format reads from
	objects   objects.Objects               // the same, watched while the dataset is opened
	names     []string                      // of the objects
	locations []index.Location
	monitor   *hangs.Monitor
	offer     source.Offer  // to the other nodes of the job; nil: there is none
	known     *source.Index // once it is open
}

func open(ctx context.Context, x *opening, left *hangs.Left) (*Opened, error) {
	reach := x.openURL
	if !option.IsURL(x.path) {
		absolute, err := filepath.Abs(x.path)
		if err != nil {
			return nil, &source.Error{Path: x.path, Kind: source.ErrNoDirectory, Err: err}
		}
		x.path, reach = absolute, x.openDirectory
	}
	monitor := hangs.New(x.path, hangs.Options{
		Timeout: x.options.Timeout, Left: left,
		Slow: func(op, path string, since time.Time) {
			x.options.Tell(fmt.Sprintf("opening the dataset: %s of %s has not returned for %.0f s", op,
				path, time.Since(since).Seconds()))
		},
	})
	return hangs.Open(ctx, monitor, func(ctx context.Context, m *hangs.Monitor) (*Opened, error) {
		if err := reach(m); err != nil {
			return nil, datasetError(x.path, err)
		}
		opened, err := x.open(x.patient(ctx), m)
		if err != nil {
			_ = x.place.Close()
			return nil, datasetError(x.path, err)
		}
		return opened, nil
	})
}

// patient returns a context in which objects that do not answer for the moment are waited for, as
// they are once the dataset is open.
func (x *opening) patient(ctx context.Context) context.Context {
	most := x.options.Timeout
	if most <= 0 {
		most = hangs.DefaultTimeout
	}
	return objects.Patient(ctx, most, x.options.Tell)
}

func (x *opening) openDirectory(m *hangs.Monitor) error {
	call := m.Caller()
	call.Begin("open", x.path, "")
	d, err := directory.Open(x.path, directory.Options{
		View: x.options.View,
		Recognise: func(ctx context.Context, again objects.Objects) error {
			return x.recognise(ctx, again)
		},
	})
	call.End()
	if err != nil {
		return err
	}
	x.directory, x.place = d, d
	x.at = func() (device, inode uint64) { return d.Root().DirectoryID() }
	if x.format.Objects != nil {
		x.place = x.format.Objects(d)
	}
	x.objects = watch(x.place, m)
	return nil
}

// openURL opens the place of a URL. Its requests can be cancelled, so that they are not watched.
func (x *opening) openURL(*hangs.Monitor) error {
	v := x.options.View
	p, err := objects.ByURL(x.places, x.path)
	if err == nil && (v == nil || v.Access == nil) {
		err = errors.New("how it is reached is not known")
	}
	if err == nil {
		x.place, err = p.Open(x.path, v)
	}
	if err != nil {
		return &source.Error{Path: objects.Shown(x.path), Kind: source.ErrPlace, Hint: err.Error()}
	}
	x.path = strings.TrimSuffix(x.path, "/")
	x.at = func() (device, inode uint64) {
		return xxh3.HashString(v.Access.Endpoint), xxh3.HashString(x.path)
	}
	if x.format.Objects != nil {
		x.place = x.format.Objects(x.place)
	}
	x.objects = &bounded{x.place, x.memory}
	return nil
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
	case option.IsURL(at) && !errors.Is(object.Kind, source.ErrUnavailable):
		e.Kind = source.ErrPlace
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
					Path: x.place.Path(name), Kind: source.ErrNoSamples,
					Hint: "no file has such a name; check the pattern",
				}
			}
			x.names = append(x.names, found...)
		}
	}
	seen := map[string]bool{}
	for _, name := range x.names {
		if seen[name] {
			return fmt.Errorf("objects: %s is given twice; give each file once: a sampler repeats "+
				"samples", human.Name(name))
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
const mostNames = 1_000_000

// What is wrong with braces.
var (
	errNoSequence = errors.New("is neither {a,b} nor {000..099}")
	errTooMany    = fmt.Errorf("stands for more than %d names", mostNames)
)

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
		list, err := sequence(body)
		if err != nil {
			return nil, fmt.Errorf("{%s} %w", body, err)
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
					return nil, fmt.Errorf("it %w", errTooMany)
				}
				all = append(all, pattern[:open]+p+r)
			}
		}
	}
	return all, nil
}
