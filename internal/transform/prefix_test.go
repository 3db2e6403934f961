package transform

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// afterPrefixes are forms of a Program's Prefix, made of files that the Program takes.
type afterPrefixes struct {
	t       *testing.T
	worker  *Worker
	maker   *forms.Maker // nil: the Program has none
	convert forms.Converter
}

func afterPrefix(t *testing.T, p *Program) *afterPrefixes {
	a := &afterPrefixes{t: t, worker: p.Worker()}
	if prefix := p.Prefix(); prefix != nil {
		a.maker = &forms.Maker{Prefix: prefix.Prefix, Worker: prefix.Worker()}
		a.convert.Makers, a.convert.JPEGs = []*forms.Maker{a.maker}, true
	}
	return a
}

func (a *afterPrefixes) Close() {
	a.worker.Close()
	a.convert.Close()
	if a.maker != nil {
		a.maker.Worker.(*Worker).Close()
	}
}

// form returns the form of a file; nil: it has none, or one of another kind.
func (a *afterPrefixes) form(file []byte) []byte {
	a.t.Helper()
	if a.maker == nil {
		return nil
	}
	form, err := a.convert.Convert(nil, file)
	if err != nil {
		return nil
	}
	info, err := forms.Read(form)
	if err != nil || forms.Check(form) != nil {
		a.t.Fatal(err, forms.Check(form))
	}
	if info.Kind != forms.Transformed {
		return nil
	}
	if file, err = a.convert.Restore(nil, form); err != nil || int64(len(file)) != info.Size {
		a.t.Fatal(err)
	}
	return form
}

// compare checks that the form of a file gives want, which the Program makes of the file. It
// reports whether there is one.
func (a *afterPrefixes) compare(file, want []byte, key Key) bool {
	a.t.Helper()
	form := a.form(file)
	if form == nil {
		return false
	}
	got := make([]byte, len(want))
	a.worker.Form(forms.Transformed)
	if err := a.worker.Apply(got, form, key); err != nil || !bytes.Equal(got, want) {
		a.t.Errorf("of what the first steps make: %v, or other bytes", err)
	}
	return true
}

// TestPrefixes: which lists have one, of how many steps, and of which size.
func TestPrefixes(t *testing.T) {
	for list, want := range map[string]string{
		"Resize(256), CenterCrop(224), ToTensor()":                      "3 224x224x3",
		"Resize(256), CenterCrop((9, 11)), RandomHorizontalFlip()":      "3 11x9x3",
		"ImgDecode('L'), Resize((9, 11)), Pad(1), ToTensor()":           "3 13x11x1",
		"CenterCrop(50), Grayscale(3), RandomCrop(20), CenterCrop(7)":   "3 50x50x3",
		"Resize((9, 11)), Grayscale(), Views([RandomCrop(5)], n=2)":     "3 11x9x1",
		"ImgDecode(orient=True), Resize((9, 11))":                       "2 11x9x3",
		"Resize((9, 11)), ToTensor(), RandomErasing(), Normalize(0, 1)": "2 11x9x3",
		"CenterCrop(9), Ragged()":                                       "",
		"RandomResizedCrop(224), ToTensor()":                            "",
		"Resize(256), RandomCrop(224), ToTensor()":                      "",
		"RandomHorizontalFlip(), Resize((9, 11))":                       "",
		"ImgDecode(fast=True), Resize((9, 11)), CenterCrop(5)":          "",
		"Pixels(4, 4), CenterCrop(3)":                                   "",
		"Reshape(3, 4, 4)":                                              "",
		"Resize(9), Ragged()":                                           "",
	} {
		p := compiled(t, list)
		got := ""
		if prefix := p.Prefix(); prefix != nil {
			got = fmt.Sprintf("%d %dx%dx%d", len(prefix.program.steps), prefix.Width, prefix.Height,
				prefix.Channels)
		}
		if got != want {
			t.Errorf("%s: %q instead of %q", list, got, want)
		}
	}
}

// TestRecipes: all that the pixels follow from is part of a recipe, however it is given, and
// nothing else is.
func TestRecipes(t *testing.T) {
	recipe := func(list string) forms.Recipe { return compiled(t, list).Prefix().Recipe }
	first := recipe("Resize(256), CenterCrop(224)")
	for _, same := range []string{
		"Resize(256), CenterCrop(224), ToTensor(), Normalize(0.5, 0.5)",
		"ImgDecode(), Resize(size=256, interpolation='bilinear'), CenterCrop((224, 224))",
		"ImgDecode('RGB'), Resize(256, antialias=True), CenterCrop(224), RandomHorizontalFlip()",
	} {
		if recipe(same) != first {
			t.Errorf("%s is another recipe", same)
		}
	}
	seen := map[forms.Recipe]string{first: "the first"}
	for _, other := range []string{
		"Resize(255), CenterCrop(224)",
		"Resize(256), CenterCrop((224, 223))",
		"CenterCrop(224), Resize(256)",
		"Resize(256, 'bicubic'), CenterCrop(224)",
		"Resize(256, max_size=300), CenterCrop(224)",
		"Resize(256, pillow=13), CenterCrop(224)",
		"ImgDecode('L'), Resize(256), CenterCrop(224)",
		"ImgDecode(orient=True), Resize(256), CenterCrop(224)",
		"ImgDecode(leave=True), Resize(256), CenterCrop(224)",
		"ImgDecode(leave=True, unconverted=True), Resize(256), CenterCrop(224)",
		"ImgDecode(max_pixels=999999), Resize(256), CenterCrop(224)",
		"Resize(256), CenterCrop(224), Grayscale()",
		"Resize(256), CenterCrop(224), Grayscale(3)",
		"Resize(256), CenterCrop(222), Pad(1)",
		"Resize(256), CenterCrop(222), Pad(1, fill=7)",
		"Resize(256), CenterCrop(222), Pad(1, fill=(7, 8, 9))",
		"Resize(256), CenterCrop(222), Pad(1, padding_mode='edge')",
		"Resize(256), CenterCrop(222), Pad((0, 2))",
	} {
		if before, ok := seen[recipe(other)]; ok {
			t.Errorf("%s is the same recipe as %s", other, before)
		}
		seen[recipe(other)] = other
	}
	// Nodes of one release compare recipes, and so do forms that are kept: a change is one of the
	// layout of forms, unless pixels have changed (kernels).
	const want = "0a46a68569d2f318dbb2281a66c1af9c"
	if got := fmt.Sprintf("%x", first); got != want {
		t.Errorf("%s instead of %s", got, want)
	}
}

// TestWhatPrefixesRefuse: what a Prefix refuses, or is damaged anywhere, has no form of it, so that
// it is reported as without forms.
func TestWhatPrefixesRefuse(t *testing.T) {
	whole := encodedJPEG(t, 400, 300)
	odd := encodedPNG(t, 40, 30)
	for name, c := range map[string]struct {
		list  string
		file  []byte
		works bool // from the file
	}{
		"nothing left":     {"Resize(1, max_size=2), CenterCrop(8)", encodedJPEG(t, 4000, 1), false},
		"too many pixels":  {"ImgDecode(max_pixels=99), CenterCrop(8)", whole, false},
		"no image":         {"Resize(8), CenterCrop(8)", []byte("what is this"), false},
		"a truncated JPEG": {"Resize(8), CenterCrop(8)", whole[:len(whole)/2], false},
		"a truncated PNG":  {"Resize(8), CenterCrop(8)", odd[:len(odd)/2], false},
		"another mode": {
			"ImgDecode('L', leave=True, unconverted=True), CenterCrop(8)", whole, false,
		},
		// Go's decoder always decodes all of a JPEG.
		"damage that does not matter": {"CenterCrop(8)", whole[:len(whole)-1000], exactJPEG},
	} {
		p := compiled(t, c.list)
		w := p.Worker()
		err := w.Apply(make([]byte, p.Output().Bytes()), c.file, Key{})
		if (err == nil) != c.works {
			t.Errorf("%s: %v", name, err)
		}
		a := afterPrefix(t, p)
		if a.maker == nil {
			t.Fatal(name)
		}
		if form := a.form(c.file); form != nil {
			t.Errorf("%s: it has a form", name)
		}
		a.maker.Worker.Whole(true)
		if got := a.maker.Worker.Apply(make([]byte, a.maker.Bytes()), c.file, Key{}); got == nil ||
			err != nil && got.Error() != err.Error() {
			t.Errorf("%s: %v, and from the file %v", name, got, err)
		}
		a.Close()
		w.Close()
	}
}

// TestFormsOfOtherRecipes: a Program decodes the file in a form of another recipe, and reports a
// form that is damaged.
func TestFormsOfOtherRecipes(t *testing.T) {
	file := encodedJPEG(t, 400, 300)
	of := afterPrefix(t, compiled(t, "Resize(256), CenterCrop(224), ToTensor()"))
	defer of.Close()
	form := of.form(file)
	if form == nil {
		t.Fatal("there is no form")
	}
	for _, list := range []string{
		"Resize(256), CenterCrop(224), ToTensor()", // for comparison
		"Resize(255), CenterCrop(224), ToTensor()",
		"RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor()",
		"ImgDecode(fast=True), RandomResizedCrop(50), ToTensor()",
		"ImgDecode('L'), Resize((50, 60)), RandomRotation(30)",
	} {
		w := compiled(t, list).Worker()
		for _, recording := range []bool{false, true} {
			w.Record(recording)
			w.Form(forms.AsRead)
			want := make([]byte, w.program.Output().Bytes())
			if err := w.Apply(want, file, Key{Seed: 3}); err != nil {
				t.Fatal(err)
			}
			drawn := fmt.Sprint(w.Drawn())
			got := make([]byte, len(want))
			w.Form(forms.Transformed)
			if err := w.Apply(got, form, Key{Seed: 3}); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v, or other bytes", list, err)
			}
			if fmt.Sprint(w.Drawn()) != drawn {
				t.Errorf("%s: other parameters: %v instead of %s", list, w.Drawn(), drawn)
			}
			err := w.Apply(got, form[:len(form)-1], Key{})
			if !errors.Is(err, forms.ErrDamaged) {
				t.Errorf("%s: a byte less: %v", list, err)
			}
		}
		w.Close()
	}
}

// TestPrefixIsNotDone: what a form holds is not computed again, and the form is not changed.
func TestPrefixIsNotDone(t *testing.T) {
	file := encodedJPEG(t, 400, 300)
	p := compiled(t, "Resize(256), CenterCrop(224), RandomHorizontalFlip(1), ColorJitter(0.4)")
	a := afterPrefix(t, p)
	defer a.Close()
	form := a.form(file)
	before := bytes.Clone(form)
	a.worker.Form(forms.Transformed)
	dst := make([]byte, p.Output().Bytes())
	if err := a.worker.Apply(dst, form, Key{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(form, before) {
		t.Error("the form was changed")
	}
	// The pixels are those of the form: of others, the result is another one.
	clear(form[len(form)-int(a.maker.Bytes()):])
	black := make([]byte, len(dst))
	if err := a.worker.Apply(black, form, Key{}); err != nil || bytes.Equal(black, dst) {
		t.Errorf("%v, or the same bytes", err)
	}
}
