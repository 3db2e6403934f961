package tar

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory are archives in memory.
type memory struct {
	objects.Objects // its other methods are not called
	files           map[string][]byte
	bytes           atomic.Int64 // that were read
	reads           atomic.Int64
	ahead           atomic.Int64 // calls of Ahead

	mu    sync.Mutex     // guards the following
	pages map[int64]bool // that reads touched, of all archives
}

func (o *memory) Ahead(*source.Object, int64, int64) { o.ahead.Add(1) }

// touch notes the pages of a read.
func (o *memory) touch(offset int64, parts [][]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pages == nil {
		o.pages = map[int64]bool{}
	}
	end := offset
	for _, p := range parts {
		end += int64(len(p))
	}
	for page := offset / window; page*window < end; page++ {
		o.pages[page] = true
	}
}

func (o *memory) Path(name string) string { return "/data/" + name }

func (o *memory) Stat(_ context.Context, name string) (source.Object, error) {
	data, ok := o.files[name]
	if !ok {
		return source.Object{}, &objects.Error{Path: o.Path(name), Kind: source.ErrMissing}
	}
	return source.Object{Name: name, Size: int64(len(data)), Stamp: 7}, nil
}

func (o *memory) Read(ctx context.Context, object *source.Object, offset int64, parts [][]byte,
) (source.Stamp, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	o.reads.Add(1)
	o.touch(offset, parts)
	data := o.files[object.Name][offset:]
	for _, p := range parts {
		if copy(p, data) < len(p) {
			return 0, &objects.Error{Path: o.Path(object.Name), Kind: source.ErrShort}
		}
		data = data[len(p):]
		o.bytes.Add(int64(len(p)))
	}
	return 7, nil
}

// entry is a member of an archive that a test writes.
type entry struct {
	name string
	data string
}

// archive writes an archive.
func archive(t testing.TB, format tar.Format, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.data)), Mode: 0o644, Format: format}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func values(fields ...string) formats.Options {
	v := option.Values{ValuesKey: []string{"cls"}}
	if fields != nil {
		v[FieldsKey] = fields
	}
	return formats.Options{Values: v}
}

// shown returns an index's samples in words: key, the first field's contents and so on.
func shown(t testing.TB, o *memory, x *source.Index) (lines []string) {
	t.Helper()
	for id := range x.Len() {
		line := fmt.Sprintf("%q", x.Name(id))
		for f, r := range x.Ranges(nil, id) {
			if r.Length == source.Missing {
				continue
			}
			data := o.files[x.Object(r.Object).Name][r.Offset:][:r.Length]
			line += fmt.Sprintf(" %s=%q", x.Fields()[f], data)
		}
		for c, name := range x.Columns() {
			if v := x.Value(c, id); v != "" {
				line += fmt.Sprintf(" [%s %q]", name, v)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// TestSamplesAreThoseOfWebdataset has names, each of which webdataset 1.0.2 gave this key and
// field.
func TestSamplesAreThoseOfWebdataset(t *testing.T) {
	long := strings.Repeat("d/", 60) + "ü"
	for _, format := range []tar.Format{tar.FormatPAX, tar.FormatGNU} {
		o := &memory{files: map[string][]byte{
			"0.tar": archive(t, format, []entry{
				{"__meta__", "x"},
				{"__dir__/a.jpg", "x"},
				{"README", "x"},
				{"a/1.JPG", "image"},
				{"a/1.seg.png", "mask"},
				{"a/1.cls", "3"},
				{".hidden", "x"},
				{"a.b/2.jpg", strings.Repeat("y", 5000)},
				{"a.b/2.cls", strings.Repeat("9", 65)},
				{long + ".jpg", ""},
				{"dir/.jpg", "in dir"},
			}...),
			"1.tar": archive(t, format, entry{"a/1.png", "other"}),
		}}
		x, err := Index(t.Context(), o, []string{"1.tar", "0.tar"}, values())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{
			`"a/1" png="other"`,
			`"a/1" jpg="image" seg.png="mask" cls="3" [cls "3"]`,
			fmt.Sprintf(`"a.b/2" jpg=%q cls=%q`, strings.Repeat("y", 5000),
				strings.Repeat("9", 65)),
			fmt.Sprintf(`%q jpg=""`, long),
			`"dir/" jpg="in dir"`,
		}, shown(t, o, x)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", format, diff)
		}
	}
}

// TestFieldsAreChosenNamedAndOrdered by alternatives.
func TestFieldsAreChosenNamedAndOrdered(t *testing.T) {
	o := &memory{files: map[string][]byte{"0": archive(t, tar.FormatUSTAR, []entry{
		{"1.png", "p1"},
		{"1.cls", "1"},
		{"1.jpg", "j1"},
		{"2.json", "{}"},
		{"2.png", "p2"},
	}...)}}
	x, err := Index(t.Context(), o, []string{"0"}, values("cls", "JPG;png"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		`"1" cls="1" JPG;png="j1" [cls "1"]`, `"2" JPG;png="p2"`,
	}, shown(t, o, x)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for fields, want := range map[string]string{
		"txt":         `the sample has none of the fields txt; it has png, cls, jpg`,
		"jpg,png;jpg": `"jpg" is in "jpg" and in "png;jpg"`,
		"jpg;":        "a field without a name",
	} {
		_, err := Index(t.Context(), o, []string{"0"}, values(strings.Split(fields, ",")...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

// TestBadArchivesAreRefused, with the place and what to do.
func TestBadArchivesAreRefused(t *testing.T) {
	good := archive(t, tar.FormatUSTAR, entry{"1.jpg", strings.Repeat("x", 700)},
		entry{"1.cls", "0"}, entry{"2.jpg", "y"})
	with := func(kind byte, link string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		h := &tar.Header{Typeflag: kind, Name: "1.jpg", Linkname: link}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	changed := func(at int, to string) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		return b
	}
	resealed := func(at int, to string) []byte {
		b := changed(at, to)
		seal(b)
		return b
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":           {nil, "/data/0, byte 0: the file is empty"},
		"text":            {bytes.Repeat([]byte("text "), 200), "no header of a tar file"},
		"short":           {[]byte("x"), "the archive is cut off: 512 bytes are needed, and 1 follow"},
		"gzip":            {changed(0, "\x1f\x8b\x08"), "it is compressed (gzip)"},
		"zstd":            {changed(0, "\x28\xb5\x2f\xfd"), "it is compressed (zstd)"},
		"a flipped bit":   {changed(5, "\x01"), "byte 0: this is no header"},
		"a later one":     {changed(1536+5, "\x01"), "byte 1536: this is no header"},
		"cut in contents": {good[:1000], "1.jpg: the archive is cut off: the member has 700 bytes"},
		"cut in a header": {good[:1600], "byte 1536: the archive is cut off"},
		"a lying size":    {resealed(124, "77777777777"), "cut off: the member has 8589934591"},
		"no size":         {resealed(124, "9999"), "its size is invalid"},
		"a negative size": {resealed(124, "\xff\xff\xff\xff"), "its size is invalid: it is negative"},
		"a huge size":     {resealed(124, "\xbf"+strings.Repeat("\xff", 11)), "more than 2^63"},
		"a hard link":     {with(tar.TypeLink, "2.jpg"), "it is a link"},
		"a symbolic link": {with(tar.TypeSymlink, "x"), "it is a link"},
		"a device":        {with(tar.TypeChar, ""), "it is no file, but of the type '3'"},
		"a FIFO":          {with(tar.TypeFifo, ""), "of the type '6'"},
		"above": {
			archive(t, tar.FormatUSTAR, entry{"../1.jpg", "x"}), "leads out of the archive",
		},
		"a name's end":     {archive(t, tar.FormatUSTAR, entry{"1.", "x"}), "ends with a dot"},
		"no samples":       {archive(t, tar.FormatUSTAR, entry{"1", "x"}), "there are no samples"},
		"joined":           {append(bytes.Clone(good), good...), "there is more after the end"},
		"a GNU sparse one": {resealed(156, "S"), "1.jpg: it is sparse"},
		"a PAX sparse one": {archiveOfSparse(t), "it is sparse"},
		"a field twice": {
			archive(t, tar.FormatUSTAR, entry{"1.jpg", "x"}, entry{"1.JPG", "y"}),
			`byte 1024, 1.JPG: the sample "1" has the field "jpg" twice: at byte 512 and at byte 1536`,
		},
		"a key again": {
			archive(t, tar.FormatUSTAR, []entry{{"1.jpg", "x"}, {"2.jpg", "y"}, {"1.cls", "z"}}...),
			`byte 2048, 1.cls: the key "1" was already at byte 512, with others between`,
		},
		"a name without a member": {
			nameAlone(t), "the archive is cut off after the name of a member",
		},
	} {
		o := &memory{files: map[string][]byte{"0": c.data}}
		x, err := Index(t.Context(), o, []string{"0"}, values())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", name, x, err, c.want)
		}
	}
}

// TestTheFirstOfSeveralFaultsIsReported: whichever shard is read first.
func TestTheFirstOfSeveralFaultsIsReported(t *testing.T) {
	o := &memory{files: map[string][]byte{
		"0": archive(t, tar.FormatUSTAR, entry{"1.jpg", "x"}),
	}}
	names := []string{"0"}
	for i := range 40 {
		names = append(names, strconv.Itoa(1+i))
	}
	for range 3000 {
		_, err := Index(t.Context(), o, names, values())
		if e := (*objects.Error)(nil); !errors.As(err, &e) || e.Path != "/data/1" {
			t.Fatal(err)
		}
	}
}

// archiveOfSparse returns an archive as GNU tar --format=pax --sparse writes it.
func archiveOfSparse(t *testing.T) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	records := paxRecord("GNU.sparse.major=1") + paxRecord("GNU.sparse.name=1.jpg")
	if err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: "x/1.jpg", Size: 3, Format: tar.FormatUSTAR,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "abc"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return append(extended(records), b.Bytes()...)
}

func paxRecord(record string) string {
	n := len(record) + 2 // a space and a line break
	for len(fmt.Sprint(n))+len(record)+2 != n {
		n = len(fmt.Sprint(n)) + len(record) + 2
	}
	return fmt.Sprintf("%d %s\n", n, record)
}

// extended returns an extended header with these records.
func extended(records string) []byte {
	header := make([]byte, blockSize)
	copy(header, "pax")
	copy(header[124:], fmt.Sprintf("%011o", len(records)))
	header[156] = typePAX
	copy(header[257:], "ustar\x0000")
	seal(header)
	body := make([]byte, padded(int64(len(records))))
	copy(body, records)
	return append(header, body...)
}

func nameAlone(t *testing.T) []byte {
	return append(archive(t, tar.FormatUSTAR, entry{"1.jpg", "x"})[:1024],
		append(extended(paxRecord("path=2.jpg")), make([]byte, 1024)...)...)
}

// TestMembersAreThoseOfArchiveTar compares the walk with the standard library's on random archives.
func TestMembersAreThoseOfArchiveTar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range rapid.IntRange(0, 12).Draw(t, "members") {
			name := rapid.StringMatching(`([a-zü]{1,40}/){0,5}[a-z0-9.]{1,60}`).Draw(t, "name")
			format := rapid.SampledFrom([]tar.Format{tar.FormatPAX, tar.FormatGNU}).Draw(t, "format")
			h := &tar.Header{
				Name: fmt.Sprintf("%s.%d", name, i), Format: format, Typeflag: tar.TypeReg,
				Size: int64(rapid.SampledFrom([]int{0, 1, 511, 512, 513, 5000}).Draw(t, "size")),
			}
			if rapid.IntRange(0, 5).Draw(t, "directory") == 0 {
				h.Typeflag = tar.TypeDir
				h.Size = 0
				h.Name += "/"
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(make([]byte, h.Size)); err != nil {
				t.Fatal(err)
			}
		}
		if rapid.Bool().Draw(t, "end") {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		} else if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		got, err := walked(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(read(b.Bytes()), got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// walked returns what walk finds in an archive.
func walked(data []byte) (list []string, err error) {
	o := &memory{files: map[string][]byte{"0": data}}
	object, err := o.Stat(context.Background(), "0")
	if err != nil {
		return nil, err
	}
	w := &walker{ctx: context.Background(), objects: o, object: &object}
	err = w.walk(func(m member, offset int64) error {
		if offset < 0 || m.size < 0 || offset+m.size > int64(len(data)) {
			return fmt.Errorf("%q of %d bytes at %d of %d", m.name, m.size, offset, len(data))
		}
		list = append(list, fmt.Sprintf("%q %d %d", m.name, offset, m.size))
		return nil
	})
	return list, err
}

// read returns what the standard library finds.
func read(data []byte) (list []string) {
	source := bytes.NewReader(data)
	r := tar.NewReader(source)
	for {
		h, err := r.Next()
		if err != nil {
			return list
		}
		if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeCont {
			at := int64(len(data)) - int64(source.Len())
			list = append(list, fmt.Sprintf("%q %d %d", h.Name, at, h.Size))
		}
	}
}

// FuzzWalk: what is found in an archive that is accepted is what the standard library finds, if
// that accepts it too.
func FuzzWalk(f *testing.F) {
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU} {
		f.Add(archive(f, format, entry{"a/1.jpg", "x"}, entry{"a/1.cls", "1"}))
	}
	f.Add(archive(f, tar.FormatGNU, entry{strings.Repeat("long/", 40) + "1.jpg", "x"}))
	f.Add(archive(f, tar.FormatPAX, entry{strings.Repeat("long/", 40) + "1.jpg", "x"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		data = sealed(data)
		for b := data; len(b) >= blockSize; b = b[blockSize:] {
			if string(b[257:263]) == "ustar " && b[345] != 0 {
				return // the standard library takes GNU's fields for a part of the name
			}
		}
		got, err := walked(data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			return
		}
		r := tar.NewReader(bytes.NewReader(data))
		for err = nil; err == nil; {
			_, err = r.Next()
		}
		if errors.Is(err, io.EOF) {
			if diff := cmp.Diff(read(data), got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
	})
}

// sealed returns data with the right checksums in all blocks that look like headers.
func sealed(data []byte) []byte {
	data = bytes.Clone(data)
	for b := data; len(b) >= blockSize; b = b[blockSize:] {
		if string(b[257:262]) == "ustar" {
			seal(b)
		}
	}
	return data
}

// seal sets a header's checksum.
func seal(header []byte) {
	copy(header[148:156], "        ")
	sum := 0
	for _, c := range header[:blockSize] {
		sum += int(c)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// TestOfEachMemberAPageIsReadAtMost, and several small ones together.
func TestOfEachMemberAPageIsReadAtMost(t *testing.T) {
	var large, small []entry
	for i := range 100 {
		large = append(large, entry{fmt.Sprintf("%d.jpg", i), strings.Repeat("x", 20_000)})
		small = append(small, entry{fmt.Sprintf("%d.cls", i), "1"})
	}
	for name, c := range map[string]struct {
		entries []entry
		most    int64 // per member
	}{"large": {large, window}, "small": {small, 1200}} {
		o := &memory{files: map[string][]byte{"0": archive(t, tar.FormatUSTAR, c.entries...)}}
		if _, err := Index(t.Context(), o, []string{"0"}, values()); err != nil {
			t.Fatal(err)
		}
		if each := o.bytes.Load() / int64(len(c.entries)); each > c.most+c.most/20 {
			t.Errorf("%s: %d bytes per member", name, each)
		}
		if each := window * int64(len(o.pages)) / int64(len(c.entries)); each > c.most+c.most/20 {
			t.Errorf("%s: %d bytes per member in pages", name, each)
		}
		if o.ahead.Load() == 0 {
			t.Errorf("%s: nothing was read ahead", name)
		}
	}
}

// TestAStoreIsAskedOncePerSample: it has no pages, and does not read ahead.
func TestAStoreIsAskedOncePerSample(t *testing.T) {
	var entries []entry
	for i := range 100 {
		entries = append(entries, entry{fmt.Sprintf("%d.jpg", i), strings.Repeat("x", 20_000+500*i)},
			entry{fmt.Sprintf("%d.cls", i), "1"})
	}
	o := &memory{files: map[string][]byte{"0": archive(t, tar.FormatUSTAR, entries...)}}
	store := struct{ objects.Objects }{o}
	if _, err := Index(t.Context(), store, []string{"0"}, values()); err != nil {
		t.Fatal(err)
	}
	if n := o.reads.Load(); n > 110 {
		t.Errorf("%d requests for 100 samples", n)
	}
}
