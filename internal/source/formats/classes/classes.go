// Package classes finds samples by their names alone: what lies below CLASS/ is of that class. The
// classes, the samples and their order are those that torchvision's ImageFolder gives for files of
// the same names (package folder, which scans directories).
//
// A listing has all that the index has, so that it is made anew at each opening, and nothing of a
// sample is read.
package classes

import (
	"context"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// Format returns the format.
func Format() formats.Format {
	return formats.Format{
		Name: "classes",
		Help: "objects CLASS/NAME, as torchvision's ImageFolder reads files of such names",
		Options: []option.Option{{
			Key: source.ExtensionsKey, Kind: option.List,
			Default: strings.Join(Extensions(), ", "),
			Help:    "Extensions of the names of samples, in upper or lower case",
		}},
		Listing: true,
		Index:   Index,
	}
}

// progressInterval is how many samples are found between two calls of Progress.
const progressInterval = 1000

// directory is a part of the names, up to the last slash, with samples.
type directory struct {
	path    string
	samples []source.Object
}

// Index implements formats.Format.
func Index(ctx context.Context, o objects.Objects, _ []string, opts formats.Options,
) (*source.Index, error) {
	extensions, err := Normalize(option.Get[[]string](opts.Values, source.ExtensionsKey))
	if err != nil {
		return nil, &source.Error{Path: o.Path(""), Kind: source.ErrExtensions, Hint: err.Error()}
	}
	directories := map[string]*directory{}
	samples := map[string]int{} // per class
	total := 0
	err = o.List(ctx, "", func(found source.Object) error {
		class, _, below := strings.Cut(found.Name, "/")
		switch {
		case !below:
			return nil // beside the classes
		case strings.HasSuffix(found.Name, "/"), !Matches(path.Base(found.Name), extensions):
			samples[class] += 0 // the class is there
			return nil
		case class == "" || class == ".." || path.Clean(found.Name) != found.Name:
			return fmt.Errorf("%s is no name of a file: rename it, or give a list of objects, without "+
				"it (hdmlp.data.Files)", human.Name(o.Path(found.Name)))
		}
		dir := path.Dir(found.Name)
		d := directories[dir]
		if d == nil {
			d = &directory{path: dir}
			directories[dir] = d
		}
		d.samples = append(d.samples, found)
		samples[class]++
		total++
		if opts.Progress != nil && total%progressInterval == 0 {
			opts.Progress(int64(total))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	names, err := classesOf(o.Path(""), samples, extensions)
	if err != nil {
		return nil, err
	}
	return build(names, extensions, directories, total)
}

// classesOf returns the names of the classes, in their order.
func classesOf(root string, samples map[string]int, extensions []string) ([]string, error) {
	var names, empty []string
	for name := range samples {
		names = append(names, name)
	}
	slices.SortFunc(names, Compare)
	for _, name := range names {
		if samples[name] == 0 {
			empty = append(empty, name)
		}
	}
	switch {
	case len(names) == 0:
		return nil, &source.Error{
			Path: root, Kind: source.ErrNoClasses,
			Hint: "there is nothing of the form CLASS/NAME below it; check the URL",
		}
	case len(empty) > 0:
		return nil, EmptyError(root, empty, len(names), extensions)
	}
	return names, nil
}

func build(classes, extensions []string, directories map[string]*directory, total int,
) (*source.Index, error) {
	b := source.NewBuilder(classes, extensions)
	b.Grow(total)
	b.Directory(source.Directory{Class: -1})
	byClass := map[string][]*directory{}
	for _, d := range directories {
		class, _, _ := strings.Cut(d.path, "/")
		byClass[class] = append(byClass[class], d)
	}
	for number, class := range classes {
		list := byClass[class]
		slices.SortFunc(list, func(a, b *directory) int { return Compare(a.path, b.path) })
		for _, d := range list {
			slices.SortFunc(d.samples, func(a, b source.Object) int { return Compare(a.Name, b.Name) })
			b.Directory(source.Directory{Path: d.path, Class: number})
			for i := range d.samples {
				o := &d.samples[i]
				b.Sample(path.Base(o.Name), o.Size, version(o), o.Stamp)
			}
		}
	}
	return b.Build()
}

// version returns what identifies an object's version, in the place of its modification time: the
// listing, and so the dataset's version, covers it.
func version(o *source.Object) int64 {
	if o.Tag != [16]byte{} {
		return int64(binary.LittleEndian.Uint64(o.Tag[:]))
	}
	return o.Modified
}
