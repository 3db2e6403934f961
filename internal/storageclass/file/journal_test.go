package file

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIndexLayout holds the layout of docs/FORMATS.md against a golden file.
func TestIndexLayout(t *testing.T) {
	fingerprint := [16]byte{0: 1, 15: 16}
	index := encodeHeader(fingerprint, 1000)
	want := []record{
		{id: 7, sum: 0xdeadbeef, offset: 0, length: 110_000},
		{id: 8, sum: 1, offset: 110_000, length: 1 << 40},
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
	end, fresh, err := readIndex(bytes.NewReader(golden), fingerprint, 1000, func(r record) { got = append(got, r) })
	if err != nil || fresh || end != int64(len(golden)) {
		t.Fatalf("end %d, fresh %v, %v", end, fresh, err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{})); diff != "" {
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
		end, fresh, err := readIndex(bytes.NewReader(index), [16]byte{0: 1, 15: 16}, 1000, func(record) {})
		if err != nil || end > int64(len(index)) || fresh != (end == 0) {
			t.Fatalf("end %d of %d, fresh %v, %v", end, len(index), fresh, err)
		}
	})
}
