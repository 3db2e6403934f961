package file

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/file/disk"
)

// TestIndexMatchesGoldenFile checks the layout of docs/FORMATS.md.
func TestIndexMatchesGoldenFile(t *testing.T) {
	fingerprint := [16]byte{0: 1, 15: 16}
	index := encodeHeader(fingerprint, 1000)
	want := []record{
		{
			id:     7,
			offset: 0,
			length: 110_000,
			origin: storageclass.Origin{Digest: 0xdeadbeef, Place: 0xfeed, Instance: 0xbead},
		},
		{id: 8, offset: 110_000, length: 1 << 40, origin: storageclass.Origin{Digest: 1}},
		{id: 7, offset: 0, length: dropped},
	}
	for _, r := range want {
		index = r.appendTo(index)
	}
	golden, err := os.ReadFile("testdata/index")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(index, golden) {
		t.Fatalf("the layout has changed:\n%x\n%x", index, golden)
	}
	var got []record
	end, fresh, err := readIndex(bytes.NewReader(golden), fingerprint, 1000, func(r record) {
		got = append(got, r)
	})
	if err != nil || fresh || end != int64(len(golden)) {
		t.Fatalf("end %d, fresh %v, %v", end, fresh, err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{})); diff != "" {
		t.Error(diff)
	}
}

// big is the system's disk with practically unlimited space.
type big struct{ disk.System }

func (big) Free(int) (free, total int64, err error) { return 1 << 40, 1 << 40, nil }

// TestOverlappingSamplesAreDropped opens an index whose records of drops were lost.
func TestOverlappingSamplesAreDropped(t *testing.T) {
	dir := t.TempDir()
	ds := storageclass.Dataset{
		Fingerprint: [16]byte{1},
		Samples:     6,
		Size:        func(id int) int64 { return int64(10 * id) },
	}
	store := filepath.Join(dir, "01000000000000000000000000000000")
	index := encodeHeader(ds.Fingerprint, ds.Samples)
	for _, r := range []record{
		{id: 5, offset: 30, length: 50},
		{id: 1, offset: 40, length: 10},
		{id: 2, offset: 70, length: 20},
		{id: 3, offset: 0, length: 30},
		{id: 4, offset: 90, length: 40},
		{id: 0, offset: 50},
	} {
		index = r.appendTo(index)
	}
	if err := errors.Join(
		os.Mkdir(store, 0o700),
		os.WriteFile(filepath.Join(store, indexName), index, 0o600),
		os.WriteFile(filepath.Join(store, dataName), make([]byte, 500), 0o600),
		os.WriteFile(filepath.Join(dir, markerName), []byte(markerText), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Dir: dir, Disk: big{}, Warn: func(m string) { t.Error(m) }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Open(ds, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int32{3, 4, 0}, s.Held()); diff != "" {
		t.Error(diff)
	}
	if _, used := s.Capacity(); used != 70 {
		t.Errorf("%d bytes in use, want 70", used)
	}
	for id := range 6 { // the lost samples fit into the gaps
		if err := s.Put(id, make([]byte, 10*id),
			storageclass.Origin{Digest: digest.Of(make([]byte, 10*id))}); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(s.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

func FuzzReadIndex(f *testing.F) {
	golden, err := os.ReadFile("testdata/index")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(golden[:90])
	f.Fuzz(func(t *testing.T, index []byte) {
		end, fresh, err := readIndex(bytes.NewReader(index), [16]byte{0: 1, 15: 16}, 1000,
			func(record) {})
		if err != nil || end > int64(len(index)) || fresh != (end == 0) {
			t.Fatalf("end %d of %d, fresh %v, %v", end, len(index), fresh, err)
		}
	})
}
