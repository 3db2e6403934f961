package file

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

// TestRecordOfAForm checks the layout of docs/FORMATS.md, and that versions without forms, which
// take all 8 bytes for the length, do not find the sample's size there.
func TestRecordOfAForm(t *testing.T) {
	want := Record{
		ID: 7, Offset: 5, Length: 110_000, Kind: 4, Sum: 0xcafe,
		Origin: store.Origin{Digest: 0xdeadbeef, Directory: 0xfeed, Instance: 0xbead},
	}
	encoded := want.AppendTo(nil, [16]byte{1})
	const golden = "07000000efbeadde0500000000000000b0ad010000000004edfe0000adbe0000feca0000"
	if got := hex.EncodeToString(encoded[:36]); got != golden {
		t.Errorf("the layout has changed: %s", got)
	}
	if got, ok := decodeRecord(encoded, [16]byte{1}); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	if n := binary.LittleEndian.Uint64(encoded[16:]); n <= 1<<40 {
		t.Errorf("another version finds a length of %d", n)
	}
}

// TestAlteredFormIsDropped checks that a form whose bytes were altered, or cut off, on the disk is
// not returned, now or after the store was opened again, and that the sample can be put again.
func TestAlteredFormIsDropped(t *testing.T) {
	ds := storetest.Uniform(1, 3, 100)
	for _, cut := range []bool{false, true} {
		dir := t.TempDir()
		c, err := New(Options{Dir: dir, Capacity: 1000, Reserve: 1, Disk: big{}})
		if err != nil {
			t.Fatal(err)
		}
		s := storetest.Open(t, c, ds, 300)
		storetest.Put(t, s, ds, 0, 1)
		p := s.(store.FormReader)
		if err := p.Replace(1, 3, crashForm(ds, 1)); err != nil {
			t.Fatal(err)
		}
		info, _ := p.FormInfo(1)
		path := filepath.Join(dir, storeName(ds.Fingerprint), dataName)
		if cut {
			err = os.Truncate(path, 250)
		} else {
			var f *os.File
			if f, err = os.OpenFile(path, os.O_WRONLY, 0); err == nil {
				_, err = f.WriteAt([]byte("?"), 250)
				err = errors.Join(err, f.Close())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ReadForm(1, info, make([]byte, info.Bytes)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("cut: %v: got %v, want ErrCorrupt", cut, err)
		}
		storetest.Check(t, s, ds, 0)
		if f := p.Formed(); f != (store.Formed{}) {
			t.Errorf("%+v are held", f)
		}
		storetest.Put(t, s, ds, 1)
		storetest.Close(t, s)
		s = storetest.Open(t, c, ds, 300)
		storetest.Check(t, s, ds, 0, 1)
		storetest.Close(t, s, c)
	}
}
