package records

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
)

// requesting is a place that counts requests.
type requesting struct{ *counted }

func (requesting) Requests() source.Requests { return source.Requests{} }

// TestSamplesBesideOneAnother are read by one request, as if each were read alone.
func TestSamplesBesideOneAnother(t *testing.T) {
	root := t.TempDir()
	data := make([]byte, 8000)
	for i := range data {
		data[i] = byte(i*7 + i>>8)
	}
	must(t, os.WriteFile(filepath.Join(root, "0"), data, 0o644))
	must(t, os.WriteFile(filepath.Join(root, "1"), data, 0o644))
	d, err := directory.Open(root, directory.Options{})
	must(t, err)
	defer d.Close() //nolint:errcheck // it was only read
	b := source.NewRecordBuilder([]string{"a", "b"}, nil, nil)
	for _, name := range []string{"0", "1"} {
		o, err := d.Stat(t.Context(), name)
		must(t, err)
		b.Object(o)
	}
	missing := source.Range{Length: source.Missing}
	for _, ranges := range [][]source.Range{
		{in(0, 700, 100), in(0, 500, 99)}, // in the other order
		{missing, in(0, 1000, 50)},
		{in(0, 1250, 0), in(0, 1050, 200)},
		{in(0, 1200, 200), missing},          // overlaps
		{in(0, 1300, 200), in(1, 1300, 200)}, // in two objects
		{in(0, 2000, 0), missing},            // empty
	} {
		b.Add(source.Record{Ranges: ranges})
	}
	x, err := b.Build()
	must(t, err)
	c := &counted{Objects: d}
	s := New(requesting{c}, x)
	for id, want := range []source.Span{
		{Begin: 500, End: 800},
		{Begin: 1000, End: 1050},
		{Begin: 1050, End: 1250},
		{Begin: 1200, End: 1400},
		{},
		{},
	} {
		if at, ok := s.Span(id); ok != (want.End > 0) || ok && at != want {
			t.Errorf("sample %d lies at %v, %t; want %v", id, at, ok, want)
		}
		if at, ok := New(c, x).Span(id); ok != (want.End > 0) || ok && at != want {
			t.Errorf("of a file, sample %d lies at %v, %t; want %v", id, at, ok, want)
		}
	}
	s.covered = map[int]coverage{1: {}}
	if _, ok := s.Span(1); ok {
		t.Error("a sample that identifies the dataset is not read alone")
	}
	s.covered = nil
	var dsts, alone [][]byte
	for id := range 3 {
		dsts = append(dsts, bytes.Repeat([]byte{0xee}, int(x.Size(id))))
		alone = append(alone, make([]byte, x.Size(id)))
	}
	stamps, err := s.ReadRun(t.Context(), 0, dsts)
	must(t, err)
	if n := c.reads.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	if gaps := s.Requests().Gaps; gaps != 101+200 {
		t.Errorf("%d bytes between them", gaps)
	}
	for id := range 3 {
		stamp, err := s.Read(t.Context(), id, alone[id])
		if err != nil || stamp != stamps[id] || !bytes.Equal(alone[id], dsts[id]) {
			t.Errorf("sample %d: %v", id, err)
		}
	}
	overlap := [][]byte{make([]byte, x.Size(2)), make([]byte, x.Size(3))}
	if _, err := s.ReadRun(t.Context(), 2, overlap); err == nil {
		t.Error("samples that overlap are read together")
	}
}

// versioned is a place that counts requests, and whose answers say versions.
type versioned struct {
	requesting
	untagged bool
}

func (v *versioned) Versioned() bool { return !v.untagged }

// TestFieldsThatTheIndexHas are not read from a store whose objects have versions, unless nothing
// else of the sample is: then the version of its object would not be compared.
func TestFieldsThatTheIndexHas(t *testing.T) {
	root := t.TempDir()
	data := bytes.Repeat([]byte("0123456789"), 2000)
	must(t, os.WriteFile(filepath.Join(root, "0"), data, 0o644))
	d, err := directory.Open(root, directory.Options{})
	must(t, err)
	defer d.Close() //nolint:errcheck // it was only read
	b := source.NewRecordBuilder([]string{"jpg", "cls"}, nil, []string{"cls"})
	o, err := d.Stat(t.Context(), "0")
	must(t, err)
	o.Tag = [16]byte{1}
	b.Object(o)
	missing := source.Range{Length: source.Missing}
	for _, r := range []source.Record{
		{Ranges: []source.Range{in(0, 1000, 100), in(0, 2003, 1)}, Values: []string{"3"}},
		{Ranges: []source.Range{in(0, 3000, 100), in(0, 3105, 70)}, Values: []string{""}}, // too long
		{Ranges: []source.Range{in(0, 4000, 100), missing}, Values: []string{""}},
		{Ranges: []source.Range{missing, in(0, 5007, 1)}, Values: []string{"7"}},
		{Ranges: []source.Range{in(0, 6000, 100), in(0, 6200, 0)}, Values: []string{""}},
	} {
		b.Add(r)
	}
	x, err := b.Build()
	must(t, err)
	for _, untagged := range []bool{false, true} {
		c := &counted{Objects: untaggedObjects{d}}
		s := New(&versioned{requesting{c}, untagged}, x)
		for id, want := range []struct {
			gaps int64
			span source.Span
		}{
			{0, source.Span{Begin: 1000, End: 1100}},
			{5, source.Span{Begin: 3000, End: 3175}},
			{0, source.Span{Begin: 4000, End: 4100}},
			{0, source.Span{Begin: 5007, End: 5008}},
			{0, source.Span{Begin: 6000, End: 6100}},
		} {
			if untagged && id == 0 {
				want.gaps, want.span.End = 903, 2004
			}
			if untagged && id == 4 {
				want.gaps, want.span.End = 100, 6200
			}
			before := s.Requests().Gaps
			got := bytes.Repeat([]byte{0xee}, int(x.Size(id)))
			if _, err := s.Read(t.Context(), id, got); err != nil {
				t.Fatal(err)
			}
			for f, r := range x.Ranges(nil, id) {
				if r.Length == source.Missing {
					continue
				}
				is, want := x.Split(nil, id, got)[f], data[r.Offset:r.Offset+r.Length]
				if f == 1 && !untagged && r.Length == 1 && id == 0 {
					want = []byte("3")
				}
				if !bytes.Equal(is, want) {
					t.Errorf("untagged: %t: field %d of sample %d is %q", untagged, f, id, is)
				}
			}
			if gaps := s.Requests().Gaps - before; gaps != want.gaps {
				t.Errorf("untagged: %t: sample %d: %d bytes between, want %d", untagged, id, gaps,
					want.gaps)
			}
			if at, ok := s.Span(id); !ok || at != want.span {
				t.Errorf("untagged: %t: sample %d lies at %v, %t", untagged, id, at, ok)
			}
		}
	}
}

// untaggedObjects is a place of files that is asked for objects with tags.
type untaggedObjects struct{ *directory.Directory }

func (u untaggedObjects) Read(ctx context.Context, o *source.Object, offset int64, parts [][]byte,
) (source.Stamp, error) {
	plain := *o
	plain.Tag = [16]byte{}
	return u.Directory.Read(ctx, &plain, offset, parts)
}

// TestAMemberThatIsNotWanted is read with its neighbours from a file, and not from a store.
func TestAMemberThatIsNotWanted(t *testing.T) {
	root := t.TempDir()
	data := make([]byte, 200_000)
	for i := range data {
		data[i] = byte(i * 31 >> 3)
	}
	must(t, os.WriteFile(filepath.Join(root, "0"), data, 0o644))
	d, err := directory.Open(root, directory.Options{})
	must(t, err)
	defer d.Close() //nolint:errcheck // it was only read
	b := source.NewRecordBuilder([]string{"a", "b"}, nil, nil)
	o, err := d.Stat(t.Context(), "0")
	must(t, err)
	b.Object(o)
	gaps := []int64{512, storeGap, storeGap + 1, maxGap, maxGap + 1}
	for i, gap := range gaps {
		at := int64(i) * 20_000
		b.Add(source.Record{Ranges: []source.Range{in(0, at, 100), in(0, at+100+gap, 100)}})
	}
	x, err := b.Build()
	must(t, err)
	for _, stored := range []bool{false, true} {
		c := &counted{Objects: d}
		s, most := New(c, x), int64(maxGap)
		if stored {
			s, most = New(requesting{c}, x), storeGap
		}
		for id, gap := range gaps {
			before, got := c.reads.Load(), make([]byte, x.Size(id))
			_, err := s.Read(t.Context(), id, got)
			must(t, err)
			want := int64(1)
			if gap > most {
				want = 2
			}
			if n := c.reads.Load() - before; n != want {
				t.Errorf("stored: %t, %d bytes between: %d requests", stored, gap, n)
			}
			for f, r := range x.Ranges(nil, id) {
				if !bytes.Equal(x.Split(nil, id, got)[f], data[r.Offset:r.Offset+r.Length]) {
					t.Errorf("stored: %t: field %d of sample %d is wrong", stored, f, id)
				}
			}
			if _, ok := s.Span(id); ok != (gap <= most) {
				t.Errorf("stored: %t: a sample with %d bytes between may be read with others: %t", stored,
					gap, ok)
			}
		}
	}
}
