package forms

import (
	"bytes"
	"errors"
	"image"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// FuzzDecode: a form of any bytes is decoded or refused, by a known error. Its digest, which would
// refuse all but a few, is not checked.
func FuzzDecode(f *testing.F) {
	for _, name := range slices.Concat(jpegs, others, []string{"transformed"}) {
		form := converted(f, name)
		f.Add(form)
		for _, at := range []int{5, 25, 30, 60, len(form) / 2, len(form) - 3} {
			altered := bytes.Clone(form)
			altered[at] ^= 0xff
			f.Add(altered)
		}
		f.Add(form[:len(form)*2/3])
	}
	d := codec.Decoder{MaxPixels: 1 << 18}
	defer d.Close()
	c := Converter{decoder: codec.Decoder{MaxPixels: 1 << 18}}
	defer c.Close()
	var m pixels.Image
	f.Fuzz(func(t *testing.T, form []byte) {
		known := func(err error) {
			var e *codec.Error
			if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) &&
				!errors.As(err, &e) {
				t.Fatal(err)
			}
		}
		h, err := Header(&d, form)
		known(err)
		if err != nil {
			return
		}
		made, ok := ResultOf(form, small.Prefix)
		if ok && (sum(&made) < 0 || made.Bounds().Dx() != small.Width) {
			t.Fatalf("%v", made.Bounds())
		}
		for _, want := range []codec.Want{
			{},
			{Region: image.Rect(h.Width/2, h.Height/2, h.Width, h.Height)},
			{Scale: 1},
		} {
			_, err := Decode(&d, &m, form, want)
			known(err)
			if want.Region.Empty() {
				continue
			}
			part, ok, err := View(&d, form, want)
			known(err)
			if ok && (part.Bounds().Size() != want.Region.Size() || sum(&part) < 0) {
				t.Fatalf("%v of %v", part.Bounds(), want.Region)
			}
		}
		var p codec.Packed
		if _, err := parse(&p, form); err != nil {
			t.Fatal(err)
		}
		_, err = d.Unpack(nil, &p)
		known(err)
	})
}

// sum reads all pixels.
func sum(m *pixels.Image) (n int) {
	for y := range m.Height {
		for _, v := range m.Row(y) {
			n += int(v)
		}
	}
	return n
}

// FuzzConvert: what has a form is decoded from it as it is, and is made of it again.
func FuzzConvert(f *testing.F) {
	var seeds [][]byte
	for _, name := range append(jpegs, "arithmetic", "441", "gray-22", "restart-long") {
		seeds = append(seeds, jpegNamed(f, name))
	}
	for _, name := range others {
		seeds = append(seeds, otherNamed(f, name))
	}
	for _, src := range seeds {
		f.Add(src)
		f.Add(src[:len(src)/2])
		altered := bytes.Clone(src)
		altered[len(src)*3/4] ^= 0x40
		f.Add(altered)
	}
	d := codec.Decoder{MaxPixels: 1 << 18}
	defer d.Close()
	c := Converter{decoder: codec.Decoder{MaxPixels: 1 << 18}}
	defer c.Close()
	var want, got pixels.Image
	f.Fuzz(func(t *testing.T, src []byte) {
		form, err := c.Convert(nil, src)
		if err != nil {
			var e *codec.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			return
		}
		info, err := Read(form)
		if err != nil || int64(len(form)) > c.Size(src) {
			t.Fatalf("%d bytes for %d, %v", len(form), len(src), err)
		}
		if again, err := c.Restore(nil, form); info.Kind != Pixels &&
			(err != nil || !bytes.Equal(again, src)) {
			t.Fatalf("%v, or other bytes", err)
		}
		h, err := d.Header(src)
		if other, wrong := Header(&d, form); err != nil || wrong != nil || h != other {
			t.Fatalf("%+v, %v; %+v, %v", h, err, other, wrong)
		}
		for _, r := range []codec.Want{
			{Whole: true},
			{Region: image.Rect(h.Width/2, h.Height/3, h.Width, h.Height)},
			{Scale: 2},
		} {
			at, err := d.Decode(&want, src, r)
			other, wrong := Decode(&d, &got, form, r)
			if err != nil || wrong != nil {
				t.Fatalf("%+v: %v, %v", r, err, wrong)
			}
			region := r.Region
			if region.Empty() {
				region = want.Bounds()
			}
			a, b := want.Sub(region.Sub(at)), got.Sub(region.Sub(other))
			if !samePixels(&a, &b) {
				t.Fatalf("%+v: other pixels", r)
			}
		}
	})
}
