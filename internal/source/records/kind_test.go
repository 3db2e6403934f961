package records

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/hangs"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
)

// lines is a format of files whose lines are the samples. It counts how often it makes an index.
func lines(indexed *atomic.Int64) formats.Format {
	return formats.Format{
		Name: "lines", Pattern: "*.txt",
		Options: []option.Option{{Key: "field", Kind: option.Text, Default: "line", Max: 9}},
		Index: func(ctx context.Context, o objects.Objects, names []string, opts formats.Options,
		) (*source.Index, error) {
			indexed.Add(1)
			b := source.NewRecordBuilder([]string{"line"}, nil, nil)
			b.Origin = opts.Origin
			for _, name := range names {
				object, err := o.Stat(ctx, name)
				if err != nil {
					return nil, err
				}
				text := make([]byte, object.Size)
				if _, err := o.Read(ctx, &object, 0, [][]byte{text}); err != nil {
					return nil, err
				}
				number, at := b.Object(object), int64(0)
				for line := range strings.Lines(string(text)) {
					b.Add(source.Record{Ranges: []source.Range{in(number, at, int64(len(line)))}})
					at += int64(len(line))
				}
			}
			return b.Build()
		},
	}
}

// opener opens the datasets of one kind in a directory.
type opener struct {
	t       *testing.T
	root    string
	kind    source.Kind
	indexed atomic.Int64
	memory  func() (int64, error) // nil: no limit

	exchange source.Exchange // of what is at a URL
	await    func(text string)
}

func newOpener(t *testing.T, files map[string]string) *opener {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	o := &opener{t: t, root: t.TempDir()}
	for name, text := range files {
		o.write(name, text)
	}
	o.kind = Kind(lines(&o.indexed), nil, nil)
	return o
}

var old = time.Unix(1_700_000_000, 0)

func (o *opener) write(name, text string) {
	o.t.Helper()
	path := filepath.Join(o.root, name)
	must(o.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(o.t, os.WriteFile(path, []byte(text), 0o644))
	must(o.t, os.Chtimes(path, old, old))
}

func (o *opener) open(patterns ...string) (source.Indexed, error) {
	values := option.Values{}
	if patterns != nil {
		values[ObjectsKey] = patterns
	}
	return o.kind.Open(o.t.Context(), o.root, source.OpenOptions{
		Values: values, Tell: func(string) {}, Warn: func(string) {},
	})
}

// texts returns the samples.
func (o *opener) texts(patterns ...string) string {
	o.t.Helper()
	s, err := o.open(patterns...)
	if err != nil {
		return err.Error()
	}
	defer s.Close() //nolint:errcheck // it was only read
	var all []string
	for id := range s.Index().Len() {
		data := make([]byte, s.Index().Size(id))
		if _, err := s.Read(o.t.Context(), id, data); err != nil {
			return err.Error()
		}
		all = append(all, strings.TrimSpace(string(data)))
	}
	return strings.Join(all, " ")
}

func TestFilesAreThoseThatPatternsName(t *testing.T) {
	o := newOpener(t, map[string]string{
		"a.txt": "1\n2\n", "b.txt": "3\n", "sub/a.txt": "4\n", "sub/b.txt": "5\n", "c.TXT": "6\n",
		".hidden.txt": "7\n", "x{1}.txt": "8\n",
	})
	for _, c := range []struct{ patterns, want string }{
		{"", "1 2 3 8"},
		{"b.txt a.txt", "3 1 2"},
		{"{b,a}.txt", "3 1 2"},
		{"sub/*", "4 5"},
		{"*/[ab].txt", "4 5"},
		{"{sub/{b,a},b}.txt", "5 4 3"},
		{".h*", "7"},
		{"?.TXT", "6"},
		{"*.none", "*.none: it has no samples: no file has such a name"},
		{"a.txt {b,a}.txt", "objects: a.txt is given twice"},
		{"{a", "a { has no }"},
		{"{a}.txt", "{a} is neither {a,b} nor {000..099}"},
		{"[a", "syntax error in pattern"},
		{"none.txt", "one of its files cannot be used: " + filepath.Join(o.root, "none.txt")},
		{"sub", "it is not a regular file"},
	} {
		var patterns []string
		if c.patterns != "" {
			patterns = strings.Fields(c.patterns)
		}
		if got := o.texts(patterns...); got != c.want && !strings.Contains(got, c.want) {
			t.Errorf("%q: %s, want %s", c.patterns, got, c.want)
		}
	}
}

func TestSequences(t *testing.T) {
	for pattern, want := range map[string]string{
		"{0..3}":            "0 1 2 3",
		"{008..011}":        "008 009 010 011",
		"{3..1}":            "3 2 1",
		"{0..9..4}":         "0 4 8",
		"{9..0..4}":         "9 5 1",
		"{a..d}":            "a b c d",
		"{-1..1}":           "-1 0 1",
		"x{0..1}y{a,}":      "x0ya x0y x1ya x1y",
		"{{0..1},z}":        "0 1 z",
		"{0..x}":            "{0..x} is neither {a,b} nor {000..099}",
		"{0..1..0}":         "{0..1..0} is neither {a,b} nor {000..099}",
		"{0..99999999}":     "{0..99999999} stands for more than 1000000 names",
		"{0..9}{0..999999}": "it stands for more than 1000000 names",
		"{9223372036854775806..9223372036854775807}":   "9223372036854775806 9223372036854775807",
		"{-9223372036854775807..-9223372036854775808}": "-9223372036854775807 -9223372036854775808",
		"{-9000000000000000000..9000000000000000000}": "{-9000000000000000000..9000000000000000000} " +
			"stands for more than 1000000 names",
	} {
		names, err := braces(pattern)
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
}

// FuzzBraces: each name has what is outside of a pattern's braces, and there are not too many.
func FuzzBraces(f *testing.F) {
	for _, pattern := range []string{
		"a", "{a,b}", "x{000..099}y", "{9..0..4}", "{{0..1},z}", "{a", "}{", "{0..1..0}", "{,}{}",
		"{9223372036854775806..9223372036854775807}", "{0..99999999}",
	} {
		f.Add(pattern)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		names, err := braces(pattern)
		if err != nil {
			return
		}
		if len(names) == 0 || len(names) > mostNames {
			t.Fatalf("%q: %d names", pattern, len(names))
		}
		head, _, some := strings.Cut(pattern, "{")
		tail := pattern[strings.LastIndexByte(pattern, '}')+1:]
		for _, name := range names {
			if !strings.HasPrefix(name, head) || some && !strings.HasSuffix(name, tail) {
				t.Fatalf("%q: %q", pattern, name)
			}
		}
	})
}

// TestAnIndexIsUsedUntilSomethingChanges: a file that is added, removed, replaced, or written with
// or without another time.
func TestAnIndexIsUsedUntilSomethingChanges(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n2\n", "b.txt": "3\n"})
	check := func(what string, made int64, want string) {
		t.Helper()
		before := o.indexed.Load()
		if got := o.texts(); got != want || o.indexed.Load()-before != made {
			t.Errorf("%s: %s, want %s; indexed %d times, want %d", what, got, want,
				o.indexed.Load()-before, made)
		}
	}
	check("first", 1, "1 2 3")
	check("again", 0, "1 2 3")
	o.write("c.txt", "4\n")
	check("added", 1, "1 2 3 4")
	check("again", 0, "1 2 3 4")
	o.write("b.txt", "5\n6\n")
	check("longer", 1, "1 2 5 6 4")
	o.write("b.txt", "7\n8\n") // the same size and time
	check("rewritten", 1, "1 2 7 8 4")
	must(t, os.Remove(filepath.Join(o.root, "a.txt")))
	check("removed", 1, "7 8 4")
	files, err := filepath.Glob(filepath.Join(o.root, ".hdmlp-index-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	must(t, os.WriteFile(files[0], []byte("damaged"), 0o644))
	check("damaged", 1, "7 8 4")
}

// TestAChangeWhileItIsOpenIsAnError, also one that leaves size and time as they were.
func TestAChangeWhileItIsOpenIsAnError(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n2\n"})
	s, err := o.open()
	must(t, err)
	defer s.Close() //nolint:errcheck // it was only read
	o.write("a.txt", "3\n4\n")
	data := make([]byte, 2)
	if _, err := s.Read(t.Context(), 0, data); !errors.Is(err, source.ErrChanged) {
		t.Errorf("%q, %v", data, err)
	}
}

func TestDirectoriesThatCannotBeOpened(t *testing.T) {
	o := newOpener(t, nil)
	file := filepath.Join(o.root, "file")
	must(t, os.WriteFile(file, nil, 0o644))
	for path, kind := range map[string]error{
		filepath.Join(o.root, "none"): source.ErrNoDirectory,
		"s3://bucket/x":               source.ErrPlace,
		o.root:                        source.ErrNoSamples,
	} {
		_, err := o.kind.Open(t.Context(), path, source.OpenOptions{Tell: func(string) {}})
		if !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", path, err, kind)
		}
	}
}

// TestNothingIsWrittenWhereManifestsLie: the directory is only what the files have in common.
func TestNothingIsWrittenWhereManifestsLie(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n"})
	f := lines(&o.indexed)
	inner := f.Index
	f.Manifest = true
	f.Index = func(ctx context.Context, objects objects.Objects, _ []string, opts formats.Options,
	) (*source.Index, error) {
		return inner(ctx, objects, []string{string(opts.Manifest.Data)}, opts)
	}
	o.kind = Kind(f, nil, nil)
	s, err := o.kind.Open(t.Context(), o.root, source.OpenOptions{
		Manifest: source.NewManifest([]byte("a.txt")), Tell: func(string) {},
	})
	must(t, err)
	defer s.Close() //nolint:errcheck // it was only read
	_, err = s.(source.Beside).WriteBeside("x", []byte("y"))
	must(t, err)
	entries, err := os.ReadDir(o.root)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}

func TestManyFilesAreAskedForAtOnce(t *testing.T) {
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("%03d.txt", i)] = fmt.Sprintln(i)
	}
	o := newOpener(t, files)
	o.texts()
	if got := o.texts("{000..099}.txt"); !strings.HasPrefix(got, "0 1 2 3") {
		t.Error(got)
	}
}

// TestOneMonitoredCallerServesCallsThatFollowOneAnother: an index takes a call per member.
func TestOneMonitoredCallerServesCallsThatFollowOneAnother(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("text"), 0o644))
	d, err := directory.Open(root, directory.Options{})
	must(t, err)
	defer d.Close() //nolint:errcheck // it was only read
	w := watch(d, hangs.New(root, hangs.Options{}))
	o, err := w.Stat(t.Context(), "a")
	must(t, err)
	for range 10 {
		w.Ahead(&o, 0, 4)
		_, err := w.Read(t.Context(), &o, 0, [][]byte{make([]byte, 4)})
		must(t, err)
	}
	if len(w.idle) != 1 {
		t.Errorf("%d callers", len(w.idle))
	}
}
