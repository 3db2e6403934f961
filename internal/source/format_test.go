package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// TestFormatIsTheGoldenFiles pins the format: files of this version exist.
func TestFormatIsTheGoldenFiles(t *testing.T) {
	const path = "testdata/index-1.golden"
	got := encode(t, small(t))
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("the file has changed; if that is intended, the format needs a new "+
			"version\nwant %x\ngot  %x",
			want, got)
	}
	x, err := decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", x.Fingerprint()); got != goldenFingerprint {
		t.Errorf("the fingerprint is %s, not %s", got, goldenFingerprint)
	}
}

const goldenFingerprint = "aef23462c2b5e42a05ed0958fff0ed9f"

func TestFingerprintCoversNamesSizesTimesAndClasses(t *testing.T) {
	type sample struct {
		dir, name      string
		class          int
		size, modified int64
	}
	build := func(classes []string, root Directory, samples ...sample) [16]byte {
		b := NewBuilder(classes, nil)
		b.Directory(root)
		dir := ""
		for _, s := range samples {
			if s.dir != dir {
				b.Directory(Directory{
					Path:     s.dir,
					Class:    s.class,
					Modified: root.Modified,
					Settled:  root.Settled,
				})
				dir = s.dir
			}
			if s.name != "" {
				b.Sample(s.name, s.size, s.modified, 0)
			}
		}
		x, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return x.Fingerprint()
	}
	classes := []string{"a", "b"}
	one, two := sample{"a", "1", 0, 5, 6}, sample{"b", "2", 1, 7, 8}
	base := build(classes, Directory{Class: -1}, one, two)
	if base != build(classes, Directory{Class: -1, Modified: 9, Settled: true}, one,
		sample{dir: "a/empty"}, two) {
		t.Error("times of directories, or those without samples, change it")
	}
	seen := map[[16]byte]string{base: "the first"}
	for what, other := range map[string][16]byte{
		"a class's name":   build([]string{"a", "c"}, Directory{Class: -1}, one, two),
		"a class more":     build([]string{"a", "b", "c"}, Directory{Class: -1}, one, two),
		"a sample less":    build(classes, Directory{Class: -1}, one),
		"a sample's name":  build(classes, Directory{Class: -1}, one, sample{"b", "3", 1, 7, 8}),
		"a sample's size":  build(classes, Directory{Class: -1}, one, sample{"b", "2", 1, 6, 8}),
		"a sample's time":  build(classes, Directory{Class: -1}, one, sample{"b", "2", 1, 7, 9}),
		"a sample's class": build(classes, Directory{Class: -1}, one, sample{"b", "2", 0, 7, 8}),
		"a directory's path": build(classes, Directory{Class: -1}, one,
			sample{"b/x", "2", 1, 7, 8}),
		"where a name begins": build(classes, Directory{Class: -1}, one, sample{"b", "2", 1, 7, 8},
			sample{"b/x", "y", 1, 1, 1}),
	} {
		if before, ok := seen[other]; ok {
			t.Errorf("%s: the fingerprint is that of %s", what, before)
		}
		seen[other] = what
	}
}

// TestEncodedIndexDecodesToItself builds indexes at random and reads them back, some of them built
// with Copy.
func TestEncodedIndexDecodesToItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9\xc3\xa4._-]{1,12}x`)
		classes := rapid.SliceOfNDistinct(name, 0, 5, rapid.ID).Draw(t, "classes")
		b, again := NewBuilder(classes, nil), (*Builder)(nil)
		var names []string
		var sizes []int64
		var labels []int
		b.Directory(Directory{Class: -1})
		for class, c := range classes {
			for d := range rapid.IntRange(0, 3).Draw(t, "directories") {
				path := fmt.Sprintf("%s/%d", c, d)
				b.Directory(Directory{
					Path:     path,
					Class:    class,
					Modified: rapid.Int64().Draw(t, "modified"),
					Settled:  rapid.Bool().Draw(t, "settled"),
				})
				for _, n := range rapid.SliceOfN(name, 0, 5).Draw(t, "names") {
					size := rapid.OneOf(rapid.Int64Range(0, 200_000),
						rapid.Int64Range(0, 1<<40)).Draw(t, "size")
					b.Sample(n, size, rapid.Int64().Draw(t, "time"), 0)
					names = append(names, path+"/"+n)
					sizes = append(sizes, size)
					labels = append(labels, class)
				}
			}
		}
		x, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := x.Encode(&file); err != nil {
			t.Fatal(err)
		}
		decoded, err := decode(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		again = NewBuilder(classes, nil)
		for i, d := range decoded.Directories() {
			again.Copy(decoded, i, d)
		}
		copied, err := again.Build()
		if err != nil || !copied.Equal(x) || copied.Fingerprint() != x.Fingerprint() {
			t.Fatalf("a copy is not the same: %v", err)
		}
		for id := range names {
			if copied.Name(id) != names[id] || copied.Size(id) != sizes[id] ||
				copied.Label(id) != labels[id] {
				t.Fatalf("sample %d is %q, %d bytes, of class %d; not %q, %d, %d", id,
					copied.Name(id), copied.Size(id), copied.Label(id), names[id], sizes[id],
					labels[id])
			}
		}
		if copied.Len() != len(names) {
			t.Fatalf("%d samples, not %d", copied.Len(), len(names))
		}
	})
}

// sealed returns b with a valid checksum and length.
func sealed(b []byte) []byte {
	if len(b) < headerSize+checksumSize {
		return b
	}
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint64(b[16:], uint64(len(b)))
	body := b[:len(b)-checksumSize]
	binary.LittleEndian.PutUint64(b[len(body):], xxh3.Hash(body))
	return b
}

func TestDecodeRefusesDamagedFiles(t *testing.T) {
	good := encode(t, small(t))
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := decode(bad); !errors.Is(err, ErrIndex) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if _, err := decode(good[:i]); !errors.Is(err, ErrIndex) {
			t.Fatalf("cut off after %d bytes: %v", i, err)
		}
	}
	for i := range indexMagic {
		other := bytes.Clone(good)
		other[i] ^= 1
		if _, err := decode(sealed(other)); err == nil || !strings.Contains(err.Error(), "magic") {
			t.Errorf("byte %d of the magic number differs: %v", i, err)
		}
	}
	// A false length does not allocate memory.
	for _, field := range []int{16, 24, 32, 40, 48, 56, 64, 72, 80} {
		huge := bytes.Clone(good)
		binary.LittleEndian.PutUint64(huge[field:], 1<<62)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decode(huge)
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrIndex) ||
			taken > 1<<16 {
			t.Errorf("field %d: %v; %d bytes were taken", field, err, taken)
		}
	}
	later := bytes.Clone(good)
	later[8] += 2
	if _, err := decode(sealed(later)); err == nil ||
		!strings.Contains(err.Error(), "version 4, and this program reads versions 2 and 3") {
		t.Errorf("a later version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	good := encode(f, small(f))
	f.Add(good)
	f.Add(good[:len(good)-1])
	empty, err := func() (*Index, error) {
		b := NewBuilder(nil, nil)
		b.Directory(Directory{Class: -1})
		return b.Build()
	}()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encode(f, empty))
	f.Add(encode(f, smallRecords(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, file := range [][]byte{b, sealed(b)} {
			x, err := decode(file)
			if err != nil {
				if !errors.Is(err, ErrIndex) {
					t.Fatal(err)
				}
				continue
			}
			sum := int64(0)
			for id := range x.Len() {
				name := x.Name(id)
				if x.Fields() != nil {
					checkRecord(t, x, id)
				} else if !validPath(name) || x.Label(id) >= len(x.Classes()) {
					t.Fatalf("sample %d is %q of class %d", id, name, x.Label(id))
				}
				sum += x.Size(id)
			}
			if sum != x.Bytes() {
				t.Fatalf("%d bytes, not %d", sum, x.Bytes())
			}
			n := 0
			for _, size := range x.ClassSizes() {
				n += size
			}
			if n != x.Len() && x.Fields() == nil {
				t.Fatalf("the classes have %d samples of %d", n, x.Len())
			}
			_ = x.Statistics()
			if !bytes.Equal(encode(t, x), file) {
				t.Fatal("encoding it again gives other bytes")
			}
		}
	})
}
