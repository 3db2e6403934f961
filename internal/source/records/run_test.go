package records

import (
	"bytes"
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
