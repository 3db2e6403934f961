package transform

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// viewLists are lists of one result whatever is drawn: they crop, resize, change pixels in place
// and mirror, of what they share and of copies.
var viewLists = []string{
	"CenterCrop((40, 30)), ColorJitter((1.5, 1.5)), ToTensor()",
	"CenterCrop((40, 30)), ToTensor()",
	"RandomHorizontalFlip(1), Resize((90, 30), 'nearest'), ToTensor(dtype=torch.uint8)",
	"Resize((20, 50)), Resize((33, 34)), Grayscale(3), ToTensor('NHWC')",
	"Pad(9, padding_mode='reflect'), Pad(3, fill=4), CenterCrop(60)",
	"Grayscale(), CenterCrop(300), ToTensor(), Normalize(0.4, 0.3)",
	"Resize((20, 50)), ColorJitter(saturation=(0.5, 0.5)), RandomVerticalFlip(1), ToTensor()",
	"RandomInvert(1), RandomVerticalFlip(1), GaussianBlur(3, (1, 1)), CenterCrop(31), ToTensor()",
}

// viewsOf returns a list with Views of these lists.
func viewsOf(before string, lists ...string) string {
	return before + "Views([[" + strings.Join(lists, "], [") + "]])"
}

// TestViewsEqualTheirLists: each view is what its list makes of the image by itself, whatever the
// lists before it did with the pixels that all start from.
func TestViewsEqualTheirLists(t *testing.T) {
	for _, before := range []string{
		"", "RandomHorizontalFlip(1), ", "Resize(70), ", "Resize((90, 80)), RandomVerticalFlip(1), ",
		"ImgDecode('L'), ", "Pad(3), ", "CenterCrop((80, 70)), ColorJitter((0.5, 0.5)), ",
	} {
		for _, src := range [][]byte{encodedJPEG(t, 130, 95), encodedPNG(t, 70, 101)} {
			for shift := range viewLists { // each list comes first once
				lists := slices.Concat(viewLists[shift:], viewLists[:shift])
				got := made(t, viewsOf(before, lists...), src)
				for _, list := range lists {
					want := made(t, before+list, src)
					if !bytes.HasPrefix(got, want) {
						t.Fatalf("after %q, list %q of %q differs", before, list, lists)
					}
					got = got[len(want):]
				}
				if len(got) > 0 {
					t.Fatalf("%d bytes more", len(got))
				}
			}
		}
	}
}

// made is what a list makes of a sample.
func made(t *testing.T, list string, src []byte) []byte {
	t.Helper()
	p := compiled(t, list)
	w := p.Worker()
	defer w.Close()
	dst := make([]byte, p.bytes)
	if err := w.Apply(dst, src, Key{}); err != nil {
		t.Fatalf("%s: %v", list, err)
	}
	return dst
}

// TestViewsDrawOneAfterAnother: all draw from the generators of one entry, so that equal lists make
// different views, and those of the first do not depend on the others.
func TestViewsDrawOneAfterAnother(t *testing.T) {
	const list = "RandomResizedCrop(20), RandomHorizontalFlip(), ColorJitter(0.5), ToTensor()"
	src := encodedJPEG(t, 130, 95)
	two := made(t, "Views(["+list+"], n=2)", src)
	three := made(t, "Views(["+list+"], n=3)", src)
	half := len(two) / 2
	if bytes.Equal(two[:half], two[half:]) {
		t.Error("both views are equal")
	}
	if !bytes.HasPrefix(three, two) {
		t.Error("a third view changes the first two")
	}
	if one := made(t, "Views([["+list+"]])", src); !bytes.Equal(one, two[:half]) {
		t.Error("a second view changes the first one")
	}
}

// TestViewsAreErased: parts of each view's tensor are, with numbers and a target of its own.
func TestViewsAreErased(t *testing.T) {
	lists := []string{
		"CenterCrop(20), ToTensor(), RandomErasing(1, value='random'), Normalize(0.5, 0.2), " +
			"RandomErasing(1, value=3)",
		"CenterCrop((9, 30)), Grayscale(), ToTensor('NHWC'), RandomErasing(1, value=7), " +
			"ConvertImageDtype('float16')",
	}
	src := encodedJPEG(t, 130, 95)
	both := made(t, viewsOf("", lists...), src)
	first := made(t, lists[0], src) // whose entries have positions of their own
	if one := made(t, viewsOf("", lists[0]), src); !bytes.HasPrefix(both, one) {
		t.Error("the second view changes the first one")
	} else if bytes.Equal(one, first) {
		t.Error("what is erased does not follow from the position of Views")
	}
	plain := made(t, strings.Replace(lists[1], "RandomErasing(1, value=7), ", "", 1), src)
	changed, seven := 0, []byte{0, 0x47}
	for i, second := 0, both[len(first):]; i < len(second); i += 2 {
		if !bytes.Equal(second[i:i+2], plain[i:i+2]) {
			changed++
			if !bytes.Equal(second[i:i+2], seven) {
				t.Fatalf("element %d is %x", i/2, second[i:i+2])
			}
		}
	}
	if changed == 0 || changed == len(plain)/2 {
		t.Errorf("%d of %d elements are erased", changed, len(plain)/2)
	}
}

// TestOutputsOfViews: each view has a shape and a type of its own, and tools show all of them.
func TestOutputsOfViews(t *testing.T) {
	p := compiled(t, `Views([[RandomResizedCrop(24), ToTensor()],
		Compose([CenterCrop((9, 6)), ToTensor("NHWC", "float16")]), CenterCrop(5)])`)
	want := []Output{
		{Shape: []int{3, 24, 24}, Type: pixels.Float32, Layout: pixels.CHW},
		{Shape: []int{9, 6, 3}, Type: pixels.Float16, Layout: pixels.HWC},
		{Shape: []int{5, 5, 3}, Type: pixels.Uint8, Layout: pixels.HWC},
	}
	if diff := cmp.Diff(want, p.Outputs()); diff != "" {
		t.Error(diff)
	}
	names := []string{
		"ImgDecode", "Views", "Views: RandomResizedCrop", "Views: ToTensor", "Views: CenterCrop",
	}
	if diff := cmp.Diff(names, p.Names()); diff != "" {
		t.Error(diff)
	}
	if got, want := p.Expected(1000), float64(24*24*3*4+9*6*3*2+5*5*3); got != want {
		t.Errorf("%v bytes are expected, want %v", got, want)
	}
	sample := make([]byte, p.bytes)
	w := p.Worker()
	defer w.Close()
	w.Record(true)
	if err := w.Apply(sample, encodedPNG(t, 70, 50), Key{}); err != nil {
		t.Fatal(err)
	}
	if m, err := p.Picture(sample); err != nil || m.Bounds().Dx() != 24+6+5 || m.Bounds().Dy() != 24 {
		t.Errorf("the picture has %v: %v", m.Bounds(), err)
	}
	if d := w.Drawn(); len(d) != 1 || p.Names()[d[0].Step] != "Views: RandomResizedCrop" {
		t.Errorf("drawn: %v", d)
	}
}

// TestFaultsOfViews: what cannot work is refused, with the view and the place in its list.
func TestFaultsOfViews(t *testing.T) {
	for _, f := range [][2]string{
		{"Views()", "views is not given"},
		{"Views([])", "at least 1 view and at most 64"},
		{"Views(3)", "views is 3"},
		{"Views([3])", "view 0 must be a transform, or a list of them"},
		{"Views([CenterCrop(3)], n=0)", "n is 0"},
		{"Views([CenterCrop(3)], n=65)", "n is 65"},
		{
			"Views([[CenterCrop(3)], [Resize(-1)]])",
			"transforms[0] Views: view 1: transforms[0] Resize: size is -1",
		},
		{"Views([[RandomCrop(3), Pad()]])", "view 0: transforms[1] Pad: padding is not given"},
		{"Views([ToTensor()], n=2)", "view 0: the output has no fixed size"},
		{
			"Views([[CenterCrop(3), ToTensor(), ToTensor()]])",
			"view 0: transforms[2] ToTensor: the list already",
		},
		{"ToTensor(), Views([CenterCrop(3)])", "must come before ToTensor"},
		{"Views([CenterCrop(3)]), ToTensor()", "Views must come last in the list"},
		{"Views([Views([CenterCrop(3)])])", "a view has no views of its own"},
		{"Views([ImgDecode(), CenterCrop(3)], n=1)", "must come first in the list"},
		{"Views([CenterCrop(3), Ragged()], n=1)", "Ragged is no part of a view"},
		{"Reshape(2, 3, 4), Views([CenterCrop(3)])", "Reshape makes arrays"},
		{"Views([[CenterCrop(16384), ToTensor()]])", "pixels are too many"},
		{"Views([CenterCrop(5000), ToTensor()], n=4)", "the views have too many pixels"},
		{
			`[{"name": "Views", "views": [[{"name": "CenterCrop", "size": 3, "position": 1}]]}]`,
			`"position"`,
		},
	} {
		list, says := f[0], f[1]
		description, err := Parse(list)
		if err == nil {
			_, err = Compile(description)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %q", list, err, says)
		}
	}
}

// TestViewsWithinMemory: a sample that may take too little memory for one of its views requests
// more, until it becomes what it does without a limit; and a worker keeps no more than it may.
func TestViewsWithinMemory(t *testing.T) {
	src := encodedPNG(t, 320, 240)
	list := viewsOf("", append(viewLists, "Resize(900), CenterCrop(400)")...)
	want, p := made(t, list, src), compiled(t, list)
	w := p.Worker()
	defer w.Close()
	dst := make([]byte, p.bytes)
	for memory, tries := int64(1), 0; ; tries++ {
		w.Limit(memory, 1<<30, 0)
		err := w.Apply(dst, src, Key{})
		if err == nil {
			break
		}
		var short *MemoryError
		if !errors.As(err, &short) || short.Need <= memory || tries > 20 {
			t.Fatalf("with %d bytes, after %d tries: %v", memory, tries, err)
		}
		memory = short.Need
	}
	if !bytes.Equal(dst, want) {
		t.Error("it becomes something else")
	}
	if w.Memory() != 0 {
		t.Errorf("%d bytes are kept", w.Memory())
	}
}

// TestViewsLeaveNothing: what a sample becomes does not depend on those before it.
func TestViewsLeaveNothing(t *testing.T) {
	p := compiled(t, viewsOf("", "RandomResizedCrop(24), ColorJitter(0.5), ToTensor()",
		"RandomCrop(30, padding=2), RandomHorizontalFlip(), ToTensor()"))
	samples := [][]byte{
		encodedJPEG(t, 300, 200), encodedPNG(t, 77, 131), []byte("no image"), encodedJPEG(t, 64, 400),
	}
	results := func(fresh bool) (list []string) {
		w := p.Worker()
		defer w.Close()
		for i := range 12 {
			of := w
			if fresh {
				of = p.Worker()
			}
			dst := make([]byte, p.bytes)
			err := of.Apply(dst, samples[i%len(samples)], Key{Seed: 3, Epoch: i})
			if err != nil {
				dst = nil
			}
			list = append(list, fmt.Sprintf("%x %v", dst, err))
			if fresh {
				of.Close()
			}
		}
		return list
	}
	if !slices.Equal(results(true), results(false)) {
		t.Error("results depend on earlier samples")
	}
}
