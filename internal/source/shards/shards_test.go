package shards

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/folder"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// open opens a folder with these files, whose contents are their names, several times.
func open(t testing.TB, names ...string) *folder.Folder {
	t.Helper()
	root := t.TempDir()
	for i, name := range names {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, bytes.Repeat([]byte(name), 1+i*13%50), 0o644))
	}
	f, err := folder.Open(t.Context(), root,
		folder.Options{IndexDir: t.TempDir(), Extensions: []string{".jpg", ".png", ".seg.png"}})
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

// many returns the names of n samples in two classes.
func many(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s/%03d.jpg", []string{"ant", "bee"}[i%2], i))
	}
	return names
}

func layout(t testing.TB, src source.Indexed, o Options) *Layout {
	t.Helper()
	if o.Size == 0 {
		o.Size = 8 << 10
	}
	l, err := New(src.Index(), o)
	must(t, err)
	return l
}

func (l *Layout) into(t testing.TB, src source.Source, dir string) Result {
	t.Helper()
	result, err := l.Write(t.Context(), src, dir, WriteOptions{Streams: 4, Memory: 1 << 20})
	must(t, err)
	return result
}

// filesOf returns the contents of the files in a directory by name.
func filesOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	files := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		files[e.Name()] = string(data)
	}
	return files
}

// membersOf returns the members of shards, as archive/tar reads them.
func membersOf(t testing.TB, files map[string]string) (names []string, data map[string]string) {
	t.Helper()
	data = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".tar") {
			continue
		}
		r := tar.NewReader(strings.NewReader(files[name]))
		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			b, err := io.ReadAll(r)
			must(t, err)
			if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 || h.Mode != 0o644 {
				t.Errorf("%s: %+v", h.Name, h)
			}
			names, data[h.Name] = append(names, h.Name), string(b)
		}
	}
	return names, data
}

// TestAFolderBecomesShards whose members are its files, and the numbers of the classes.
func TestAFolderBecomesShards(t *testing.T) {
	src := open(t, many(40)...)
	x := src.Index()
	dir := filepath.Join(t.TempDir(), "out")
	l := layout(t, src, Options{Pattern: "train-%03d.tar"})
	result := l.into(t, src, dir)
	files := filesOf(t, dir)
	names, data := membersOf(t, files)
	var want []string
	for id := range x.Len() {
		name := x.Name(id)
		key := strings.TrimSuffix(name, ".jpg")
		want = append(want, name, key+".cls")
		file, err := os.ReadFile(src.Path(id))
		must(t, err)
		if data[name] != string(file) || data[key+".cls"] != fmt.Sprint(x.Label(id)) {
			t.Errorf("%s: %d bytes, class %s", name, len(data[name]), data[key+".cls"])
		}
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if files[ClassesName] != "[\n \"ant\",\n \"bee\"\n]\n" {
		t.Errorf("classes %q", files[ClassesName])
	}
	if result.Written != len(l.Shards()) || len(l.Shards()) < 4 || len(files) != result.Written+2 {
		t.Errorf("%+v, files %q", result, slices.Sorted(maps.Keys(files)))
	}
	for _, s := range l.Shards() {
		if int64(len(files[s.Name])) != s.Size || s.Size > 8<<10 {
			t.Errorf("%s has %d bytes, not %d", s.Name, len(files[s.Name]), s.Size)
		}
	}
}

// TestTheBytesFollowFromTheDatasetAlone: not from how many samples are read at once.
func TestTheBytesFollowFromTheDatasetAlone(t *testing.T) {
	src := open(t, many(60)...)
	var all []map[string]string
	for _, o := range []WriteOptions{{Streams: 1, Memory: 1}, {Streams: 30, Memory: 1 << 20}} {
		dir := filepath.Join(t.TempDir(), "out")
		_, err := layout(t, src, Options{}).Write(t.Context(), src, dir, o)
		must(t, err)
		all = append(all, filesOf(t, dir))
	}
	if diff := cmp.Diff(all[0], all[1]); diff != "" {
		t.Error(diff)
	}
}

// TestSamplesAreInTheOrderGiven, with the same keys.
func TestSamplesAreInTheOrderGiven(t *testing.T) {
	src := open(t, many(10)...)
	order := []int32{7, 2, 9, 0, 1, 3, 4, 5, 6, 8}
	dir := filepath.Join(t.TempDir(), "out")
	layout(t, src, Options{Order: order}).into(t, src, dir)
	names, _ := membersOf(t, filesOf(t, dir))
	for i, id := range order {
		if want := src.Index().Name(int(id)); names[2*i] != want {
			t.Errorf("member %d is %s, not %s", 2*i, names[2*i], want)
		}
	}
}

// TestKeysAreUniqueAndWithoutDots: samples whose names would be one key are two samples.
func TestKeysAreUniqueAndWithoutDots(t *testing.T) {
	src := open(t, "a/1.jpg", "a/1.png", "a/x.y.jpg", "a/x_y.jpg", "a.b/1.PNG", "a/l\n\xff.jpg",
		"a/"+strings.Repeat("long", 40)+".jpg", "a/\u00fc.jpg")
	dir := filepath.Join(t.TempDir(), "out")
	l := layout(t, src, Options{})
	l.into(t, src, dir)
	names, _ := membersOf(t, filesOf(t, dir))
	keys := map[string]bool{}
	for i := 0; i < len(names); i += 2 {
		slash := strings.LastIndexByte(names[i], '/')
		base, field, _ := strings.Cut(names[i][slash+1:], ".")
		key := names[i][:slash+1] + base
		if keys[key] || names[i+1] != key+".cls" || field != "jpg" && field != "png" {
			t.Errorf("members %q, %q", names[i], names[i+1])
		}
		keys[key] = true
	}
	for _, key := range []string{
		"a/1", "a/1-1", "a/x_y", "a/l%0a%ff", "a/\u00fc", "a/" + strings.Repeat("long", 40), "a.b/1",
	} {
		if !keys[key] {
			t.Errorf("there is no %q in %q", key, slices.Sorted(maps.Keys(keys)))
		}
	}
}

// TestAnInterruptedWriteGoesOn with the same bytes, wherever it was interrupted: in a shard, before
// and after its line in the journal, in that line, and before its name.
func TestAnInterruptedWriteGoesOn(t *testing.T) {
	src := open(t, many(60)...)
	whole := filepath.Join(t.TempDir(), "whole")
	l := layout(t, src, Options{})
	l.into(t, src, whole)
	want := filesOf(t, whole)
	lines := strings.SplitAfter(want[JournalName], "\n")
	last := l.Shards()[3].Name
	for what, change := range map[string]func(files map[string]string){
		"in the first line": func(files map[string]string) {
			for _, s := range l.Shards() {
				delete(files, s.Name)
			}
			delete(files, ClassesName)
			files[JournalName] = lines[0][:10]
		},
		"in a shard": func(files map[string]string) {
			files[JournalName] = strings.Join(lines[:4], "")
			files[hidden(last)] = files[last][:700]
			delete(files, last)
		},
		"in the line of a shard": func(files map[string]string) {
			files[JournalName] = strings.Join(lines[:4], "") + lines[4][:20]
			files[hidden(last)] = files[last]
			delete(files, last)
		},
		"before a shard's name": func(files map[string]string) {
			files[JournalName] = strings.Join(lines[:5], "")
			files[hidden(last)] = files[last]
			delete(files, last)
		},
		"after a shard": func(files map[string]string) {
			files[JournalName] = strings.Join(lines[:5], "")
		},
	} {
		files := maps.Clone(want)
		for _, s := range l.Shards()[4:] {
			delete(files, s.Name)
		}
		change(files)
		dir := t.TempDir()
		for name, data := range files {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
		}
		result := l.into(t, src, dir)
		if diff := cmp.Diff(want, filesOf(t, dir)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		if result.Kept+result.Written != len(l.Shards()) {
			t.Errorf("%s: %+v", what, result)
		}
	}
}

// TestACancelledWriteGoesOn.
func TestACancelledWriteGoesOn(t *testing.T) {
	src := open(t, many(60)...)
	l := layout(t, src, Options{})
	dir := filepath.Join(t.TempDir(), "out")
	for stop := 5; stop < 60; stop += 20 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := l.Write(ctx, src, dir, WriteOptions{
			Streams: 4, Memory: 1 << 20, Progress: func(p Progress) {
				if p.Samples >= stop {
					cancel()
				}
			},
		})
		if err == nil {
			t.Fatal("it was not cancelled")
		}
		cancel()
	}
	l.into(t, src, dir)
	whole := filepath.Join(t.TempDir(), "whole")
	l.into(t, src, whole)
	if diff := cmp.Diff(filesOf(t, whole), filesOf(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestNothingElseIsOverwritten: what is in the directory already stays as it is, and is named.
func TestNothingElseIsOverwritten(t *testing.T) {
	src := open(t, many(60)...)
	l := layout(t, src, Options{})
	name := l.Shards()[2].Name
	begun := func(dir string) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := l.Write(ctx, src, dir, WriteOptions{
			Streams: 1, Memory: 1, Progress: func(p Progress) {
				if p.Shards == 1 {
					cancel()
				}
			},
		})
		if err == nil {
			t.Fatal("it was not cancelled")
		}
	}
	put := func(name, text string) func(dir string) {
		return func(dir string) {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
	}
	for want, prepare := range map[string][]func(dir string){
		"is not empty":                     {put("mine.txt", "mine")},
		name + " is there already":         {begun, put(name, "mine")},
		"another one":                      {begun, put(ClassesName, "mine")},
		"removed or changed since":         {begun, put(l.Shards()[0].Name, "mine")},
		"is not the journal of this":       {put(JournalName, "mine\n")},
		"shards of another dataset, or of": {put(JournalName, `{"format":1,"layout":"x"}`+"\n")},
		"line 2 is damaged": {begun, func(dir string) {
			journal := filepath.Join(dir, JournalName)
			data, err := os.ReadFile(journal)
			must(t, err, os.WriteFile(journal, []byte(strings.Replace(string(data), `{"name`, "x", 1)),
				0o644))
		}},
	} {
		dir := t.TempDir()
		for _, p := range prepare {
			p(dir)
		}
		before := filesOf(t, dir)
		_, err := l.Write(t.Context(), src, dir, WriteOptions{Streams: 4, Memory: 1 << 20})
		if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		for name, data := range filesOf(t, dir) {
			if before[name] != data && strings.Contains(data+before[name], "mine") {
				t.Errorf("%s: %s is now %q", want, name, data)
			}
		}
	}
}

// TestWhatIsReadBackDecides: a shard whose bytes the disk did not keep gets no name.
func TestWhatIsReadBackDecides(t *testing.T) {
	src := open(t, many(60)...)
	l := layout(t, src, Options{})
	dir := t.TempDir()
	l.into(t, src, dir)
	files := filesOf(t, dir)
	lines := strings.SplitAfter(files[JournalName], "\n")
	last := l.Shards()[len(l.Shards())-1].Name
	damaged := []byte(files[last])
	damaged[600] ^= 1
	must(t, os.Remove(filepath.Join(dir, last)),
		os.WriteFile(filepath.Join(dir, hidden(last)), damaged, 0o644))
	_, err := l.Write(t.Context(), src, dir, WriteOptions{Streams: 4, Memory: 1 << 20})
	if err == nil || !strings.Contains(err.Error(), "is not what is read back") || len(lines) < 3 {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, last)); err == nil {
		t.Error("the shard has its name")
	}
}

// TestASampleThatChangedIsNotPacked: the source's error is returned, and names it.
func TestASampleThatChangedIsNotPacked(t *testing.T) {
	src := open(t, many(60)...)
	l := layout(t, src, Options{})
	must(t, os.WriteFile(src.Path(50), []byte("other"), 0o644))
	_, err := l.Write(t.Context(), src, filepath.Join(t.TempDir(), "out"),
		WriteOptions{Streams: 4, Memory: 1 << 20})
	var sample *source.SampleError
	if !errors.As(err, &sample) || sample.ID != 50 {
		t.Errorf("%v", err)
	}
}

// TestWrongOptionsAreRefused.
func TestWrongOptionsAreRefused(t *testing.T) {
	x := open(t, many(3)...).Index()
	for want, o := range map[string]Options{
		"the pattern of shards is":  {Size: 1, Pattern: "%06d-%d.tar"},
		"allowed: a file's name":    {Size: 1, Pattern: "a/%06d.tar"},
		"such as %06d.tar":          {Size: 1, Pattern: "shard.tar"},
		"it must be 1 or more":      {Size: 0},
		`no field "jpg" to rename`:  {Size: 1, Rename: map[string]string{"jpg": "png"}},
		"the size of a shard is -1": {Size: -1},
	} {
		if _, err := New(x, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
