package records

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
	"github.com/hdmlp/hdmlp/internal/source/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in returns a range.
func in(object int, offset, length int64) source.Range {
	return source.Range{Object: object, Offset: offset, Length: length}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestConformance has the samples of a class in one file, one after another.
func TestConformance(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, samples []sourcetest.Sample) sourcetest.Fixture {
		w := &written{files: map[string][]byte{}}
		for _, s := range samples {
			w.files[s.Class+".shard"] = append(w.files[s.Class+".shard"], s.Data...)
		}
		d, classes := w.write(t), classesOf(samples)
		b := source.NewRecordBuilder([]string{"jpg"}, classes, nil)
		numbers := map[string]int{}
		for _, class := range classes {
			o, err := d.Stat(t.Context(), class+".shard")
			must(t, err)
			numbers[class] = b.Object(o)
		}
		at := map[string]int64{}
		for _, s := range samples {
			class := 0
			for classes[class] != s.Class {
				class++
			}
			n := int64(len(s.Data))
			b.Add(source.Record{Key: s.Name, Class: class, Ranges: []source.Range{
				{Object: numbers[s.Class], Offset: at[s.Class], Length: n},
			}})
			at[s.Class] += n
		}
		x, err := b.Build()
		must(t, err)
		return sourcetest.Fixture{
			Source: New(d, x), Index: x, Shared: true,
			Damage: func(id int, fault sourcetest.Fault) bool {
				return w.damage(t, samples[id].Class+".shard", fault)
			},
		}
	})
}

// counted counts the calls of objects.
type counted struct {
	objects.Objects
	reads, stats atomic.Int64
}

func (c *counted) Read(ctx context.Context, o *source.Object, offset int64, parts [][]byte,
) (source.Stamp, error) {
	c.reads.Add(1)
	return c.Objects.Read(ctx, o, offset, parts)
}

func (c *counted) Stat(ctx context.Context, name string) (source.Object, error) {
	c.stats.Add(1)
	return c.Objects.Stat(ctx, name)
}

// TestSamplesAreTheirFieldsPacked reads random records into memory that holds other bytes.
func TestSamplesAreTheirFieldsPacked(t *testing.T) {
	root := t.TempDir()
	files := [][]byte{make([]byte, 300_000), make([]byte, 1000)}
	for i, data := range files {
		for j := range data {
			data[j] = byte(j*7 + j>>8 + i)
		}
		must(t, os.WriteFile(filepath.Join(root, fmt.Sprint(i)), data, 0o644))
	}
	d, err := directory.Open(root, directory.Options{})
	must(t, err)
	defer d.Close() //nolint:errcheck // it was only read
	rapid.Check(t, func(t *rapid.T) {
		fields := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "fields")]
		b := source.NewRecordBuilder(fields, nil, nil)
		for i, data := range files {
			b.Object(source.Object{Name: fmt.Sprint(i), Size: int64(len(data))})
		}
		record := source.Record{Key: "k"}
		for range fields {
			r := source.Range{Length: source.Missing}
			if len(record.Ranges) == 0 || rapid.IntRange(0, 4).Draw(t, "there") > 0 {
				r.Object = rapid.IntRange(0, 1).Draw(t, "object")
				size := int64(len(files[r.Object]))
				r.Offset = rapid.Int64Range(0, size).Draw(t, "offset")
				r.Length = rapid.Int64Range(0, min(size-r.Offset, 500)).Draw(t, "length")
			}
			record.Ranges = append(record.Ranges, r)
		}
		b.Add(record)
		x, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for _, r := range record.Ranges {
			if r.Length != source.Missing {
				want = append(want, make([]byte, -len(want)&(source.Align-1))...)
				want = append(want, files[r.Object][r.Offset:r.Offset+r.Length]...)
			}
		}
		got := bytes.Repeat([]byte{0xee}, len(want))
		s := New(d, x)
		stamp, err := s.Read(context.Background(), 0, got)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%+v: %v", record.Ranges, err)
		}
		if asked, err := s.Stat(context.Background(), 0); err != nil || asked != stamp {
			t.Fatalf("stamp %x when read, %x when asked: %v", stamp, asked, err)
		}
	})
}

// TestNeighboursAreOneRequest, in any order, and no others.
func TestNeighboursAreOneRequest(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "0"), make([]byte, 1<<20), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "1"), make([]byte, 1<<20), 0o644))
	d, err := directory.Open(root, directory.Options{})
	must(t, err)
	c := &counted{Objects: d}
	defer c.Close() //nolint:errcheck // it was only read
	missing := source.Range{Length: source.Missing}
	for _, v := range []struct {
		ranges   []source.Range
		requests int64
	}{
		{[]source.Range{in(0, 512, 100)}, 1},
		{[]source.Range{in(0, 512, 100), in(0, 1536, 9)}, 1},
		{[]source.Range{in(0, 512, 100), in(0, 612, 9)}, 1},
		{[]source.Range{in(0, 512, 100), missing, in(0, 1536, 9)}, 1},
		{[]source.Range{missing, in(0, 512, 100), in(0, 1536, 9)}, 1},
		{[]source.Range{in(0, 512, 100), in(0, 612+maxGap, 9)}, 1},
		{[]source.Range{in(0, 512, 100), in(0, 613+maxGap, 9)}, 2},
		{[]source.Range{in(0, 1536, 9), in(0, 512, 100)}, 1},
		{[]source.Range{in(0, 512, 100), in(1, 1536, 9)}, 2},
		{[]source.Range{in(0, 512, 100), in(0, 600, 9)}, 2},
	} {
		b := source.NewRecordBuilder([]string{"a", "b", "c"}[:len(v.ranges)], nil, nil)
		b.Object(source.Object{Name: "0", Size: 1 << 20})
		b.Object(source.Object{Name: "1", Size: 1 << 20})
		b.Add(source.Record{Ranges: v.ranges})
		x, err := b.Build()
		must(t, err)
		c.reads.Store(0)
		_, err = New(c, x).Read(t.Context(), 0, make([]byte, x.Size(0)))
		must(t, err)
		if n := c.reads.Load(); n != v.requests {
			t.Errorf("%+v: %d requests, not %d", v.ranges, n, v.requests)
		}
	}
}

// TestAnObjectIsAskedOnce, until it is doubted.
func TestAnObjectIsAskedOnce(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "0")
	must(t, os.WriteFile(path, make([]byte, 4096), 0o644))
	d, err := directory.Open(root, directory.Options{})
	must(t, err)
	c := &counted{Objects: d}
	b := source.NewRecordBuilder([]string{"a"}, nil, nil)
	o, err := d.Stat(t.Context(), "0")
	must(t, err)
	b.Object(o)
	for i := range 100 {
		b.Add(source.Record{Ranges: []source.Range{in(0, int64(i), 1)}})
	}
	x, err := b.Build()
	must(t, err)
	s := New(c, x)
	defer s.Close() //nolint:errcheck // it was only read
	for id := range x.Len() {
		stamp, err := s.Stat(t.Context(), id)
		if err != nil || stamp != o.Stamp {
			t.Fatal(stamp, err)
		}
	}
	if n := c.stats.Load(); n != 1 {
		t.Errorf("%d questions", n)
	}
	must(t, os.WriteFile(path, make([]byte, 4097), 0o644))
	s.Doubt()
	for id := range x.Len() {
		if _, err := s.Stat(t.Context(), id); err == nil {
			t.Fatal("a file that was written is not noticed")
		}
	}
	if n := c.stats.Load(); n != 2 {
		t.Errorf("%d questions", n)
	}
}

func TestPathsOfSamples(t *testing.T) {
	d, err := directory.Open(t.TempDir(), directory.Options{})
	must(t, err)
	b := source.NewRecordBuilder([]string{"jpg", "cls"}, nil, nil)
	shard, file := b.Object(source.Object{Name: "a.tar", Size: 4096}),
		b.Object(source.Object{Name: "c/b.jpg", Size: 10})
	b.Add(source.Record{Key: "x/1", Ranges: []source.Range{
		{Length: source.Missing}, in(shard, 1536, 3),
	}})
	b.Add(source.Record{Key: "c/b.jpg", Ranges: []source.Range{
		in(file, 0, 10), {Length: source.Missing},
	}})
	x, err := b.Build()
	must(t, err)
	s := New(d, x)
	defer s.Close() //nolint:errcheck // it was not read
	for id, want := range []string{d.Path("a.tar") + ", x/1.cls, byte 1536", d.Path("c/b.jpg")} {
		if got := s.Path(id); got != want {
			t.Errorf("sample %d is in %q, not %q", id, got, want)
		}
	}
}
