package lmdb

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
)

var items = flag.Int("items", 3000, "how many records py-lmdb writes into each database")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// memory are data files in memory. Reads outside of them fail the test.
type memory struct {
	objects.Objects // its other methods are not called
	t               testing.TB
	files           map[string][]byte
	bytes, reads    atomic.Int64
	before          func() // is called before each read, if not nil
	directory       string // a name that is no file's
}

func one(t testing.TB, data []byte) *memory {
	return &memory{t: t, files: map[string][]byte{"data.mdb": data}}
}

func (o *memory) Path(name string) string { return "/data/" + name }

func (o *memory) Stat(_ context.Context, name string) (source.Object, error) {
	data, ok := o.files[name]
	if !ok {
		kind := source.ErrMissing
		if name == o.directory {
			kind = source.ErrUnreadable
		}
		return source.Object{}, &objects.Error{Path: o.Path(name), Kind: kind}
	}
	return source.Object{Name: name, Size: int64(len(data)), Stamp: 7}, nil
}

func (o *memory) Read(ctx context.Context, object *source.Object, offset int64, parts [][]byte,
) (source.Stamp, error) {
	if o.before != nil {
		o.before()
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if object.Tag != [16]byte{} {
		return 0, &objects.Error{Path: o.Path(object.Name), Kind: source.ErrChanged}
	}
	o.reads.Add(1)
	data := o.files[object.Name]
	if offset < 0 || offset > int64(len(data)) {
		o.t.Errorf("a read at %d of %d bytes", offset, len(data))
		return 0, &objects.Error{Path: o.Path(object.Name), Kind: source.ErrShort}
	}
	data = data[offset:]
	for _, p := range parts {
		if len(p) > len(data) {
			o.t.Errorf("a read of %d bytes at %d, where %d are left", len(p), offset, len(data))
		}
		data = data[copy(p, data):]
		o.bytes.Add(int64(len(p)))
	}
	return 7, nil
}

// values returns options: key, value and so on.
func values(pairs ...string) formats.Options {
	o := formats.Options{Values: option.Values{}}
	for i := 0; i < len(pairs); i += 2 {
		o.Values[pairs[i]] = pairs[i+1]
	}
	return o
}

// golden returns a data file that py-lmdb has written.
func golden(t testing.TB, kind string) []byte {
	t.Helper()
	f := must[*os.File](t)(os.Open(filepath.Join("testdata", kind+".mdb.gz")))
	defer f.Close() //nolint:errcheck // it was only read
	return must[[]byte](t)(io.ReadAll(must[*gzip.Reader](t)(gzip.NewReader(f))))
}

// keyOf returns the key of a record.
func keyOf(x *source.Index, id int) string {
	if c := slices.Index(x.Columns(), KeyColumn); c >= 0 {
		return x.Value(c, id)
	}
	return x.Name(id)
}

// described returns the line of testdata/make.py about a database: kind, name, records and a digest
// of keys, offsets, lengths and values.
func described(t testing.TB, kind, name string, o objects.Objects, file string) string {
	t.Helper()
	opts := values()
	if name != "-" {
		opts = values(DatabaseKey, name)
	}
	x, err := Index(t.Context(), o, []string{file}, opts)
	if err != nil {
		return fmt.Sprintf("%s %s %v", kind, name, err)
	}
	digest := sha256.New()
	for id := range x.Len() {
		r := x.Ranges(nil, id)[0]
		value := make([]byte, r.Length)
		object := x.Object(r.Object)
		must[source.Stamp](t)(Objects(o).Read(t.Context(), &object, r.Offset, [][]byte{value}))
		if r.Length == 0 {
			r.Offset = 0
		}
		fmt.Fprintf(digest, "%x %d %d\n", keyOf(x, id), r.Offset, r.Length)
		digest.Write(value)
	}
	return fmt.Sprintf("%s %s %d %s", kind, name, x.Len(), hex.EncodeToString(digest.Sum(nil)))
}

// TestRecordsAreThoseOfPyLMDB reads files that py-lmdb has written: random inserts and deletes,
// small and large values, deep trees, named databases, all kinds of keys, and a writer that was
// killed.
func TestRecordsAreThoseOfPyLMDB(t *testing.T) {
	lines := strings.TrimSpace(string(must[[]byte](t)(os.ReadFile("testdata/golden.txt"))))
	for want := range strings.SplitSeq(lines, "\n") {
		part := strings.Fields(want)
		if part[0] == "empty" {
			continue
		}
		got := described(t, part[0], part[1], one(t, golden(t, part[0])), "data.mdb")
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// pyLMDB returns a Python that has py-lmdb; without one the test is skipped.
func pyLMDB(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"../../../../.venv/bin/python", "python3"} {
		if exec.Command(python, "-c", "import lmdb").Run() == nil {
			return python
		}
	}
	t.Skip("py-lmdb is not installed")
	return ""
}

// TestNewFilesAreReadAsPyLMDBReadsThem writes other databases with py-lmdb.
func TestNewFilesAreReadAsPyLMDBReadsThem(t *testing.T) {
	python := pyLMDB(t)
	seed := fmt.Sprint(os.Getpid())
	total := 0
	for _, kind := range []string{
		"file", "random", "tiny", "deep", "named", "reverse", "integer", "binary", "killed",
		"sequential",
	} {
		root := t.TempDir()
		path := filepath.Join(root, "environment")
		cmd := exec.Command(python, "testdata/make.py", kind, path, fmt.Sprint(*items), seed)
		cmd.Stderr = os.Stderr
		out := must[[]byte](t)(cmd.Output())
		d := must[*directory.Directory](t)(directory.Open(root, directory.Options{}))
		for want := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
			part := strings.Fields(want)
			if got := described(t, kind, part[1], d, "environment"); got != want {
				t.Errorf("seed %s: %s\nwant %s", seed, got, want)
			}
			n := 0
			must[int](t)(fmt.Sscan(part[2], &n))
			total += n
		}
		must[any](t)(nil, d.Close())
		must[any](t)(nil, os.RemoveAll(path))
	}
	t.Logf("%d records are equal", total)
}

// shown returns the samples of an index in words: key, fields and values.
func shown(o *memory, x *source.Index) (lines []string) {
	for id := range x.Len() {
		line := fmt.Sprintf("%q", x.Name(id))
		for f, r := range x.Ranges(nil, id) {
			if r.Length != source.Missing {
				data := o.files[x.Object(r.Object).Name][r.Offset:][:r.Length]
				line += fmt.Sprintf(" %s=%q", x.Fields()[f], data)
			}
		}
		for c, name := range x.Columns() {
			line += fmt.Sprintf(" [%s %q]", name, x.Value(c, id))
		}
		lines = append(lines, line)
	}
	return lines
}

// TestKeysAreNamesUnlessTheyAreBinary, and may have a label.
func TestKeysAreNamesUnlessTheyAreBinary(t *testing.T) {
	x := []byte("x")
	for _, c := range []struct {
		keys []string
		opts formats.Options
		want []string
	}{
		{
			[]string{"cat/1", "dog_1/2", "é_"},
			values(LabelKey, "prefix"),
			[]string{
				`"cat/1" value="x" [label "cat"]`, `"dog_1/2" value="x" [label "dog"]`,
				`"é_" value="x" [label "é"]`,
			},
		},
		{[]string{"1", "2"}, values(), []string{`"1" value="x"`, `"2" value="x"`}},
		{
			[]string{"\x00\x01", "a"},
			values(),
			[]string{`"0001" value="x" [key "\x00\x01"]`, `"61" value="x" [key "a"]`},
		},
		{
			[]string{"a_1", "b_\xff"},
			values(LabelKey, "prefix"),
			[]string{
				`"615f31" value="x" [label "a"] [key "a_1"]`,
				`"625fff" value="x" [label "b"] [key "b_\xff"]`,
			},
		},
	} {
		var records []record
		for _, key := range c.keys {
			records = append(records, record{key: key, value: x})
		}
		o := one(t, built(512, records...))
		x := must[*source.Index](t)(Index(t.Context(), o, []string{"data.mdb"}, c.opts))
		if diff := cmp.Diff(c.want, shown(o, x)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestADirectoryOrItsFileIsNamed, and several are one dataset.
func TestADirectoryOrItsFileIsNamed(t *testing.T) {
	o := &memory{t: t, files: map[string][]byte{
		"a.mdb":           built(512, record{key: "1", value: []byte("a")}),
		"sub/b/data.mdb":  built(1024, record{key: "1", value: []byte("b")}),
		"empty":           built(512),
		"other/train.txt": nil,
	}}
	names := []string{"sub/b", "a.mdb", "empty"}
	x := must[*source.Index](t)(Index(t.Context(), o, names, values()))
	want := []string{`"1" value="b"`, `"1" value="a"`}
	if diff := cmp.Diff(want, shown(o, x)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	o.directory = "other"
	for name, want := range map[string]string{
		"none":  "/data/none: the file is missing",
		"other": "/data/other/data.mdb: the file is missing",
		"empty": "the LMDB files have no records",
	} {
		_, err := Index(t.Context(), o, []string{name}, values())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPagesOfAllSizesAndDepthsAreRead, and every value is where the index has it.
func TestPagesOfAllSizesAndDepthsAreRead(t *testing.T) {
	for size := leastPage; size <= mostPage; size *= 2 {
		var records []record
		for i := range 3000 {
			value := bytes.Repeat(fmt.Appendf(nil, "%d,", i), i%7*i%150)
			records = append(records, record{key: fmt.Sprintf("%0100d", i), value: value})
		}
		o := one(t, built(size, records...))
		x := must[*source.Index](t)(Index(t.Context(), o, []string{"data.mdb"}, values()))
		if x.Len() != len(records) {
			t.Fatalf("%d records", x.Len())
		}
		for id, r := range records {
			v := x.Ranges(nil, id)[0]
			got := o.files["data.mdb"][v.Offset:][:v.Length]
			if x.Name(id) != r.key || !bytes.Equal(got, r.value) {
				t.Fatalf("pages of %d bytes: record %d is %q with %q", size, id, x.Name(id), got)
			}
		}
	}
}

// TestOnlyBranchesAndLeavesAreRead, adjacent ones at once.
func TestOnlyBranchesAndLeavesAreRead(t *testing.T) {
	var large, small []record
	for i := range 2000 {
		key := fmt.Sprintf("%08d", i)
		large = append(large, record{key: key, value: make([]byte, 20_000)})
		small = append(small, record{key: key, value: make([]byte, 100)})
	}
	for name, c := range map[string]struct {
		records      []record
		share, reads float64
	}{"large": {large, 0.003, 40}, "small": {small, 1.1, 20}} {
		o := one(t, built(4096, c.records...))
		must[*source.Index](t)(Index(t.Context(), o, []string{"data.mdb"}, values()))
		share := float64(o.bytes.Load()) / float64(len(o.files["data.mdb"]))
		if reads := float64(o.reads.Load()); share > c.share || reads > c.reads {
			t.Errorf("%s: %.4f of the file in %.0f reads", name, share, reads)
		}
	}
}

// TestPickles are recognised by their first two bytes and their last one.
func TestPickles(t *testing.T) {
	for value, want := range map[string]int{
		"\x80\x02}q\x00.": 2, "\x80\x05N.": 5, "\x80\x04\x95\x00\x00.": 4,
		"\x80\x01N.": 0, "\x80\x06N.": 0, "\x80\x05N": 0, "\x80.": 0, "": 0, "N.": 0,
		"\xff\xd8\xff": 0,
	} {
		if got := Pickle([]byte(value)); got != want {
			t.Errorf("%q: %d, not %d", value, got, want)
		}
	}
}
