package lmdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// patch is a change of a file: bytes at an offset.
type patch struct {
	at int
	to []byte
}

func number(at int, v uint64, size int) patch {
	return patch{at, binary.LittleEndian.AppendUint64(nil, v)[:size]}
}

// both returns the change in both meta pages.
func both(p patch) []patch { return []patch{p, {p.at + 512, p.to}} }

// numbered returns n records in order, each with a value.
func numbered(n int, value string) (records []record) {
	for i := range n {
		records = append(records, record{key: fmt.Sprintf("%04d", i), value: []byte(value)})
	}
	return records
}

// TestBadFilesAreRefused with the place, the reason and what to do.
func TestBadFilesAreRefused(t *testing.T) {
	one := built(512, record{key: "a", value: []byte("b")}, record{key: "c", value: []byte("d")})
	deep := built(512, numbered(600, "value")...)
	big := built(512, record{key: "a", value: make([]byte, 3000)})
	root := int(u64(deep[128:])) * 512
	leaf := 2 * 512
	firstNode := func(data []byte, page int) int { return page + int(u16(data[page+headerSize:])) }
	node, value := firstNode(one, leaf), firstNode(big, 8*512)
	child := firstNode(deep, root)
	for name, c := range map[string]struct {
		data    []byte
		patches []patch
		want    string
	}{
		"empty":      {nil, nil, "byte 0: the file is cut off: it has 0 bytes"},
		"short":      {one[:600], nil, "byte 512: the file is cut off"},
		"text":       {bytes.Repeat([]byte("text "), 500), nil, "byte 0: this is no meta page of LMDB"},
		"one meta":   {one, []patch{number(512+16, 0, 4)}, "byte 512: this is no meta page of LMDB"},
		"32 bits":    {one, []patch{number(12, magic, 4), number(16, 0, 4)}, "by a 32-bit program"},
		"big-endian": {one, []patch{{16, []byte{0xbe, 0xef, 0xc0, 0xde}}}, "on a big-endian machine"},
		"version 2":  {one, both(number(20, 2, 4)), "the version 2, as files of LMDB 1.0, encrypted"},
		"page size":  {one, both(number(40, 513, 4)), "its pages have 513 bytes"},
		"tiny pages": {one, both(number(40, 256, 4)), "its pages have 256 bytes"},
		"huge pages": {one, both(number(40, 1<<31, 4)), "its pages have 2147483648 bytes"},
		"two sizes":  {one, []patch{number(512+40, 1024, 4)}, "its meta pages differ in the size of"},
		"no meta":    {one, []patch{number(10, leafPage, 2)}, "byte 0: this is no meta page"},
		"last page":  {one, both(number(136, 1<<64-1, 8)), "this is no meta page"},
		"dupsort":    {one, both(number(92, sortedDups, 2)), "several values per key (DUPSORT)"},
		"flags":      {one, both(number(92, 0x40, 2)), "its flags 0x40 are not those of LMDB 0.9"},
		"depth 0":    {one, both(number(94, 0, 2)), "its tree has 0 levels"},
		"depth 65":   {one, both(number(94, 65, 2)), "its tree has 65 levels"},
		"too deep":   {one, both(number(94, 2, 2)), "byte 1024: this is not the page"},
		"too flat":   {deep, both(number(94, 1, 2)), "this is not the page that the tree has here"},
		"count":      {one, both(number(120, 3, 8)), "the tree has 2 records, and should have 3"},
		"count of 0": {one, both(number(128, noPage, 8)), "it has 2 records and no page"},
		"root":       {one, both(number(128, 3, 8)), "pages 3 to 3 are in the tree, and the file has"},
		"meta root":  {one, both(number(128, 1, 8)), "pages 1 to 1 are in the tree"},
		"cut":        {deep[:len(deep)-512], nil, "the file is cut off: page"},
		"cut value":  {big[:2048], nil, "the file is cut off: page 8 is in use"},
		"cut in a value": {
			big, append(both(number(136, 99, 8)), number(value+9, 7, 8)),
			"the file is cut off: page 12 is in use, and ends after its 4608 bytes",
		},
		"page kind":  {one, []patch{number(leaf+10, leafPage|fixedPage, 2)}, "byte 1024: this is not"},
		"page":       {one, []patch{number(leaf, 7, 8)}, "byte 1024: this is not the page"},
		"lower":      {one, []patch{number(leaf+12, 600, 2)}, "byte 1024: this is not the page"},
		"upper":      {one, []patch{number(leaf+14, 513, 2)}, "byte 1024: this is not the page"},
		"no entries": {one, []patch{number(leaf+12, headerSize, 2)}, "byte 1024: this is not the page"},
		"pointer":    {one, []patch{number(leaf+16, 511, 2)}, "an entry lies outside of its page"},
		"low":        {one, []patch{number(leaf+16, 16, 2)}, "an entry lies outside of its page"},
		"key size":   {one, []patch{number(node+6, 9999, 2)}, "an entry lies outside"},
		"size":       {one, []patch{number(node, 9999, 4)}, "an entry lies outside"},
		"no key":     {one, []patch{number(node+6, 0, 2)}, `the key "" of entry 0 is not`},
		"order":      {one, []patch{{node + 8, []byte("x")}}, `key "c" of entry 1 is not in`},
		"twice":      {one, []patch{{node + 8, []byte("c")}}, `key "c" of entry 1 is not in`},
		"dup":        {one, []patch{number(node+4, 4, 2)}, "its flags 0x4 are not those of"},
		"big":        {big, []patch{number(value+9, 10, 8)}, `byte 4096: the key "a": pages 10 to 15`},
		"big meta":   {big, []patch{number(value+9, 1, 8)}, `the key "a": pages 1 to 6 are`},
		"big huge":   {big, []patch{number(value+9, 1<<63, 8)}, "pages 92233720"},
		"child":      {deep, []patch{number(child, 1<<31, 4)}, "pages 2147483648"},
		"cycle":      {deep, []patch{number(child, uint64(root/512), 4)}, "not in order"},
		"leaf twice": {deep, []patch{{firstNode(deep, 3*512) + 8, []byte("0000")}}, "is not in order"},
	} {
		data := bytes.Clone(c.data)
		for _, p := range c.patches {
			copy(data[p.at:], p.to)
		}
		refused(t, name, data, values(), c.want)
	}
	t.Run("named", testDatabases)
	for _, key := range []string{"none", "_1", "/1"} {
		data := built(512, record{key: key, value: []byte("x")})
		refused(t, key, data, values(LabelKey, "prefix"),
			fmt.Sprintf("byte 1024: the key %q: nothing precedes a _ or / in it", key))
	}
}

func refused(t *testing.T, name string, data []byte, opts formats.Options, want string) {
	t.Helper()
	o := &memory{t: t, files: map[string][]byte{"data.mdb": data}}
	x, err := Index(t.Context(), o, []string{"data.mdb"}, opts)
	var e *Error
	var read *objects.Error
	if err == nil || !strings.Contains(err.Error(), want) ||
		!errors.As(err, &e) && !errors.As(err, &read) {
		t.Errorf("%s: %v, %v; want %q", name, x, err, want)
	}
}

// testDatabases has named databases that are not chosen, not there, or cannot be read.
func testDatabases(t *testing.T) {
	named := golden(t, "named")
	refused(t, "not chosen", named, values(), "choose one with database: images or label/ü")
	refused(t, "unknown", named, values(DatabaseKey, "x"), "no database x; it has images and label/ü")
	refused(t, "none", golden(t, "tiny"), values(DatabaseKey, "x"),
		"it has no named databases, and so none called x; leave database out")
	refused(t, "dupsort", golden(t, "dups"), values(DatabaseKey, "d"),
		"database d: it has several values per key (DUPSORT)")
	_, err := Index(t.Context(), nil, nil, values(DecoderKey, "datum", LabelKey, "prefix"))
	if err == nil || !strings.Contains(err.Error(), "a Datum has a label of its own") {
		t.Error(err)
	}
}

// FuzzIndex changes data files: an index is made or an error returned, and nothing is read outside
// of the file.
func FuzzIndex(f *testing.F) {
	f.Add(built(512, numbered(40, "value")...), "", false)
	f.Add(built(512, numbered(3, strings.Repeat("x", 600))...), "", false)
	f.Add(built(512, record{key: "1", value: sample(3, 2, 1, 7, []byte("data"))}), "", true)
	b := &builder{size: 512, pages: make([][]byte, 2)}
	inner := b.tree(integerKeys, []record{{key: "\x01\x00\x00\x00", value: []byte("x")}})
	f.Add(built(512, record{key: "n", value: inner, flags: subNode}), "n", false)
	f.Fuzz(func(t *testing.T, data []byte, database string, datum bool) {
		opts := values(DatabaseKey, database)
		if datum {
			opts = values(DatabaseKey, database, DecoderKey, caffe)
		}
		o := &memory{t: t, files: map[string][]byte{"data.mdb": data}}
		x, err := Index(t.Context(), o, []string{"data.mdb"}, opts)
		if err != nil {
			return
		}
		for id := range x.Len() {
			for _, r := range x.Ranges(nil, id) {
				if r.Length >= 0 && r.Offset+r.Length > int64(len(data)) {
					t.Fatalf("record %d: %+v of %d bytes", id, r, len(data))
				}
			}
		}
	})
}
