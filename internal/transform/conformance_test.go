package transform

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// conformance is the suite: every transform has its entries. What comes out must equal
// torchvision's to the bit, but where levels are allowed: grey levels by which it may differ
// anywhere. Those that begin with a resize to few pixels are tested with some of the images, as
// others test decoding.
var conformance = []struct {
	transforms string
	levels     float64
}{
	{transforms: `ImgDecode(), Resize((64, 80))`},
	{transforms: `ImgDecode("L"), Resize((64, 80))`},
	{transforms: `ImgDecode(orient=True), Resize((64, 80))`},
	{transforms: `Resize((224, 224), "nearest")`},
	{transforms: `Resize((224, 224), "box")`},
	{transforms: `Resize((97, 224), "bilinear")`},
	{transforms: `Resize((224, 50), "hamming")`},
	{transforms: `Resize((224, 224), "bicubic")`},
	{transforms: `Resize((30, 30), "lanczos")`},
	{transforms: `Resize(256), CenterCrop(224)`},
	{transforms: `Resize(100, "bicubic", 160), CenterCrop((100, 160))`},
	{transforms: `Resize(64), Resize((50, 40)), Resize((60, 60), "nearest")`},
	{transforms: `CenterCrop(224)`},
	{transforms: `CenterCrop((101, 34))`},
	{transforms: `CenterCrop((300, 64)), CenterCrop(51)`},
	{transforms: `RandomCrop(32)`},
	{transforms: `RandomCrop(32, padding=4)`},
	{transforms: `RandomCrop((64, 48), padding=(3, 5), fill=(255, 128.7, 0))`},
	{transforms: `RandomCrop(90, pad_if_needed=True)`},
	{
		transforms: `RandomCrop((200, 90), padding=(1, 2, 3, 4), pad_if_needed=True,
			padding_mode="edge")`,
	},
	{
		transforms: `RandomCrop((200, 90), padding=(1, 2, 0, 5), pad_if_needed=True,
			padding_mode="reflect")`,
	},
	{transforms: `RandomCrop((90, 200), padding=2, pad_if_needed=True, padding_mode="symmetric")`},
	{transforms: `RandomCrop((60, 20), padding=(-3, 2), pad_if_needed=True)`},
	{transforms: `RandomResizedCrop(224)`},
	{
		transforms: `RandomResizedCrop((50, 70), scale=(0.5, 2), ratio=(0.2, 5),
			interpolation="bicubic")`,
	},
	{
		transforms: `RandomResizedCrop(64, scale=(0.01, 0.1), interpolation="nearest"),
			RandomHorizontalFlip()`,
	},
	{transforms: `RandomResizedCrop(64, scale=(1, 1), ratio=(1.5, 1.5))`},
	{
		transforms: `RandomResizedCrop(64, interpolation=("bilinear", "bicubic")),
			RandomHorizontalFlip(), ColorJitter(0.4, 0.4, 0.4), ToTensor()`,
	},
	{transforms: `RandomResizedCrop(50, interpolation=["lanczos", "nearest", "box"])`},
	{transforms: `RandomHorizontalFlip(1), Resize((60, 61), "nearest")`},
	{transforms: `RandomHorizontalFlip(1), RandomVerticalFlip(1), Resize((60, 61), "box")`},
	{transforms: `RandomHorizontalFlip(1), Resize((60, 61), "bilinear")`, levels: 1},
	{transforms: `RandomVerticalFlip(), RandomResizedCrop(99), RandomHorizontalFlip()`, levels: 1},
	{
		transforms: `RandomVerticalFlip(1), RandomHorizontalFlip(1),
			RandomCrop(30, padding=(20, 9, 0, 1), padding_mode="reflect")`,
	},
	{
		transforms: `RandomHorizontalFlip(0), RandomVerticalFlip(0.5), CenterCrop((600, 7)),
			RandomHorizontalFlip()`,
	},
	{transforms: `Resize(40), Pad(3), CenterCrop(40)`},
	{transforms: `Pad((2, 3), fill=7), CenterCrop(60)`},
	{transforms: `Pad((1, 2, 3, 4), padding_mode="edge"), Resize((20, 30))`},
	{transforms: `Resize((9, 10)), Pad((1, 8, 9, 4), padding_mode="reflect")`},
	{transforms: `Resize((9, 10)), Pad((1, 20, 31, 4), padding_mode="symmetric")`},
	{transforms: `Resize((9, 10)), Pad((-1, 2, 3, -4), padding_mode="reflect")`},
	{transforms: `Resize((9, 10)), Pad((-1, 2, 3, -4), fill=200)`},
	{
		transforms: `Resize((9, 10)), RandomHorizontalFlip(1), Pad((1, 2, 3, 4), fill=(1, 2, 3)),
			RandomCrop((11, 12))`,
	},
	{transforms: `Resize((90, 91)), ColorJitter(brightness=0.4)`},
	{transforms: `Resize((90, 91)), ColorJitter(contrast=(0.2, 3))`},
	{transforms: `Resize((90, 91)), ColorJitter(saturation=0.9)`},
	{transforms: `Resize((90, 91)), ColorJitter(saturation=(2, 3))`},
	{transforms: `Resize((90, 91)), ColorJitter(hue=0.5)`},
	{
		transforms: `RandomResizedCrop(64), RandomHorizontalFlip(), ColorJitter(0.4, 0.4, 0.4, 0.1),
			ToTensor()`,
	},
	{transforms: `ImgDecode("L"), Resize((90, 91)), ColorJitter(0.4, 0.4, 0.4, 0.1), ToTensor()`},
	{transforms: `Resize((30, 31)), Grayscale()`},
	{transforms: `Grayscale(3), Resize((30, 31))`},
	{
		transforms: `RandomHorizontalFlip(1), Grayscale(1), RandomCrop(20, pad_if_needed=True, fill=9),
			ToTensor(), Normalize(0.4, 0.2)`,
	},
	{transforms: `RandomResizedCrop(48), ToTensor()`},
	{
		transforms: `RandomResizedCrop((48, 50)), RandomHorizontalFlip(), RandomVerticalFlip(),
			ToTensor(layout="NHWC")`,
	},
	{transforms: `RandomResizedCrop((48, 50)), ToTensor(dtype="uint8")`},
	{
		transforms: `RandomResizedCrop((48, 50)), ToTensor(dtype=torch.uint8),
			ConvertImageDtype(torch.float32)`,
	},
	{transforms: `RandomResizedCrop((48, 50)), ToTensor(), ConvertImageDtype(torch.uint8)`},
	{transforms: `RandomResizedCrop((48, 50)), ToTensor(), ConvertImageDtype(torch.float16)`},
	{transforms: `RandomResizedCrop((48, 50)), ToTensor(), ConvertImageDtype(torch.bfloat16)`},
	{
		transforms: `RandomResizedCrop((48, 50)), ToTensor(),
			Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))`,
	},
	{transforms: `RandomResizedCrop(64), RandomHorizontalFlip(), RandAugment()`},
	{transforms: `Resize((70, 40)), RandAugment(4, 20, 25, "bilinear", fill=(9, 8, 7))`},
	{transforms: `RandomResizedCrop(64), RandomVerticalFlip(), TrivialAugmentWide()`},
	{transforms: `Resize((70, 40)), TrivialAugmentWide(12, "bicubic", 99)`},
	{transforms: `RandomResizedCrop(64), RandomHorizontalFlip(), AutoAugment()`},
	{transforms: `Resize((70, 40)), AutoAugment("cifar10", "bilinear")`},
	{transforms: `Resize((70, 40)), AutoAugment("svhn")`},
	{transforms: `ImgDecode("L"), Resize((70, 40)), AutoAugment("svhn", fill=3)`},
	{transforms: `Resize((70, 40)), RandomHorizontalFlip(), RandomRotation(180)`},
	{transforms: `Resize((70, 40)), RandomRotation((-9, 90), "bicubic", False, (9, 8), (1, 2, 3))`},
	{transforms: `Resize((70, 40)), RandomRotation(50, "bilinear", True), CenterCrop(60)`},
	{transforms: `Resize((70, 70)), RandomRotation((90, 90), expand=True), CenterCrop(60)`},
	{transforms: `Resize((70, 40)), RandomVerticalFlip(), RandomAffine(0, (0.3, 0.1))`},
	{transforms: `Resize((70, 40)), RandomAffine(30, None, (0.5, 2), 20, "bilinear", 50)`},
	{transforms: `Resize((70, 40)), RandomAffine((5, 9), (0, 1), None, (1, 2, 3, 4), center=(1, 2))`},
	{transforms: `Resize((70, 40)), RandomHorizontalFlip(), RandomInvert(0.7)`},
	{transforms: `Resize((70, 40)), RandomPosterize(2, 0.7)`},
	{transforms: `Resize((70, 40)), RandomSolarize(77.5, 0.7)`},
	{transforms: `Resize((70, 40)), RandomHorizontalFlip(), RandomAdjustSharpness(0.3, 0.9)`},
	{transforms: `Resize((2, 2)), RandomAdjustSharpness(3, 1)`},
	{transforms: `Resize((70, 40)), RandomAutocontrast(0.7)`},
	{transforms: `Resize((70, 40)), RandomEqualize(0.7)`},
	{transforms: `Resize((70, 40)), RandomGrayscale(0.5)`},
	{transforms: `ImgDecode("L"), Resize((70, 40)), RandomGrayscale(0.5)`},
	{transforms: `Resize((70, 40)), GaussianBlur((5, 9), (0.5, 3))`, levels: 1},
	{transforms: `Resize((70, 40)), RandomHorizontalFlip(), GaussianBlur(3, 1.3)`, levels: 1},
	{
		transforms: `Resize((70, 40)), RandomHorizontalFlip(), RandomApply([ColorJitter(0.4, 0.4, 0.4,
			0.1), RandomInvert(), RandomRotation(5)], p=0.7)`,
	},
	{
		transforms: `Resize((70, 40)), RandomOrder([RandomInvert(), RandomSolarize(90),
			Compose([RandomRotation(5), RandomPosterize(3)])])`,
	},
	{transforms: `RandomChoice([CenterCrop(50), RandomCrop(50, pad_if_needed=True)])`},
	{
		transforms: `Resize((70, 40)), RandomChoice([RandomInvert(1), [RandomRotation(5),
			RandomSolarize(9)], RandomEqualize()], p=[1, 2, 0.5])`,
	},
	{transforms: `Resize((70, 40)), ToTensor(), RandomErasing(0.8)`},
	{
		transforms: `Resize((70, 40)), ToTensor(), RandomErasing(0.8, (0.1, 0.6), value=(0.5, 1, 2)),
			Normalize(0.5, (0.2, 0.3, 0.4)), RandomErasing(0.5, value=-1)`,
	},
	{
		transforms: `Resize((70, 40)), ToTensor("NHWC"), RandomErasing(0.8, value=(0.5, 1, 2)),
			RandomErasing(0.5, value=-1)`,
	},
	{
		transforms: `Resize((70, 40)), ToTensor(dtype="uint8"), RandomErasing(1, value=77.9),
			ConvertImageDtype(torch.float16), RandomErasing(1, value=0.3)`,
	},
	{transforms: `Resize((70, 40)), ToTensor(), RandomErasing(0.8, value="random")`, levels: 0.003},
	{
		transforms: `RandomResizedCrop((48, 50)), ToTensor(), Normalize([0.485, 0.456, 0.406], [0.2]),
			ConvertImageDtype(torch.half)`,
	},
	{
		transforms: `RandomResizedCrop((48, 50)), ToTensor(), Normalize(0.5, (0.2, 0.3, 0.4)),
			ConvertImageDtype(torch.bfloat16)`,
	},
}

// compiled parses and compiles a list that must be right.
func compiled(t testing.TB, text string) *Program {
	t.Helper()
	description, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(description)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConformance: what each transform makes equals what torchvision makes of the same image with
// PIL, with the same random parameters; and what it refuses, torchvision refuses.
func TestConformance(t *testing.T) {
	py := startPython(t)
	type file struct {
		testImage
		path string
		data []byte
		form []byte
		kind forms.Kind
	}
	var files []file
	var converter forms.Converter
	defer converter.Close()
	formed := map[forms.Kind]int{}
	for i, img := range testImages {
		a := py.ask(map[string]any{"image": img})
		if a.Error != "" {
			t.Fatal(img, ": ", a.Error)
		}
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.WriteFile(path, a.data, 0o600); err != nil {
			t.Fatal(err)
		}
		f := file{testImage: img, path: path, data: a.data}
		if form, err := converter.Convert(nil, a.data); err == nil {
			info, _ := forms.Read(form)
			f.form, f.kind = form, info.Kind
		}
		formed[f.kind]++
		files = append(files, f)
	}
	if formed[forms.Decoded] < 5 || exactJPEG && (formed[forms.Exact] < 5 ||
		formed[forms.Pixels] < 1) {
		t.Errorf("%v", formed)
	}
	seen := map[string]bool{}
	epochs := 3
	if raceDetector || sanitized || testing.Short() || !exactJPEG { // pixels compares C with Go
		epochs = 1
	}
	for _, c := range conformance {
		t.Run(c.transforms, func(t *testing.T) {
			p := compiled(t, c.transforms)
			for _, name := range p.Names() {
				seen[name] = true
			}
			w := p.Worker()
			defer w.Close()
			w.Record(true)
			after := afterPrefix(t, p)
			defer after.Close()
			dst := make([]byte, p.Output().Bytes())
			again := make([]byte, len(dst))
			small := strings.HasPrefix(c.transforms, "Resize((70, ")
			for i, f := range files {
				if small && i%4 != 0 {
					continue
				}
				if f.Save["format"] == "JPEG" && !exactJPEG {
					continue
				}
				for epoch := range epochs {
					err := w.Apply(dst, f.data, Key{Seed: 7, Epoch: epoch, Sample: i})
					want := py.ask(map[string]any{
						"file": f.path,
						"steps": pythonSteps(t, c.transforms, w,
							Key{Seed: 7, Epoch: epoch, Sample: i}),
					})
					switch {
					case err != nil && want.Error != "":
						continue
					case err != nil:
						t.Errorf("%v: %v", f.testImage, err)
						continue
					case want.Error != "":
						t.Errorf("%v: torchvision: %s", f.testImage, want.Error)
						continue
					}
					compare(t, fmt.Sprintf("%v epoch %d %v", f.testImage, epoch, w.Drawn()),
						p.Output(), dst, want, c.levels)
					if after.compare(f.data, dst, Key{Seed: 7, Epoch: epoch, Sample: i}) {
						formed[forms.Transformed]++
					}
					if f.form == nil {
						continue
					}
					w.Form(f.kind)
					err = w.Apply(again, f.form, Key{Seed: 7, Epoch: epoch, Sample: i})
					w.Form(forms.AsRead)
					if err != nil || !bytes.Equal(again, dst) {
						t.Errorf("%v epoch %d: %v form: %v, or other bytes", f.testImage, epoch, f.kind,
							err)
					}
				}
			}
		})
	}
	if n := formed[forms.Transformed]; n < 100 {
		t.Errorf("%d results after what the first steps make", n)
	}
	for _, k := range kinds {
		// which Debian's torchvision has not, or computes in float32 (views_test.go compares views
		// with their lists; stored_test.go pixels with files)
		if !seen[k.name] && !slices.Contains([]string{
			"Reshape", "ScaleShift16", "Ragged", "RandomPerspective", "TimmRandAugment",
			"TimmAutoAugment", "TimmRandomErasing", "PILGaussianBlur", "PILSolarize",
			"PILGrayscale", "Views", "Pixels",
			// of v2 and several fields: python/tests/test_joint.py
			"RandomPhotometricDistort", "ConvertMaskDtype", "SanitizeBoundingBoxes",
			"ClampBoundingBoxes", "ConvertBoundingBoxFormat",
		}, k.name) {
			t.Errorf("no list of transforms in conformance_test.go has %s: add one or more to the "+
				"suite", k.name)
		}
	}
}

// TestManyJPEGs: the lists that most use, on JPEGs of many sizes, qualities and subsamplings.
func TestManyJPEGs(t *testing.T) {
	if !exactJPEG {
		t.Skip("Go's decoder of JPEGs is near to PIL's; package codec tests how near")
	}
	py := startPython(t)
	images := 60
	if raceDetector || sanitized || testing.Short() {
		images = 8
	}
	path := filepath.Join(t.TempDir(), "image")
	for i := range images {
		d := rand.New(rand.NewPCG(4, uint64(i)))
		img := jpeg(8+d.IntN(700), 8+d.IntN(700), "RGB", 20+d.IntN(81), d.IntN(3),
			"progressive", d.IntN(4) == 0)
		data := py.ask(map[string]any{"image": img}).data
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, transforms := range []string{
			"CenterCrop(224)", "Resize((224, 224))", "Resize(256), CenterCrop(224)",
			"RandomResizedCrop(224), RandomHorizontalFlip()",
			"RandomCrop(200, pad_if_needed=True)",
			"RandomResizedCrop(176, interpolation='bicubic')",
		} {
			w := compiled(t, transforms).Worker()
			w.Record(true)
			dst := make([]byte, w.program.Output().Bytes())
			if err := w.Apply(dst, data, Key{Sample: i}); err != nil {
				t.Fatal(err)
			}
			want := py.ask(map[string]any{"file": path, "steps": pythonSteps(t, transforms, w,
				Key{Sample: i})})
			if want.Error != "" {
				t.Fatal(want.Error)
			}
			compare(t, fmt.Sprint(transforms, " ", img, " ", w.Drawn()), w.program.Output(), dst,
				want, 0)
			w.Close()
		}
	}
}

// pythonSteps is the list with what was drawn, as testdata/conformance.py takes it.
func pythonSteps(t *testing.T, transforms string, w *Worker, key Key) []map[string]any {
	description, err := Parse(transforms)
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal(description, &list); err != nil {
		t.Fatal(err)
	}
	if list[0]["name"] != "ImgDecode" {
		list = append([]map[string]any{{"name": "ImgDecode"}}, list...)
	}
	steps := make([]map[string]any, len(list))
	for i, entry := range list {
		name := entry["name"]
		delete(entry, "name")
		drawn := [][2]any{}
		for _, d := range w.Drawn() {
			if d.Step == i {
				for _, p := range d.Params {
					drawn = append(drawn, [2]any{p.Name, p.Value})
				}
			}
		}
		var d draws
		d.Begin(key.Item(), w.program.positions[i])
		steps[i] = map[string]any{
			"name": name, "args": entry, "drawn": drawn, "key": fmt.Sprint(d.Key()),
		}
	}
	return steps
}

// compare holds a sample against torchvision's.
func compare(t *testing.T, what string, o Output, got []byte, want answer, levels float64) {
	t.Helper()
	dtype := o.Type.String()
	if dtype == "bfloat16" {
		dtype = "int16" // in numpy
	}
	if want.Dtype != dtype || !slices.Equal(want.Shape, o.Shape) {
		t.Fatalf("%s: %v of shape %v, and torchvision has %v of shape %v", what, o.Type, o.Shape,
			want.Dtype, want.Shape)
	}
	if levels == 0 {
		for i := range got {
			if got[i] != want.data[i] {
				n := 0
				for j := range got {
					if got[j] != want.data[j] {
						n++
					}
				}
				t.Errorf("%s: byte %d of %d is %d, and torchvision's %d; %d differ", what, i,
					len(got), got[i], want.data[i], n)
				return
			}
		}
		return
	}
	for i := range len(got) / o.Type.Size() {
		var difference float64
		if o.Type.Size() == 1 {
			difference = math.Abs(float64(got[i]) - float64(want.data[i]))
		} else {
			a := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:]))
			b := math.Float32frombits(binary.LittleEndian.Uint32(want.data[4*i:]))
			difference = math.Abs(float64(a)-float64(b)) * 255
		}
		if difference > levels {
			t.Errorf("%s: element %d differs by %.2f levels", what, i, difference)
			return
		}
	}
}
