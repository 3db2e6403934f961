//go:build cgo

package codec

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// formLevels is the number of levels of instructions, with 0.
const formLevels = 4

// formTester compares a JPEG's form with the JPEG.
type formTester struct {
	d         Decoder
	packed    Packed
	want, got pixels.Image
	rng       *rand.Rand
	restored  []byte
	regions   int
	report    func(format string, args ...any)
}

func newFormTester(t testing.TB) *formTester {
	f := &formTester{rng: rand.New(rand.NewPCG(1, 2)), regions: 3, report: t.Errorf}
	t.Cleanup(f.d.Close)
	return f
}

// check packs src and compares headers, pixels of regions at all scales, bytes, and the twin in Go.
// It returns Pack's error.
func (f *formTester) check(name string, src []byte) error {
	err := f.d.Pack(&f.packed, src, math.MaxInt32)
	if err != nil {
		return err
	}
	h, err := f.d.Header(src)
	if err != nil {
		return err
	}
	if other, err := f.d.PackedHeader(&f.packed); err != nil || other != h {
		f.report("%s: header %+v, %v; want %+v", name, other, err, h)
	}
	for _, scale := range []int{8, 4, 2, 1} {
		for i := range f.regions {
			want := Want{Scale: scale, Orient: f.rng.IntN(2) == 0, Gray: f.rng.IntN(4) == 0, Whole: true}
			w, ht := h.Width, h.Height
			if want.Orient {
				w, ht = h.Oriented()
			}
			w, ht = ScaledSize(JPEG, w, ht, scale)
			if i > 0 {
				x, y := f.rng.IntN(w), f.rng.IntN(ht)
				want.Region = image.Rect(x, y, x+1+f.rng.IntN(w-x), y+1+f.rng.IntN(ht-y))
			}
			f.compare(name, src, want)
		}
	}
	f.restored, err = f.d.Unpack(f.restored[:0], &f.packed)
	switch exact := f.packed.ScanSize > 0; {
	case exact && (err != nil || !bytes.Equal(f.restored, src)):
		f.report("%s: %v, or other bytes", name, err)
	case !exact && !errors.Is(err, ErrNotPacked):
		f.report("%s: bytes of a form that gives pixels alone: %v", name, err)
	}
	f.checkTwin(name, src)
	return nil
}

// checkTwin compares with the JPEG that our twin in Go makes of a form.
func (f *formTester) checkTwin(name string, src []byte) {
	p := &f.packed
	twin, err := appendScanGo(bytes.Clone(p.head()), p.head(), p.Body, p.Ones)
	if err != nil {
		f.report("%s: twin: %v", name, err)
		return
	}
	if p.ScanSize > 0 {
		if !bytes.Equal(append(twin, p.Tail...), src) {
			f.report("%s: other bytes of the twin", name)
		}
		return
	}
	_, wrong := f.d.Decode(&f.want, src, Want{})
	_, err = f.d.Decode(&f.got, append(twin, 0xff, markerEOI), Want{})
	if wrong != nil || err != nil || !bytes.Equal(f.got.Pix, f.want.Pix) {
		f.report("%s: %v, %v, or other pixels of the twin", name, wrong, err)
	}
}

func (f *formTester) compare(name string, src []byte, want Want) {
	origin, err := f.d.Decode(&f.want, src, want)
	if err != nil {
		f.report("%s, %+v: %v, and it has a form", name, want, err)
		return
	}
	f.d.jpeg.level = f.rng.IntN(formLevels)
	other, err := f.d.DecodePacked(&f.got, &f.packed, want)
	if err != nil || other != origin || f.got.Width != f.want.Width ||
		f.got.Channels != f.want.Channels || !bytes.Equal(f.got.Pix, f.want.Pix) {
		f.report("%s, %+v, level %d: %v, at %v instead of %v, or other pixels", name, want,
			f.d.jpeg.level, err, other, origin)
	}
}

// TestFormsOfReferences: every JPEG of the conformance suite gives the same pixels and bytes from
// its form; those without one are of the kinds that have none.
func TestFormsOfReferences(t *testing.T) {
	dir, cases := references(t)
	f := newFormTester(t)
	made := map[string]int{}
	for _, c := range cases {
		src := read(t, dir, c.File)
		h, err := f.d.Header(src)
		if err != nil || h.Format != JPEG {
			continue
		}
		err = f.check(c.Name, src)
		kind := "baseline"
		switch {
		case err != nil:
			kind = "none"
		case f.packed.ScanSize == 0:
			kind = "several scans"
		}
		made[kind]++
		usual := !damaged(c.Name) && h.Channels != 4
		if usual && err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if err != nil && !errors.Is(err, ErrNotPacked) {
			t.Errorf("%s: %v", c.Name, err)
		}
		if err == nil && c.Error != "" {
			t.Errorf("%s: it has a form, and PIL: %s", c.Name, c.Error)
		}
	}
	if made["baseline"] < 100 || made["several scans"] < 20 || made["none"] < 20 {
		t.Errorf("%v", made)
	}
}

// TestFormsOfTestdata: restart intervals, rare samplings, and what has no form.
func TestFormsOfTestdata(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jpg")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %v", files, err)
	}
	f := newFormTester(t)
	for _, name := range files {
		err := f.check(name, read(t, ".", name))
		switch {
		case strings.Contains(name, "arithmetic"):
			if !errors.Is(err, ErrNotPacked) || !strings.Contains(fmt.Sprint(err), "arithmetic") {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		}
	}
}
