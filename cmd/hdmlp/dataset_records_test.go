package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// member is a file of an archive.
type member struct {
	name string
	data []byte
}

// writeShard writes a tar file.
func writeShard(t *testing.T, path string, members ...member) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		must(t, w.WriteHeader(&tar.Header{
			Name: m.name, Size: int64(len(m.data)), Mode: 0o644, Typeflag: tar.TypeReg,
		}))
		_, err := w.Write(m.data)
		must(t, err)
	}
	must(t, w.Close(), os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, b.Bytes(), 0o644))
}

// jpegOf returns an image of one colour.
func jpegOf(t *testing.T, width, height int, c color.Gray) []byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = c.Y
	}
	var b bytes.Buffer
	must(t, jpeg.Encode(&b, m, nil))
	return b.Bytes()
}

// someShards makes shards of 3, 4 and 5 samples: an image, a class, and a json of each second one.
func someShards(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shards")
	n := 0
	for s := range 3 {
		var members []member
		for range 3 + s {
			key := fmt.Sprintf("a/%05d", n)
			members = append(members,
				member{key + ".jpg", jpegOf(t, 40+n, 30, color.Gray{uint8(20 * n)})},
				member{key + ".cls", fmt.Append(nil, n%4)})
			if n%2 == 0 {
				members = append(members, member{key + ".json", fmt.Appendf(nil, `{"n": %d}`, n)})
			}
			n++
		}
		writeShard(t, filepath.Join(dir, fmt.Sprintf("%03d.tar", s)), members...)
	}
	return dir
}

// viewOf runs `hdmlp dataset --json`.
func viewOf(t *testing.T, args ...string) (v datasetView) {
	t.Helper()
	code, out, errs := status(t, append([]string{"dataset", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("%q: exit status %d, %s", args, code, errs)
	}
	must(t, json.Unmarshal([]byte(out), &v))
	return v
}

// TestDatasetFindsTheKind of whatever the paths lead to.
func TestDatasetFindsTheKind(t *testing.T) {
	quiet(t)
	dir := someShards(t)
	all := filepath.Join(dir, "*.tar")
	whole := viewOf(t, dir)
	if whole.Kind != "webdataset" || whole.Samples != 12 || len(whole.Objects) != 3 {
		t.Fatalf("%+v", whole)
	}
	for _, c := range []struct {
		samples int
		args    []string
	}{
		{12, []string{all}},
		{12, []string{filepath.Join(dir, "{000..002}.tar")}},
		{8, []string{filepath.Join(dir, "{000,002}.tar")}},
		{4, []string{filepath.Join(dir, "001.tar")}},
		{8, []string{filepath.Join(dir, "002.tar"), filepath.Join(dir, "000.tar")}},
		{12, []string{dir, "--kind", "webdataset"}},
		{6, []string{dir, "--option", "fields=jpg,json", "--option", "missing=skip"}},
	} {
		if v := viewOf(t, c.args...); v.Samples != c.samples || v.Kind != "webdataset" {
			t.Errorf("%q: %d samples of the kind %s, want %d", c.args, v.Samples, v.Kind, c.samples)
		}
	}
	v := viewOf(t, filepath.Join(dir, "002.tar"), filepath.Join(dir, "000.tar"))
	if v.Objects[0].Name != "002.tar" || v.FirstKeys[0] != "a/00007" {
		t.Errorf("shards in another order: %+v, %q", v.Objects, v.FirstKeys)
	}
	if again := viewOf(t, dir); again.Fingerprint != whole.Fingerprint || !again.Index.Loaded ||
		again.Index.Path == "" {
		t.Errorf("the index was not found again: %+v", again.Index)
	}
}

// TestDatasetDescribesFields: numbers that follow from what was written.
func TestDatasetDescribesFields(t *testing.T) {
	quiet(t)
	dir := someShards(t)
	v := viewOf(t, dir)
	var names []string
	bytesOfAll := int64(0)
	for _, f := range v.Fields {
		names = append(names, fmt.Sprintf("%s %d %d", f.Name, f.Samples, f.Sizes.Smallest))
		bytesOfAll += f.Bytes
	}
	if len(names) != 3 || !strings.HasPrefix(names[0], "jpg 12 ") || names[1] != "cls 12 1" ||
		names[2] != "json 6 8" {
		t.Errorf("fields %q", names)
	}
	inObjects := int64(0)
	for i, o := range v.Objects {
		inObjects += o.Bytes
		if o.Samples != 3+i {
			t.Errorf("%s has %d samples", o.Name, o.Samples)
		}
	}
	if bytesOfAll != inObjects {
		t.Errorf("fields have %d bytes, files %d", bytesOfAll, inObjects)
	}
	want := []columnView{
		{
			Name: "cls", Samples: 12, Distinct: 4,
			Most: []valueView{{"0", 3}, {"1", 3}, {"2", 3}, {"3", 3}},
		},
		{Name: "txt", Most: []valueView{}},
	}
	if diff := cmp.Diff(want, v.Columns); diff != "" {
		t.Error(diff)
	}
	_, out, _ := status(t, "dataset", dir)
	for _, text := range []string{
		"12 samples in 3 files, ", "kind         webdataset", "  loaded       in ",
		"field        json in 6 samples, 49 B", "keys         a/00000, a/00001, ",
		"4 values of cls: 0 (3), 1 (3), 2 (3), 3 (3)\n", "  files        3 samples ",
	} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is not in\n%s", text, out)
		}
	}
}

// TestDatasetDrawsASheet of the first field that has images.
func TestDatasetDrawsASheet(t *testing.T) {
	quiet(t)
	sheet := filepath.Join(t.TempDir(), "sheet.png")
	v := viewOf(t, someShards(t), "--sheet", sheet)
	f, err := os.Open(sheet)
	must(t, err)
	defer f.Close()
	m, kind, err := image.Decode(f)
	must(t, err)
	// The second image has one colour; it is below its part of the first row.
	at := m.At(sheetMargin+sheetCell+sheetGap+sheetCell/2, sheetMargin+sheetCell/2)
	if r, _, _, _ := at.RGBA(); v.Sheet != sheet || kind != "png" || r>>8 < 16 || r>>8 > 24 {
		t.Errorf("%s, %s, colour %v", v.Sheet, kind, at)
	}
}

// TestDatasetRefusesWhatItCannotDescribe with what is wrong, and what to do.
func TestDatasetRefusesWhatItCannotDescribe(t *testing.T) {
	quiet(t)
	dir := someShards(t)
	photos := makeDataset(t, map[string]int{"cat/1.jpg": 3})
	other := filepath.Join(t.TempDir(), "data.csv")
	packed := filepath.Join(t.TempDir(), "x.tar.gz")
	must(t, os.WriteFile(other, []byte("a,b\n"), 0o644),
		os.WriteFile(packed, []byte("\x1f\x8b\x08\x00 compressed"), 0o644))
	for want, args := range map[string][]string{
		"the names of files that have samples are *.tar": {other},
		"it is compressed":                          {packed},
		"no file has such a name":                   {filepath.Join(dir, "x*.tar")},
		"there is no such directory":                {filepath.Join(dir, "nothing")},
		"003.tar: the file is missing":              {filepath.Join(dir, "{000..005}.tar")},
		"give those of one dataset":                 {photos, filepath.Join(dir, "000.tar")},
		"takes one directory, not 2":                {photos, photos},
		"hdmlp.pack(dataset, out)":                  {photos, "--kind", "records"},
		"the samples of the kind webdataset have":   {dir, "--extensions", ".jpg"},
		"unknown key; did you mean \"fields\"":      {dir, "--option", "field=jpg"},
		"give KEY=VALUE":                            {dir, "--option", "fields"},
		"HDMLP does not read ftp://":                {"ftp://host/x.tar"},
		"in different buckets":                      {"s3://a/x.tar", "s3://b/x.tar"},
		"in different places":                       {"s3://a/x.tar", dir},
		"must end in .png":                          {dir, "--sheet", "x.jpg"},
		"the first sample has no JPEG, PNG or WebP": {photos, "--sheet", "x.png"},
	} {
		code, out, errs := status(t, append([]string{"dataset"}, args...)...)
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: exit status %d, printed %q and %q; want %q", args, code, out, errs, want)
		}
	}
}

// TestFoldersWithArchivesBesideTheirClasses stay folders, with a warning.
func TestFoldersWithArchivesBesideTheirClasses(t *testing.T) {
	quiet(t)
	root := makeDataset(t, map[string]int{"cat/1.jpg": 3, "dog/1.jpg": 3, "all.tar": 1024})
	code, out, errs := status(t, "dataset", root)
	if code != 0 || !strings.Contains(out, "2 samples in 2 classes") ||
		!strings.Contains(errs, "--kind webdataset reads these files") {
		t.Errorf("exit status %d, %s, %s", code, out, errs)
	}
}
