package records

import (
	stdtar "archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/formats/tar"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
	"github.com/hdmlp/hdmlp/internal/source/sourcetest"
)

// written are files below a directory, by name.
type written struct {
	root  string
	files map[string][]byte
}

// write writes the files, none of which was modified lately.
func (w *written) write(t *testing.T) *directory.Directory {
	t.Helper()
	w.root = t.TempDir()
	old := time.Unix(1_700_000_000, 0)
	for name, data := range w.files {
		path := filepath.Join(w.root, name)
		must(t, os.WriteFile(path, data, 0o644))
		must(t, os.Chtimes(path, old, old))
	}
	d, err := directory.Open(w.root, directory.Options{})
	must(t, err)
	return d
}

// damage damages a file.
func (w *written) damage(t *testing.T, name string, fault sourcetest.Fault) bool {
	t.Helper()
	path, data := filepath.Join(w.root, name), w.files[name]
	switch fault {
	case sourcetest.Removed:
		must(t, os.Remove(path))
	case sourcetest.Shortened:
		must(t, os.Truncate(path, int64(len(data)-1)))
	case sourcetest.Lengthened:
		must(t, os.WriteFile(path, append(bytes.Clone(data), 1), 0o644))
	case sourcetest.Emptied:
		must(t, os.Truncate(path, 0))
	case sourcetest.Unreadable:
		must(t, os.Remove(path))
		must(t, os.Mkdir(path, 0o755))
	case sourcetest.Rewritten:
		data = bytes.Clone(data)
		data[len(data)-1] ^= 1
		must(t, os.WriteFile(path, data, 0o644))
	}
	return true
}

// classesOf returns the classes of samples, in order.
func classesOf(samples []sourcetest.Sample) (classes []string) {
	for _, s := range samples {
		if len(classes) == 0 || classes[len(classes)-1] != s.Class {
			classes = append(classes, s.Class)
		}
	}
	return classes
}

// TestConformanceOfTarMembers has the samples of a class in one archive, a field in each member.
func TestConformanceOfTarMembers(t *testing.T) {
	sourcetest.RunFields(t, func(t *testing.T, samples []sourcetest.Sample) sourcetest.Fixture {
		archives := map[string]*bytes.Buffer{}
		w := &written{files: map[string][]byte{}}
		var names []string
		for _, class := range classesOf(samples) {
			names = append(names, class+".tar")
			archives[class] = new(bytes.Buffer)
			into := stdtar.NewWriter(archives[class])
			for _, s := range samples {
				if s.Class != class {
					continue
				}
				for f, data := range s.Fields {
					if data == nil {
						continue
					}
					key := strings.TrimSuffix(s.Name, ".jpg")
					must(t, into.WriteHeader(&stdtar.Header{
						Name: key + "." + sourcetest.FieldNames[f], Size: int64(len(data)), Mode: 0o644,
					}))
					_, err := into.Write(data)
					must(t, err)
				}
			}
			must(t, into.Close())
			w.files[class+".tar"] = archives[class].Bytes()
		}
		d := w.write(t)
		x, err := tar.Index(t.Context(), d, names, formats.Options{
			Values: option.Values{tar.FieldsKey: sourcetest.FieldNames},
		})
		must(t, err)
		must(t, d.Close())
		d, err = directory.Open(w.root, directory.Options{}) // in which nothing is open
		must(t, err)
		return sourcetest.Fixture{
			Source: New(d, x), Index: x, Shared: true, Unlabelled: true,
			Damage: func(id int, fault sourcetest.Fault) bool {
				return w.damage(t, samples[id].Class+".tar", fault)
			},
		}
	})
}

// TestConformanceOfFiles has each field of a sample in a file of its own.
func TestConformanceOfFiles(t *testing.T) {
	conformance(t, false, func(s sourcetest.Sample, field string) string {
		return s.Class + "-" + s.Name + "." + field
	})
}

// TestConformanceOfColumns has each field of the samples of a class in a file of its own.
func TestConformanceOfColumns(t *testing.T) {
	conformance(t, true, func(s sourcetest.Sample, field string) string {
		return s.Class + "." + field
	})
}

// conformance checks sources of samples whose fields are in files, one after another. file returns
// the name of that of a field.
func conformance(t *testing.T, shared bool, file func(s sourcetest.Sample, field string) string) {
	sourcetest.RunFields(t, func(t *testing.T, samples []sourcetest.Sample) sourcetest.Fixture {
		w := &written{files: map[string][]byte{}}
		at := make([][3]int64, len(samples))
		for i, s := range samples {
			for f, data := range s.Fields {
				name := file(s, sourcetest.FieldNames[f])
				at[i][f] = int64(len(w.files[name]))
				if data != nil {
					w.files[name] = append(w.files[name], data...)
				}
			}
		}
		d := w.write(t)
		classes := classesOf(samples)
		b := source.NewRecordBuilder(sourcetest.FieldNames, classes, nil)
		numbers := map[string]int{}
		class := 0
		for i, s := range samples {
			for classes[class] != s.Class {
				class++
			}
			ranges := make([]source.Range, len(s.Fields))
			for f, data := range s.Fields {
				ranges[f] = in(0, 0, source.Missing)
				if data == nil {
					continue
				}
				name := file(s, sourcetest.FieldNames[f])
				if _, known := numbers[name]; !known {
					if w.files[name] == nil { // only empty fields are there
						w.files[name] = []byte{}
						must(t, os.WriteFile(filepath.Join(w.root, name), nil, 0o644))
					}
					o, err := d.Stat(t.Context(), name)
					must(t, err)
					numbers[name] = b.Object(o)
				}
				ranges[f] = in(numbers[name], at[i][f], int64(len(data)))
			}
			b.Add(source.Record{Key: s.Name, Class: class, Ranges: ranges})
		}
		x, err := b.Build()
		must(t, err)
		return sourcetest.Fixture{
			Source: New(d, x), Index: x, Shared: shared,
			Damage: func(id int, fault sourcetest.Fault) bool {
				last := sourcetest.FieldNames[len(sourcetest.FieldNames)-1]
				return w.damage(t, file(samples[id], last), fault)
			},
		}
	})
}
