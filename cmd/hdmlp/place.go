package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/records"
)

// pathsHelp describes in the help of commands which paths lead to a dataset.
const pathsHelp = `A dataset is one of
  - a folder with one subdirectory per class, as for torchvision's ImageFolder
  - a directory of tar shards, or shards by name: a.tar b.tar, '{000..099}.tar',
    'train-*.tar' (kind webdataset)
  - an LMDB environment: a directory with a data.mdb, or a data file (kind lmdb)
or the URL of the same on an object store (s3://bucket/train) or a web server
(https://host/shards/{000..099}.tar); see hdmlp credentials.
Its kind is found from the names of the files, unless --kind says it.`

// datasetFlags are the flags by which commands find a dataset.
type datasetFlags struct {
	kind       string // "": it is found from the paths
	indexDir   string
	extensions []string
	options    []string // each KEY=VALUE
	unscanned  bool     // what is stored beside its index is enough
}

// add adds the flags to those of a command.
func (f *datasetFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kind, "kind", "",
		"kind of the source; hdmlp kinds lists them (default: by the names of the files)")
	flags.StringVar(&f.indexDir, "index-dir", "",
		"directory of the index file (default: index_dir of the configuration, or else beside the "+
			"files or, if they are read-only, ~/.cache/hdmlp/index)")
	flags.StringSliceVar(&f.extensions, "extensions", nil,
		"extensions of samples, in upper or lower case (default: "+
			strings.Join(defaultExtensions(sources()[0]), ", ")+")")
	flags.StringArrayVar(&f.options, "option", nil,
		"`KEY=VALUE`, an option of the kind, such as fields=jpg,cls; may be given again")
}

// given returns the first flag that was given; "": none was.
func (f *datasetFlags) given() string {
	switch {
	case f.kind != "":
		return "kind"
	case f.indexDir != "":
		return "index-dir"
	case f.extensions != nil:
		return "extensions"
	case f.options != nil:
		return "option"
	}
	return ""
}

// dataset is where a dataset is.
type dataset struct {
	kind   source.Kind
	dir    string // or a URL
	values option.Values
	view   *source.View // of a URL, else nil
	notes  []string     // for the user

	manifest *source.Manifest // its records, if a process listed them
}

// root returns the absolute path of the dataset's directory, or its URL.
func (d *dataset) root() (string, error) {
	if option.IsURL(d.dir) {
		return d.dir, nil
	}
	return filepath.Abs(d.dir)
}

// given is a path to a dataset as a user gave it.
type given struct {
	text string
	dir  string
	name string // of a file in dir, with braces and wildcards; "": the path is that of a directory
}

// find returns the dataset that paths lead to. What hangs ends with an error after the timeout.
func (f *datasetFlags) find(ctx context.Context, timeout time.Duration, paths []string,
) (*dataset, error) {
	type result struct {
		*dataset
		err error
	}
	if anyURL(paths) {
		timeout = 0 // what is asked over the network ends by itself
	}
	done := make(chan result, 1)
	go func() {
		d, err := f.look(ctx, paths)
		done <- result{d, err}
	}()
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case r := <-done:
		return r.dataset, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late:
		return nil, &source.Error{Path: paths[0], Kind: source.ErrUnavailable}
	}
}

func (f *datasetFlags) look(ctx context.Context, paths []string) (*dataset, error) {
	places := make([]given, len(paths))
	for i, text := range paths {
		places[i] = split(text)
	}
	d := new(dataset)
	var err error
	if f.kind != "" {
		d.kind, err = sourceKind(f.kind)
	} else {
		err = d.find(ctx, places)
	}
	if err != nil {
		return nil, err
	}
	if d.kind.Manifest && !f.unscanned {
		return nil, badInput("--kind %s: a process lists the records of such a dataset, so that no "+
			"command can open it; hdmlp.pack(dataset, out) in Python writes them as tar shards",
			d.kind.Name)
	}
	if d.values, err = f.values(d.kind); err != nil {
		return nil, err
	}
	if err := d.locate(places); err != nil {
		return nil, err
	}
	d.view, err = ownView(ctx, d.dir)
	return d, err
}

// split returns the directory of a path, and the file in it.
func split(text string) given {
	if option.IsURL(text) {
		return splitURL(text)
	}
	info, err := os.Stat(text)
	if err == nil && info.IsDir() {
		return given{text: text, dir: text}
	}
	head := text
	if special := strings.IndexAny(text, "*?[{"); err != nil && special >= 0 {
		head = text[:special]
	}
	cut := strings.LastIndexByte(head, '/') + 1
	dir := text[:cut]
	if dir == "" {
		dir = "."
	}
	return given{text: text, dir: dir, name: text[cut:]}
}

// find sets the kind to that which all places are of.
func (d *dataset) find(ctx context.Context, places []given) error {
	for i, p := range places {
		kind, note, err := kindOf(ctx, p)
		switch {
		case err != nil:
			return err
		case i > 0 && kind.Name != d.kind.Name:
			return badInput("%s is of the kind %s, and %s of %s: give those of one dataset, or say "+
				"the kind with --kind", human.Name(places[0].text), d.kind.Name, human.Name(p.text),
				kind.Name)
		case note != "":
			d.notes = append(d.notes, note)
		}
		d.kind = kind
	}
	return nil
}

// kindOf returns the kind of a dataset at a place.
func kindOf(ctx context.Context, p given) (kind source.Kind, note string, err error) {
	switch {
	case p.name == "" && option.IsURL(p.dir):
		kind, err = kindOfURL(ctx, p.dir)
		return kind, "", err
	case p.name == "":
		return kindOfDirectory(p.dir)
	}
	var all []string
	for _, k := range sources() {
		if slices.ContainsFunc(k.Names, func(pattern string) bool {
			return matches(pattern, path.Base(p.name))
		}) {
			return k, "", nil
		}
		all = append(all, k.Names...)
	}
	if _, err := os.Lstat(p.text); err != nil && !strings.ContainsAny(p.text, "*?[{") {
		return sources()[0], "", nil // which reports that there is nothing
	}
	return kind, "", badInput("%s: no directory, and the names of files that have samples are "+
		"%s; give a directory or such a file, or say with --kind what it is", human.Name(p.text),
		human.List(all))
}

// kindOfDirectory returns the kind that the files of a directory are of. One that has
// subdirectories is a folder, as it always was.
func kindOfDirectory(dir string) (kind source.Kind, note string, err error) {
	first := sources()[0]
	f, err := os.Open(dir)
	if err != nil {
		return first, "", nil // which reports that it cannot be read
	}
	defer f.Close() //nolint:errcheck // it is only read
	directories, counts := 0, map[string]int{}
	for {
		entries, err := f.ReadDir(1 << 12)
		for _, e := range entries {
			if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				directories++
			}
			for _, k := range sources() {
				if len(k.Names) > 0 && matches(k.Names[0], e.Name()) {
					counts[k.Name]++
				}
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return first, "", nil // which reports it
		}
	}
	for _, k := range sources() {
		switch n := counts[k.Name]; {
		case n == 0:
		case directories == 0:
			return k, "", nil
		default:
			note = fmt.Sprintf("%s has %s, and besides them %s named %s: it is taken for a %s; "+
				"--kind %s reads these files", human.Name(dir),
				plural(directories, "subdirectory", "subdirectories"), count(n, "file"), k.Names[0],
				first.Name, k.Name)
		}
	}
	return first, note, nil
}

func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, strings.ToLower(name)) // the patterns are ours
	return ok && !strings.HasPrefix(name, ".")
}

// values returns the values of the kind's options that were given.
func (f *datasetFlags) values(kind source.Kind) (option.Values, error) {
	values := option.Values{source.IndexDirKey: f.indexDir}
	if f.extensions != nil {
		if _, ok := option.Find(kind.Options, source.ExtensionsKey); !ok {
			return nil, badInput("--extensions: the samples of the kind %s have none; leave it out",
				kind.Name)
		}
		values[source.ExtensionsKey] = f.extensions
	}
	for _, text := range f.options {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, badInput("--option %q: give KEY=VALUE", text)
		}
		o, ok := option.Find(kind.Options, key)
		if !ok || key == source.IndexDirKey || key == source.ExtensionsKey ||
			key == records.ObjectsKey || key == source.RescanKey {
			return nil, badInput("--option: the kind %s: %w", kind.Name,
				option.Unknown(key, value, optionKeys(kind)))
		}
		read, _, err := o.Read(value)
		if err != nil {
			return nil, badInput("--option: %w", err)
		}
		if read != nil {
			values[key] = read
		}
	}
	return values, nil
}

// optionKeys returns the keys of a kind's options that have no flag of their own.
func optionKeys(kind source.Kind) (keys []string) {
	for _, o := range kind.Options {
		switch o.Key {
		case source.IndexDirKey, source.ExtensionsKey, source.RescanKey, records.ObjectsKey:
		default:
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// locate sets the directory that the places have in common, and the objects below it.
func (d *dataset) locate(places []given) error {
	if len(places) == 1 && places[0].name == "" {
		d.dir = places[0].dir
		return nil
	}
	if _, ok := option.Find(d.kind.Options, records.ObjectsKey); !ok {
		if len(places) > 1 {
			return badInput("the kind %s takes one directory, not %d", d.kind.Name, len(places))
		}
		d.dir = places[0].text // it reports that this is no directory
		return nil
	}
	dirs := make([]string, len(places))
	for i, p := range places {
		if dirs[i] = p.dir; option.IsURL(p.dir) {
			continue
		}
		var err error
		if dirs[i], err = filepath.Abs(p.dir); err != nil {
			return err
		}
	}
	var root string
	if anyURL(dirs) {
		var err error
		if root, err = commonURL(dirs); err != nil {
			return err
		}
	} else {
		root = commonDirectory(dirs)
	}
	if d.dir = places[0].dir; root != dirs[0] {
		d.dir = root
	}
	var objects []string
	for i, p := range places {
		name := p.name
		if name == "" {
			name = d.kind.Names[0]
		}
		below := strings.TrimPrefix(strings.TrimPrefix(dirs[i], root), "/")
		objects = append(objects, path.Join(below, name))
	}
	d.values[records.ObjectsKey] = objects
	return nil
}

// commonDirectory returns the directory that absolute paths have in common.
func commonDirectory(paths []string) string {
	root := paths[0]
	for _, p := range paths[1:] {
		for root != "/" && p != root && !strings.HasPrefix(p, root+"/") {
			root = filepath.Dir(root)
		}
	}
	return root
}

// openOptions are how a command opens a dataset.
type openOptions struct {
	rescan   bool
	progress func(files int64) // nil: none
	warn     func(text string)
	timeout  time.Duration
	retries  bool // reads that fail for the moment are tried again
}

// open opens the dataset. Errors that the user can put right are of wrong input.
func (d *dataset) open(ctx context.Context, o openOptions) (source.Indexed, error) {
	for _, note := range d.notes {
		o.warn(note)
	}
	kind := d.kind
	if o.retries {
		kind = withRetries(kind)
	}
	d.values[source.RescanKey] = o.rescan
	src, err := kind.Open(ctx, d.dir, source.OpenOptions{
		Values: d.values, Manifest: d.manifest, View: d.view, Timeout: o.timeout,
		Progress: o.progress, Warn: o.warn, Tell: o.warn,
	})
	if err != nil {
		return nil, openError(err)
	}
	return src, nil
}
