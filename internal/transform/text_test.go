package transform

import (
	"slices"
	"strings"
	"testing"
)

// TestParse: lists as they stand in scripts.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		`RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor()`: `[` +
			`{"name":"RandomResizedCrop","size":224},` +
			`{"name":"RandomHorizontalFlip"},` +
			`{"name":"ToTensor"}]`,
		` [ CenterCrop( size = (3 , 4,) ) , ] `: `[{"name":"CenterCrop","size":[3,4]}]`,
		`T.Compose([transforms.Resize(8, max_size=None), ToTensor()])`: `[` +
			`{"max_size":null,"name":"Resize","size":8},` +
			`{"name":"ToTensor"}]`,
		"nn.Sequential(Resize(8),\n  " +
			"ToTensor(),)": `[{"name":"Resize","size":8},{"name":"ToTensor"}]`,
		`RandomResizedCrop(8, ratio=(3/4, 4./3), antialias=True)`: `[` +
			`{"antialias":true,"name":"RandomResizedCrop",` +
			`"ratio":[0.75,1.3333333333333333],"size":8}]`,
		`Resize(8, T.InterpolationMode.BICUBIC), Pad(-1, fill=1e1)`: `[` +
			`{"interpolation":"bicubic","name":"Resize","size":8},` +
			`{"fill":10,"name":"Pad","padding":-1}]`,
		`ImgDecode('L', fast=True), ConvertImageDtype(torch.half)`: `[` +
			`{"fast":true,"mode":"L","name":"ImgDecode"},` +
			`{"dtype":"float16","name":"ConvertImageDtype"}]`,
		`Views(Compose([Resize(3), ToTensor()]), n=2)`: `[{"n":2,"name":"Views","views":` +
			`[{"name":"Resize","size":3},{"name":"ToTensor"}]}]`,
		`T.Views([[Resize(3)], T.ToTensor()])`: `[{"name":"Views","views":[[{"name":"Resize",` +
			`"size":3}],{"name":"ToTensor"}]}]`,
		``:                                `[]`,
		`[]`:                              `[]`,
		`[{"name": "Resize", "size": 3}]`: `[{"name": "Resize", "size": 3}]`,
	} {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if string(got) != want {
			t.Errorf("%s is\n%s, want\n%s", text, got, want)
		}
	}
	for text, says := range map[string]string{
		`Rezise(3)`:                           `did you mean "Resize"?`,
		`Resize`:                              "( after Resize was expected",
		`Resize(`:                             "the text ends where a value",
		`Resize(3`:                            "a comma or )",
		`Resize(3) ToTensor()`:                "a comma expected",
		`Resize(3, size=4)`:                   "given twice",
		`Resize(1, 2, 3, 4, 5, 6)`:            "takes at most 5 arguments",
		`Resize(size=)`:                       "a value expected",
		`[Resize(3)`:                          "a transform",
		`Resize(3)]`:                          "comma expected",
		`Resize("3)`:                          "unterminated string",
		`Resize(3/0)`:                         "division by zero",
		`Resize(1e999)`:                       "value expected",
		`3`:                                   "", // valid JSON: Compile's to refuse
		strings.Repeat("[", 1000):             "a transform",
		`Resize(` + strings.Repeat("[", 1000): "too deeply",
		strings.Repeat("Compose(", 1000):      "too deeply",
	} {
		_, err := Parse(text)
		if says == "" {
			if err != nil {
				t.Errorf("%.40s: %v", text, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40s: %v does not say %q", text, err, says)
		}
	}
}

// FuzzCompile: no description ends the process, or is taken with an output that is not fixed.
func FuzzCompile(f *testing.F) {
	for _, c := range conformance {
		f.Add(c.transforms)
	}
	for _, c := range faults {
		f.Add(c.description)
	}
	f.Fuzz(func(t *testing.T, text string) {
		description, err := Parse(text)
		if err != nil {
			return
		}
		p, err := Compile(description)
		if err != nil {
			if p != nil || err.Error() == "" {
				t.Errorf("%v with %q", p, err)
			}
			return
		}
		if p.Ragged() {
			if o := p.Output(); o.Bytes() != 0 || !slices.Contains([]int{1, 3}, o.Shape[2]) ||
				p.Expected(1000) < 1 {
				t.Errorf("output %v, %g bytes", o, p.Expected(1000))
			}
			return
		}
		n := p.Output().Type.Size()
		for _, d := range p.Output().Shape {
			n *= d
		}
		if n <= 0 || n > maxOutput || n != p.Output().Bytes() {
			t.Errorf("output %v", p.Output())
		}
		w := p.Worker()
		defer w.Close()
		if n < 1<<20 && w.Apply(make([]byte, n), nil, Key{}) == nil {
			t.Error("an empty sample is none")
		}
	})
}
