package file

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// TestIndexMatchesGoldenFile checks the layout of docs/FORMATS.md.
func TestIndexMatchesGoldenFile(t *testing.T) {
	fingerprint := [16]byte{0: 1, 15: 16}
	index := Header(fingerprint, 1000)
	want := []Record{
		{
			ID:     7,
			Offset: 0,
			Length: 110_000,
			Origin: store.Origin{Digest: 0xdeadbeef, Directory: 0xfeed, Instance: 0xbead},
		},
		{ID: 8, Offset: 110_000, Length: 1 << 40, Origin: store.Origin{Digest: 1}},
		{ID: 7, Offset: 0, Length: Dropped},
	}
	for _, r := range want {
		index = r.AppendTo(index, fingerprint)
	}
	golden, err := os.ReadFile("testdata/index")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(index, golden) {
		t.Fatalf("the layout has changed:\n%x\n%x", index, golden)
	}
	var got []Record
	end, fresh, err := Read(bytes.NewReader(golden), fingerprint, 1000, func(r Record) {
		got = append(got, r)
	})
	if err != nil || fresh || end != int64(len(golden)) {
		t.Fatalf("end %d, fresh %v, %v", end, fresh, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// big is the system's disk with practically unlimited space.
type big struct{ disk.System }

func (big) Free(int) (free, total int64, err error) { return 1 << 40, 1 << 40, nil }

// TestOverlappingSamplesAreDropped opens an index whose records of drops were lost.
func TestOverlappingSamplesAreDropped(t *testing.T) {
	dir := t.TempDir()
	ds := store.Dataset{
		Fingerprint: [16]byte{1},
		Samples:     6,
		Size:        func(id int) int64 { return int64(10 * id) },
	}
	opened := filepath.Join(dir, "01000000000000000000000000000000")
	index := Header(ds.Fingerprint, ds.Samples)
	for _, r := range []Record{
		{ID: 5, Offset: 30, Length: 50},
		{ID: 1, Offset: 40, Length: 10},
		{ID: 2, Offset: 70, Length: 20},
		{ID: 3, Offset: 0, Length: 30},
		{ID: 4, Offset: 90, Length: 40},
		{ID: 0, Offset: 50},
	} {
		index = r.AppendTo(index, ds.Fingerprint)
	}
	if err := errors.Join(
		os.Mkdir(opened, 0o700),
		os.WriteFile(filepath.Join(opened, indexName), index, 0o600),
		os.WriteFile(filepath.Join(opened, dataName), make([]byte, 500), 0o600),
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
			store.Origin{Digest: digest.Of(make([]byte, 10*id))}); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(s.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// TestRecordsOfAnotherDatasetAreSkipped opens a store whose files show, from some record on, what
// those of another dataset's store held, as they may after a power failure.
func TestRecordsOfAnotherDatasetAreSkipped(t *testing.T) {
	mine, other := [16]byte{1}, [16]byte{2}
	index := Header(mine, 3)
	index = Record{ID: 0, Length: 10}.AppendTo(index, mine)
	index = Record{ID: 1, Offset: 10, Length: 10}.AppendTo(index, other)
	index = Record{ID: 2, Offset: 20, Length: 10}.AppendTo(index, mine)
	var got []uint32
	end, fresh, err := Read(bytes.NewReader(index), mine, 3, func(r Record) {
		got = append(got, r.ID)
	})
	if err != nil || fresh || end != int64(len(index)) {
		t.Fatalf("end %d, fresh %v, %v", end, fresh, err)
	}
	if diff := cmp.Diff([]uint32{0, 2}, got); diff != "" {
		t.Error(diff)
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
		end, fresh, err := Read(bytes.NewReader(index), [16]byte{0: 1, 15: 16}, 1000,
			func(Record) {})
		if err != nil || end > int64(len(index)) || fresh != (end == 0) {
			t.Fatalf("end %d of %d, fresh %v, %v", end, len(index), fresh, err)
		}
	})
}
