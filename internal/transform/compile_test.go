package transform

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// TestOutput: what comes out is known before the first sample.
func TestOutput(t *testing.T) {
	for transforms, want := range map[string]Output{
		`RandomResizedCrop(224)`: {
			Shape: []int{224, 224, 3},
			Type:  pixels.Uint8, Layout: pixels.HWC,
		},
		`RandomResizedCrop((224, 200)), ToTensor()`: {
			Shape: []int{3, 224, 200},
			Type:  pixels.Float32, Layout: pixels.CHW,
		},
		`CenterCrop((5, 6)), ToTensor("NHWC")`: {
			Shape: []int{5, 6, 3},
			Type:  pixels.Float32, Layout: pixels.HWC,
		},
		`CenterCrop((5, 6)), ToTensor(), ConvertImageDtype("half")`: {},
		`CenterCrop((5, 6)), ToTensor(memory_format="channels_last")`: {
			Shape: []int{3, 5, 6},
			Type:  pixels.Float32, Layout: pixels.HWC, ChannelsLast: true,
		},
		`CenterCrop(5), ToTensor("NHWC", memory_format="channels_last")`: {},
		`CenterCrop(5), ToTensor(), ConvertImageDtype(torch.half), Normalize(0, 1)`: {
			Shape: []int{3, 5, 5},
			Type:  pixels.Float16, Layout: pixels.CHW,
		},
		`CenterCrop(5), ToTensor(), ConvertImageDtype(torch.half), ConvertImageDtype(),
			Normalize(0, 1)`: {},
		`ImgDecode("L"), CenterCrop(5), ToTensor()`: {
			Shape: []int{1, 5, 5},
			Type:  pixels.Float32, Layout: pixels.CHW,
		},
		`ImgDecode("L"), CenterCrop(5), Grayscale(3)`: {
			Shape: []int{5, 5, 3},
			Type:  pixels.Uint8, Layout: pixels.HWC,
		},
		`CenterCrop(5), Grayscale()`: {
			Shape: []int{5, 5, 1},
			Type:  pixels.Uint8, Layout: pixels.HWC,
		},
		`Resize((30, 40)), Resize(15)`: {
			Shape: []int{15, 20, 3},
			Type:  pixels.Uint8, Layout: pixels.HWC,
		},
		`Resize((40, 30)), Resize(15, max_size=16)`: {
			Shape: []int{16, 12, 3},
			Type:  pixels.Uint8, Layout: pixels.HWC,
		},
		`Resize((40, 30)), Pad((1, 2, 3, -4))`: {
			Shape: []int{38, 34, 3},
			Type:  pixels.Uint8, Layout: pixels.HWC,
		},
		`Resize(256), RandomCrop(224), RandomVerticalFlip()`: {
			Shape: []int{224, 224, 3},
			Type:  pixels.Uint8, Layout: pixels.HWC,
		},
		`RandomCrop(9), ToTensor(dtype=torch.bfloat16)`: {
			Shape: []int{3, 9, 9},
			Type:  pixels.BFloat16, Layout: pixels.CHW,
		},
		`CenterCrop(9),ToTensor(dtype="uint8"),ConvertImageDtype()`: {
			Shape: []int{3, 9, 9},
			Type:  pixels.Float32, Layout: pixels.CHW,
		},
		`RandomCrop(9), ToTensor(), ConvertImageDtype(torch.half)`: {
			Shape: []int{3, 9, 9},
			Type:  pixels.Float16, Layout: pixels.CHW,
		},
		`RandomCrop(9), ToTensor(dtype=torch.uint8), ToTensor()`: {},
		`RandomCrop(9), ToTensor(), ConvertImageDtype(torch.uint8)`: {
			Shape: []int{3, 9, 9},
			Type:  pixels.Uint8, Layout: pixels.CHW,
		},
		`Reshape(768, 1152, 16), ScaleShift16(scale=2, shift=1)`: {
			Shape: []int{768, 1152, 16},
			Type:  pixels.Float32, Layout: pixels.HWC,
		},
		`Reshape(2, 3, 4, dtype="uint8")`: {
			Shape: []int{2, 3, 4},
			Type:  pixels.Uint8, Layout: pixels.HWC,
		},
		`Reshape(2, 3, 2, "int16"), ScaleShift16([1, 2], shift=0.5)`: {
			Shape: []int{2, 3, 2},
			Type:  pixels.Float32, Layout: pixels.HWC,
		},
	} {
		description, err := Parse(transforms)
		if err != nil {
			t.Errorf("%s: %v", transforms, err)
			continue
		}
		p, err := Compile(description)
		if want.Shape == nil {
			if err == nil {
				t.Errorf("%s: compiles", transforms)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", transforms, err)
			continue
		}
		if diff := cmp.Diff(want, p.Output()); diff != "" {
			t.Errorf("%s: %s", transforms, diff)
		}
		n := want.Type.Size()
		for _, d := range want.Shape {
			n *= d
		}
		if p.Output().Bytes() != n {
			t.Errorf("%s: %d bytes, want %d", transforms, p.Output().Bytes(), n)
		}
	}
}

// faults are descriptions that are refused, and what each message must say.
var faults = []struct {
	description string
	says        []string
}{
	{`{}`, []string{"a list of objects"}},
	{`[1]`, []string{"a list of objects"}},
	{`[`, []string{"a list of objects"}},
	{`[]`, []string{"empty", "RandomResizedCrop(224)"}},
	{`[{}]`, []string{`transforms[0]: "name"`}},
	{`[{"name": 3}]`, []string{`transforms[0]: "name"`}},
	{
		`[{"name": "RandomResizeCrop"}]`,
		[]string{
			"transforms[0]", `"RandomResizeCrop"`, `did you mean "RandomResizedCrop"?`,
			"ToTensor",
		},
	},
	{
		`[{"name": "CenterCrop"}]`,
		[]string{"transforms[0] CenterCrop: size is not given", "[height, width]"},
	},
	{
		`[{"name": "CenterCrop", "size": 5, "sise": 6}]`,
		[]string{`unknown argument "sise"; did you mean "size"?`, "allowed: size"},
	},
	{`[{"name": "CenterCrop", "size": 5.5}]`, []string{"size is 5.5", "whole number"}},
	{`[{"name": "CenterCrop", "size": [1, 2, 3]}]`, []string{"size is [1, 2, 3]"}},
	{`[{"name": "CenterCrop", "size": [1, null]}]`, []string{"size is [1, null]"}},
	{`[{"name": "CenterCrop", "size": null}]`, []string{"size is null"}},
	{`[{"name": "CenterCrop", "size": 0}]`, []string{"size is 0", "1 to 65536"}},
	{`[{"name": "CenterCrop", "size": 100000}]`, []string{"size is 100000", "1 to 65536"}},
	{`[{"name": "CenterCrop", "size": 65536}]`, []string{"too many", "1024 MiB"}},
	{
		`[{"name": "Resize", "size": [3, 3], "interpolation": "cubic"}]`,
		[]string{`interpolation is "cubic"`, `"bicubic"`},
	},
	{
		`[{"name": "Resize", "size": [3, 3], "interpolation": ["bicubic", "box"]}]`,
		[]string{`interpolation is ["bicubic", "box"]`, `"bicubic"`},
	},
	{
		`[{"name": "RandomResizedCrop", "size": 3, "interpolation": ["bicubic", "cubic"]}]`,
		[]string{`interpolation is ["bicubic", "cubic"]`, "a list of at most 16"},
	},
	{
		`[{"name": "RandomResizedCrop", "size": 3, "interpolation": []}]`,
		[]string{`interpolation is []`, "nearest, box"},
	},
	{
		`[{"name": "RandomResizedCrop", "size": 3, "interpolation": null}]`,
		[]string{"interpolation is null"},
	},
	{
		`[{"name": "Resize", "size": [3, 3], "max_size": 5}]`,
		[]string{"max_size is 5", "one number"},
	},
	{
		`[{"name": "Resize", "size": 7, "max_size": 7}]`,
		[]string{"max_size is 7", "more than size, 7"},
	},
	{
		`[{"name": "Resize", "size": [3, 3], "antialias": 3}]`,
		[]string{"antialias is 3", "true or false"},
	},
	{`[{"name": "RandomHorizontalFlip", "p": 1.5}]`, []string{"p is 1.5", "from 0 to 1"}},
	{
		`[{"name": "RandomHorizontalFlip", "p": "x"}, {"name": "RandomVerticalFlip", "p": -1}]`,
		[]string{
			`transforms[0] RandomHorizontalFlip: p is "x"`,
			"transforms[1] RandomVerticalFlip: p is -1",
		},
	},
	{
		`[{"name": "RandomResizedCrop", "size": 5, "scale": [1, 0.5], "ratio": 3}]`,
		[]string{"scale is [1, 0.5]", "in this order", "ratio is 3"},
	},
	{`[{"name": "RandomResizedCrop", "size": 5, "ratio": [0, 1]}]`, []string{"ratio is [0, 1]"}},
	{`[{"name": "RandomCrop", "size": 5, "padding": [1, 2, 3]}]`, []string{"padding is [1, 2, 3]"}},
	{`[{"name": "RandomCrop", "size": 5, "fill": 256}]`, []string{"fill is 256", "0 to 255"}},
	{
		`[{"name": "RandomCrop", "size": 5, "padding_mode": "mirror"}]`,
		[]string{`padding_mode is "mirror"`, "symmetric"},
	},
	{
		`[{"name": "Resize", "size": 20}, {"name": "RandomCrop", "size": 21}]`,
		[]string{"transforms[1] RandomCrop", "shorter edge is 20", "pad_if_needed"},
	},
	{
		`[{"name": "CenterCrop", "size": 20}, {"name": "RandomCrop", "size": 21}]`,
		[]string{"21 x 21 pixels (height x width) cannot be cut from 20 x 20"},
	},
	{
		`[{"name": "CenterCrop", "size": 20}, {"name": "Pad", "padding": -10}]`,
		[]string{"nothing is left"},
	},
	{`[{"name": "ColorJitter", "brightness": -1}]`, []string{"brightness is -1"}},
	{`[{"name": "ColorJitter", "hue": 0.6}]`, []string{"hue is 0.6", "0 to 0.5"}},
	{`[{"name": "ColorJitter", "contrast": [2, 1]}]`, []string{"contrast is [2, 1]"}},
	{
		`[{"name": "Grayscale", "num_output_channels": 2}]`,
		[]string{"num_output_channels is 2", "1 or 3"},
	},
	{`[{"name": "RandomHorizontalFlip"}]`, []string{"no fixed size", "add RandomResizedCrop(224)"}},
	{
		`[{"name": "Resize", "size": 256}]`,
		[]string{"no fixed size", "Resize(256)", "CenterCrop(256)"},
	},
	{
		`[{"name": "Resize", "size": 256}, {"name": "ToTensor"}]`,
		[]string{"no fixed size", "CenterCrop(256)"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "ImgDecode"}]`,
		[]string{"transforms[1] ImgDecode", "first"},
	},
	{`[{"name": "ImgDecode", "mode": "CMYK", "fast": 1}]`, []string{`mode is "CMYK"`, "fast is 1"}},
	{
		`[{"name": "ToTensor"}, {"name": "CenterCrop", "size": 2}]`,
		[]string{"transforms[1] CenterCrop", "before ToTensor"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "ToTensor"}, {"name": "ToTensor"}]`,
		[]string{"transforms[2] ToTensor", "already"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "Normalize", "mean": 0, "std": 1}]`,
		[]string{"transforms[1] Normalize", "needs ToTensor before it"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "ConvertImageDtype", "dtype": "float16"}]`,
		[]string{"needs ToTensor"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "ToTensor", "dtype": "uint8"},
			{"name": "Normalize", "mean": 0, "std": 1}]`,
		[]string{"floating point"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "ToTensor"},
			{"name": "Normalize", "mean": 0, "std": 1}, {"name": "ConvertImageDtype", "dtype": "uint8"}]`,
		[]string{"uint8"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "ToTensor"},
			{"name": "Normalize", "mean": 0, "std": 1}, {"name": "Normalize", "mean": 0, "std": 1}]`,
		[]string{"already"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "ToTensor"},
			{"name": "Normalize", "mean": 0, "std": [1, 0, 1]}]`,
		[]string{"std is [1, 0, 1]", "not be 0"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "ToTensor"},
			{"name": "Normalize", "mean": [1, 2], "std": 1}]`,
		[]string{"mean is [1, 2]"},
	},
	{
		`[{"name": "ImgDecode", "mode": "L"}, {"name": "CenterCrop", "size": 2}, {"name": "ToTensor"},
			{"name": "Normalize", "mean": [1, 2, 3], "std": 1}]`,
		[]string{"1 channel"},
	},
	{
		`[{"name": "ImgDecode", "mode": "L"}, {"name": "Pad", "padding": 2, "fill": [1, 2, 3]}]`,
		[]string{"one channel"},
	},
	{
		`[{"name": "ToTensor", "dtype": "float64", "layout": "CHW"}]`,
		[]string{`dtype is "float64"`, `layout is "CHW"`, "NCHW"},
	},
	{
		`[{"name": "Ragged"}, {"name": "CenterCrop", "size": 2}]`,
		[]string{"transforms[1] CenterCrop", "must come last"},
	},
	{
		`[{"name": "CenterCrop", "size": 2}, {"name": "ToTensor"}, {"name": "Ragged"}]`,
		[]string{"transforms[2] Ragged", "before ToTensor"},
	},
	{
		`[{"name": "Ragged"}, {"name": "ToTensor"}]`,
		[]string{"transforms[1] ToTensor", "must come last"},
	},
	{`[{"name": "Ragged", "largest": -1}]`, []string{"largest is -1"}},
	{`[{"name": "ScaleShift16", "scale": 1, "shift": 1}]`, []string{"needs Reshape"}},
	{
		`[{"name": "Reshape", "w": 2, "h": 2, "c": 2, "dtype": "int16"}]`,
		[]string{"add ScaleShift16"},
	},
	{`[{"name": "Reshape", "w": 1048576, "h": 1048576, "c": 2}]`, []string{"too many"}},
	{`[{"name": "Reshape", "w": 2, "h": 2, "c": 0}]`, []string{"c is 0"}},
	{
		`[{"name": "Reshape", "w": 2, "h": 2, "c": 2}, {"name": "CenterCrop", "size": 2}]`,
		[]string{"Reshape makes arrays"},
	},
	{
		`[{"name": "Reshape", "w": 2, "h": 2, "c": 2},
			{"name": "ScaleShift16", "scale": [1, 2, 3], "shift": 1}]`,
		[]string{"last axis has 2"},
	},
	{
		`[{"name": "Reshape", "w": 2, "h": 2, "c": 2},
			{"name": "ScaleShift16", "scale": [], "shift": "x"}]`,
		[]string{"scale is []", `shift is "x"`},
	},
}

// TestFaults: what cannot work is refused, and the message says where, what, and what is allowed.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		p, err := Compile([]byte(f.description))
		if err == nil {
			t.Errorf("%s compiles, to %v", f.description, p.Output())
			continue
		}
		for _, part := range f.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", f.description, err, part)
			}
		}
	}
}
