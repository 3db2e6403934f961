package codec

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// decodedTester compares the pixels that are kept of a PNG or a WebP with the file.
type decodedTester struct {
	t              *testing.T
	d              Decoder
	all, want, got pixels.Image
	rng            *rand.Rand
}

// check compares regions, in gray and in colour, oriented or not. It returns DecodeAll's error.
func (f *decodedTester) check(name string, src []byte) error {
	if err := f.d.DecodeAll(&f.all, src); err != nil {
		return err
	}
	h, err := f.d.Header(src)
	if err != nil {
		return err
	}
	from := &Decoded{src, f.all}
	for i := range 16 {
		want := Want{
			Gray: f.rng.IntN(3) == 0, Orient: f.rng.IntN(2) == 0, Whole: f.rng.IntN(2) == 0,
			Scale: []int{0, 8, 4, 1}[f.rng.IntN(4)],
		}
		w, ht := h.Width, h.Height
		if want.Orient {
			w, ht = h.Oriented()
		}
		x, y := f.rng.IntN(w), f.rng.IntN(ht)
		region := image.Rect(x, y, x+1+f.rng.IntN(w-x), y+1+f.rng.IntN(ht-y))
		if i > 1 {
			want.Region = region
		}
		f.compare(fmt.Sprintf("%s, %+v", name, want), from, want)
		if want.Region.Empty() {
			continue
		}
		m, ok, err := f.d.ViewOf(from, want)
		direct := (!want.Orient || h.Orientation == 1) && want.Gray == (h.Channels == 1)
		part := f.want
		if err != nil || ok != direct || ok && !same(&m, &part) {
			f.t.Errorf("%s, %+v: %v, %v, or other pixels in place", name, want, ok, err)
		}
	}
	return nil
}

// compare leaves the region in f.want.
func (f *decodedTester) compare(what string, from *Decoded, want Want) {
	f.t.Helper()
	origin, err := f.d.Decode(&f.want, from.File, want)
	if err != nil {
		f.t.Fatalf("%s: %v, and its pixels are kept", what, err)
	}
	at, err := f.d.DecodeFrom(&f.got, from, want)
	if err != nil {
		f.t.Fatalf("%s: %v", what, err)
	}
	if !want.Region.Empty() { // a decoder may return more
		f.want, f.got = f.want.Sub(want.Region.Sub(origin)), f.got.Sub(want.Region.Sub(at))
	} else if at != origin {
		f.t.Errorf("%s: at %v instead of %v", what, at, origin)
	}
	if !same(&f.got, &f.want) {
		f.t.Errorf("%s: other pixels", what)
	}
}

func same(a, b *pixels.Image) bool {
	if a.Bounds() != b.Bounds() || a.Channels != b.Channels {
		return false
	}
	for y := range a.Height {
		if !bytes.Equal(a.Row(y), b.Row(y)) {
			return false
		}
	}
	return true
}

// TestDecodedReferences: every PNG and WebP of the conformance suite that decodes gives the same
// pixels from those that are kept, and of those that do not decode none are.
func TestDecodedReferences(t *testing.T) {
	dir, cases := references(t)
	f := &decodedTester{t: t, rng: rand.New(rand.NewPCG(1, 2))}
	defer f.d.Close()
	type kind struct {
		format Format
		kept   bool
	}
	made := map[kind]int{}
	for _, c := range cases {
		src := read(t, dir, c.File)
		h, err := f.d.Header(src)
		if err != nil {
			continue
		}
		_, refused := f.d.Decode(&f.want, src, Want{Whole: true})
		err = f.check(c.Name, src)
		made[kind{h.Format, err == nil}]++
		switch {
		case h.Format == JPEG || h.Odd:
			if !errors.Is(err, ErrNotPacked) {
				t.Errorf("%s: %v", c.Name, err)
			}
		case fmt.Sprint(err) != fmt.Sprint(refused):
			t.Errorf("%s: %v, and to decode it: %v", c.Name, err, refused)
		}
	}
	for k, least := range map[kind]int{
		{PNG, true}: 250, {PNG, false}: 100, {WebP, true}: 100, {WebP, false}: 20,
	} {
		if made[k] < least {
			t.Errorf("%+v: %d: %v", k, made[k], made)
		}
	}
}

// TestDecodedTestdata: WebPs of all kinds.
func TestDecodedTestdata(t *testing.T) {
	files, err := filepath.Glob("testdata/*.webp")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	f := &decodedTester{t: t, rng: rand.New(rand.NewPCG(1, 2))}
	defer f.d.Close()
	for _, name := range files {
		if err := f.check(name, read(t, ".", name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDecodedOfAnotherFile: pixels that are not of the file's size, or not its channels, are
// refused.
func TestDecodedOfAnotherFile(t *testing.T) {
	var d Decoder
	defer d.Close()
	src := read(t, "testdata", "lossy.webp")
	var all, dst pixels.Image
	if err := d.DecodeAll(&all, src); err != nil {
		t.Fatal(err)
	}
	gray := all
	gray.Channels, gray.Stride = 1, all.Width
	narrow := all
	narrow.Width--
	short := all
	short.Pix = short.Pix[:len(short.Pix)-1]
	for i, m := range []pixels.Image{gray, narrow, short, {}} {
		from := &Decoded{src, m}
		if _, err := d.DecodeFrom(&dst, from, Want{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d: %v", i, err)
		}
		if _, ok, err := d.ViewOf(from, Want{Region: image.Rect(0, 0, 1, 1)}); ok ||
			!errors.Is(err, ErrCorrupt) {
			t.Errorf("%d: %v, %v", i, ok, err)
		}
	}
}
