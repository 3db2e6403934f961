package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// referenceCase is an image file and what PIL makes of it, or its error.
type referenceCase struct {
	Name, File          string
	W, H                int
	Mode                string // before any conversion
	RGB, Gray, Oriented string
	Error               string
}

var referenceOnce struct {
	sync.Once
	dir   string
	cases []referenceCase
	skip  string
}

// references runs testdata/reference.py, once for all tests.
func references(t testing.TB) (dir string, cases []referenceCase) {
	t.Helper()
	r := &referenceOnce
	r.Do(func() {
		const python = "/usr/bin/python3"
		if err := exec.Command(python, "-c", "import PIL.Image, numpy").Run(); err != nil {
			r.skip = python + " has no PIL: " + err.Error()
			return
		}
		r.dir = scratchDir
		// What only the script reads must be read here, too, or a change of it leaves the test
		// cached.
		files, err := filepath.Glob("testdata/*.*") // not the directory fuzz
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if _, err := os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command(python, "testdata/reference.py",
			r.dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var all struct {
			Turbo bool
			Cases []referenceCase
		}
		if err := json.Unmarshal(read(t, r.dir, "cases.json"), &all); err != nil {
			t.Fatal(err)
		}
		if r.cases = all.Cases; !all.Turbo {
			r.skip = "PIL is not built with libjpeg-turbo"
		}
	})
	if r.skip != "" {
		t.Skip(r.skip)
	}
	return r.dir, r.cases
}

var scratchDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "codec")
	if err != nil {
		panic(err)
	}
	scratchDir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func read(t testing.TB, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAsPIL: what PIL decodes, we decode to the same samples; what it refuses, we refuse.
func TestAsPIL(t *testing.T) {
	dir, cases := references(t)
	var d Decoder
	defer d.Close()
	var m pixels.Image
	refused := 0
	for _, c := range cases {
		src := read(t, dir, c.File)
		_, err := d.Decode(&m, src, Want{Whole: true})
		if strings.Contains(c.Name, "pixels beyond") && errors.Is(err, ErrUnsupported) {
			refused++
			continue
		}
		if (err != nil) != (c.Error != "") && (jpegExact || !damaged(c.Name)) &&
			(err == nil || !overfull(c.Name)) {
			t.Errorf("%s: %v, and PIL: %q", c.Name, err, c.Error)
			continue
		}
		if err != nil || c.Error != "" {
			refused++
			continue
		}
		if (!jpegExact || sanitized) && damaged(c.Name) {
			// libjpeg-turbo without SIMD, as it is sanitized, makes something else of what has no
			// meaning
			continue
		}
		check := func(what, file string, want Want) {
			t.Helper()
			if _, err := d.Decode(&m, src, want); err != nil {
				t.Errorf("%s, %s: %v", c.Name, what, err)
				return
			}
			expected := read(t, dir, file)
			if n, most, mean := difference(m.Pix, expected); most > tolerance(c.Name) ||
				mean > 0.1 && n > 100 {
				t.Errorf("%s, %s: %d of %d samples differ, by up to %d, mean %.3f", c.Name, what, n,
					len(expected), most, mean)
			}
		}
		check("RGB", c.RGB, Want{})
		check("L", c.Gray, Want{Gray: true})
		check("oriented", c.Oriented, Want{Orient: true})
	}
	t.Logf("%d cases, of which PIL refuses %d", len(cases), refused)
}

// TestModes: the mode of a header is that in which PIL opens the file, or another one is left open,
// which it is for few files of these modes.
func TestModes(t *testing.T) {
	dir, cases := references(t)
	var d Decoder
	defer d.Close()
	open := 0
	for _, c := range cases {
		h, err := d.Header(read(t, dir, c.File))
		if err != nil || c.Error != "" {
			continue
		}
		switch found := h.Mode(); {
		case found == OtherMode && (c.Mode == "RGB" || c.Mode == "L"):
			open++
		case found == RGB && c.Mode != "RGB" || found == L && c.Mode != "L":
			t.Errorf("%s: %v, and PIL: %s", c.Name, found, c.Mode)
		}
	}
	if open > len(cases)/50 {
		t.Errorf("the modes of %d of %d files are left open", open, len(cases))
	}
}

// TestRegions: of a region, at every scale, we give what a full decode has there.
func TestRegions(t *testing.T) {
	dir, cases := references(t)
	var d Decoder
	defer d.Close()
	var all, part pixels.Image
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range cases {
		src := read(t, dir, c.File)
		h, err := d.Header(src)
		if err != nil || c.Error != "" || !jpegExact && damaged(c.Name) ||
			strings.Contains(c.Name, "pixels beyond") {
			continue
		}
		for _, scale := range []int{8, 4, 2, 1} {
			if scale != 8 && h.Format != JPEG {
				continue
			}
			regions := 6
			switch {
			case !jpegExact:
				regions = 1 // of any region Go's decoders give the whole image
			case h.Format != JPEG:
				regions = 12
			}
			for _, orient := range []bool{false, true} {
				if orient && h.Orientation == 1 {
					continue
				}
				if _, err := d.Decode(&all, src, Want{Scale: scale, Orient: orient}); err != nil {
					if overfull(c.Name) {
						continue
					}
					t.Fatalf("%s: %v", c.Name, err)
				}
				for range regions {
					x, y := r.IntN(all.Width), r.IntN(all.Height)
					region := image.Rect(x, y, x+1+r.IntN(all.Width-x), y+1+r.IntN(all.Height-y))
					origin, err := d.Decode(&part, src,
						Want{Scale: scale, Orient: orient, Region: region})
					if err != nil {
						t.Fatalf("%s: region %v: %v", c.Name, region, err)
					}
					if covered := part.Bounds().Add(origin); !region.In(covered) {
						t.Fatalf("%s: region %v: got %v", c.Name, region, covered)
					}
					got, want := part.Sub(region.Sub(origin)), all.Sub(region)
					for y := range got.Height {
						if !bytes.Equal(got.Row(y), want.Row(y)) {
							t.Errorf("%s of %dx%d: scale %d, region %v: row %d differs", c.Name,
								c.W, c.H, scale, region, y)
							break
						}
					}
				}
			}
		}
	}
}

func difference(a, b []byte) (n, most int, mean float64) {
	if len(a) != len(b) {
		return len(b), 256, 256
	}
	sum := 0
	for i := range a {
		if d := max(int(a[i])-int(b[i]), int(b[i])-int(a[i])); d > 0 {
			n++
			sum += d
			most = max(most, d)
		}
	}
	return n, most, float64(sum) / float64(max(len(a), 1))
}

// overfull reports whether a PNG may be damaged such that its stream does not end with the last
// row: PIL does not look further, not at the checksum either, and we do.
func overfull(name string) bool { return strings.HasPrefix(name, "png: ") }

// damaged reports whether an image is one that every decoder makes something else of, or that Go's
// decoders do not support.
func damaged(name string) bool {
	for _, part := range []string{
		"luma", "cut", "changed", "arithmetic", "441", "incomplete", "with noise",
		"restart-progressive",
	} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// tolerance is how far a sample may be from PIL's: where libjpeg-turbo is not there, 4 grey levels.
func tolerance(name string) int {
	if jpegExact || strings.HasPrefix(name, "png") || strings.HasPrefix(name, "webp") {
		return 0
	}
	return 4
}
