package transform

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	stdpng "image/png"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
)

// scene is an image with smooth parts and edges.
func scene(width, height int) image.Image {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			fx, fy := float64(x)/float64(width), float64(y)/float64(height)
			c := color.RGBA{
				byte(127 + 120*math.Sin(9*fx+4*fy)),
				byte(127 + 120*math.Cos(7*fy-2*fx)), byte(255 * fx * fy), 255,
			}
			if math.Hypot(fx-0.4, fy-0.6) < 0.2 {
				c.R, c.B = 240, 30
			}
			m.SetRGBA(x, y, c)
		}
	}
	return m
}

func encodedJPEG(t testing.TB, width, height int) []byte {
	var b bytes.Buffer
	if err := stdjpeg.Encode(&b, scene(width, height), &stdjpeg.Options{Quality: 90}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encodedPNG(t testing.TB, width, height int) []byte {
	var b bytes.Buffer
	if err := stdpng.Encode(&b, scene(width, height)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const everything = `RandomVerticalFlip(), RandomResizedCrop(64), ColorJitter(0.3, 0.3, 0.3, 0.1),
	RandomCrop(60, padding=2), RandomHorizontalFlip(), ToTensor(), Normalize(0.5, 0.2)`

// TestPure: what comes out is a function of sample and key, whatever the worker did before. The
// runner's TestWorkersShareNothing checks it on several threads.
func TestPure(t *testing.T) {
	p := compiled(t, everything)
	samples := [][]byte{encodedJPEG(t, 300, 200), encodedPNG(t, 77, 131), encodedJPEG(t, 64, 400)}
	type call struct{ sample, epoch int }
	want := map[call]string{}
	n := p.Output().Bytes()
	for sample := range samples {
		for epoch := range 4 {
			w := p.Worker()
			dst := make([]byte, n)
			key := Key{Seed: 9, Epoch: epoch, Sample: sample}
			if err := w.Apply(dst, samples[sample], key); err != nil {
				t.Fatal(err)
			}
			want[call{sample, epoch}] = string(dst)
			w.Close()
		}
	}
	w := p.Worker()
	defer w.Close()
	dst := make([]byte, n)
	for range 3 {
		for c, out := range want { // in any order
			_ = w.Apply(dst, []byte("garbage"), Key{})
			key := Key{Seed: 9, Epoch: c.epoch, Sample: c.sample}
			if err := w.Apply(dst, samples[c.sample], key); err != nil {
				t.Error(err)
			}
			if string(dst) != out {
				t.Errorf("sample %d, epoch %d comes out otherwise", c.sample, c.epoch)
			}
		}
	}
	// Other keys give other results.
	seen := map[string]bool{}
	for _, out := range want {
		seen[out] = true
	}
	if len(seen) != len(want) {
		t.Errorf("%d results of %d keys", len(seen), len(want))
	}
}

// TestPosition: a transform draws what its position says: by default its index, where ImgDecode
// does not count.
func TestPosition(t *testing.T) {
	sample := encodedPNG(t, 90, 80)
	a, b := compiled(t, "RandomResizedCrop(32)").Worker(),
		compiled(t, "ImgDecode(), RandomResizedCrop(32)").Worker()
	defer a.Close()
	defer b.Close()
	x, y := make([]byte, 32*32*3), make([]byte, 32*32*3)
	if err := errors.Join(a.Apply(x, sample, Key{Seed: 1, Epoch: 2, Sample: 3}),
		b.Apply(y, sample, Key{Seed: 1, Epoch: 2, Sample: 3})); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Error("they differ")
	}
	other := program(t, `[{"name": "RandomResizedCrop", "size": 32, "position": 1}]`).Worker()
	defer other.Close()
	if err := other.Apply(y, sample, Key{Seed: 1, Epoch: 2, Sample: 3}); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(x, y) {
		t.Error("positions 0 and 1 draw the same")
	}
	for _, position := range []string{"-1", "1.5", "null", "4294967296"} {
		list := `[{"name": "CenterCrop", "size": 8, "position": ` + position + `}]`
		if _, err := Compile([]byte(list)); err == nil ||
			!strings.Contains(err.Error(), `"position" must be a whole number from 0 to`) {
			t.Errorf("position %s: %v", position, err)
		}
	}
}

// TestMaxPixels: an image that is larger than the list allows is refused.
func TestMaxPixels(t *testing.T) {
	sample := encodedPNG(t, 90, 80)
	for most, ok := range map[int]bool{90 * 80: true, 90*80 - 1: false} {
		w := compiled(t, fmt.Sprintf("ImgDecode(max_pixels=%d), CenterCrop(8)", most)).Worker()
		err := w.Apply(make([]byte, 8*8*3), sample, Key{})
		if ok != (err == nil) ||
			!ok && (!errors.Is(err, codec.ErrTooLarge) || !strings.Contains(err.Error(), "90")) {
			t.Errorf("%d pixels at the most: %v", most, err)
		}
		w.Close()
	}
}

// TestNoAllocations: in steady state a sample costs no allocation.
func TestNoAllocations(t *testing.T) {
	samples := [][]byte{encodedJPEG(t, 500, 375), encodedJPEG(t, 333, 500)}
	if !exactJPEG || sanitized {
		t.Skip("Go's decoder of JPEGs allocates, and so does what the address sanitizer watches")
	}
	for _, transforms := range []string{
		`RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor(),
			Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))`,
		`Resize(256), CenterCrop(224), ToTensor()`, everything,
		`ImgDecode(fast=True), Resize((50, 60)), Pad(3, padding_mode="reflect"), Grayscale()`,
	} {
		w := compiled(t, transforms).Worker()
		dst := make([]byte, w.program.Output().Bytes())
		i := 0
		apply := func() {
			key := Key{Seed: 1, Sample: i % 16}
			if err := w.Apply(dst, samples[i%len(samples)], key); err != nil {
				t.Fatal(err)
			}
			i++
		}
		for range 64 {
			apply()
		}
		if n := testing.AllocsPerRun(64, apply); n != 0 {
			t.Errorf("%s: %v allocations per sample", transforms, n)
		}
		w.Close()
	}
}

// TestTimes: time is charged to the transforms that cause it, and adds up.
func TestTimes(t *testing.T) {
	p := compiled(t,
		`RandomResizedCrop(224), RandomHorizontalFlip(), ColorJitter(0.3), ToTensor(),
			Normalize(0.5, 0.2)`)
	w := p.Worker()
	defer w.Close()
	dst, sample := make([]byte, p.Output().Bytes()), encodedJPEG(t, 500, 375)
	start := time.Now()
	for i := range 20 {
		if err := w.Apply(dst, sample, Key{Seed: 1, Epoch: 0, Sample: i}); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(start)
	var sum time.Duration
	for i, d := range w.Times() {
		sum += d
		if worked := i != 5; worked != (d > 0) {
			t.Errorf("%s took %v", p.Names()[i], d)
		}
	}
	if sum > took || sum < took*9/10 {
		t.Errorf("the transforms took %v, all together %v", sum, took)
	}
	if w.Times()[0] < w.Times()[2] {
		t.Errorf("decoding took %v, and flipping %v", w.Times()[0], w.Times()[2])
	}
}

// TestBadSamples: the error says what is wrong, names the transform, and leaves the worker usable.
func TestBadSamples(t *testing.T) {
	good := encodedJPEG(t, 100, 80)
	w := compiled(t, `RandomCrop(64), ToTensor()`).Worker()
	defer w.Close()
	dst := make([]byte, 64*64*3*4)
	for _, c := range []struct {
		sample []byte
		kind   error
		says   string
	}{
		{nil, codec.ErrFormat, "ImgDecode: "},
		{[]byte("GIF89a......."), codec.ErrFormat, "ImgDecode: "},
		{good[:len(good)/2], codec.ErrTruncated, "ImgDecode: "},
		{
			encodedPNG(t, 63, 90), nil,
			"RandomCrop: 64 x 64 pixels (height x width) cannot be cut from an image of 90 x 63",
		},
	} {
		err := w.Apply(dst, c.sample, Key{})
		if err == nil || c.kind != nil && !errors.Is(err, c.kind) &&
			!errors.Is(err, codec.ErrCorrupt) || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%.10q: %v", c.sample, err)
		}
		if err := w.Apply(dst, good, Key{}); err != nil {
			t.Errorf("after %.10q: %v", c.sample, err)
		}
	}
	if err := w.Apply(dst[1:], good, Key{}); err == nil {
		t.Error("takes a buffer that is too small")
	}
	// A thin image would become 2 x 10^10 pixels, on the way.
	w = compiled(t, `Resize(60000), Pad(1), CenterCrop(8)`).Worker()
	defer w.Close()
	if err := w.Apply(make([]byte, 8*8*3), encodedPNG(t, 3, 300), Key{}); err == nil ||
		!strings.Contains(err.Error(), "too large") {
		t.Errorf("a huge image between: %v", err)
	}
	// Only its middle is wanted here.
	w = compiled(t, `Resize(60000), CenterCrop(8)`).Worker()
	defer w.Close()
	if err := w.Apply(make([]byte, 8*8*3), encodedPNG(t, 3, 300), Key{}); err != nil {
		t.Error(err)
	}
}

// TestLargeImages: a worker does not keep the room that one huge image took.
func TestLargeImages(t *testing.T) {
	var b bytes.Buffer
	if err := (&stdpng.Encoder{CompressionLevel: stdpng.BestSpeed}).Encode(&b,
		image.NewGray(image.Rect(0, 0, 6000, 4000))); err != nil {
		t.Fatal(err)
	}
	w := compiled(t, `Resize((10, 10)), ToTensor()`).Worker()
	defer w.Close()
	dst := make([]byte, 10*10*3*4)
	for _, sample := range [][]byte{encodedPNG(t, 50, 50), b.Bytes(), encodedPNG(t, 50, 50)} {
		if err := w.Apply(dst, sample, Key{}); err != nil {
			t.Fatal(err)
		}
		if n := w.Memory(); n > 1<<20 {
			t.Errorf("the worker keeps %d bytes", n)
		}
	}
}

// TestArrays: Reshape and ScaleShift16, element by element.
func TestArrays(t *testing.T) {
	integers := []int16{-5, 300, 7, 32767, -32768, 0}
	var bytes16, bytes32 []byte
	for _, v := range integers {
		bytes16 = binary.LittleEndian.AppendUint16(bytes16, uint16(v))
		bytes32 = binary.LittleEndian.AppendUint32(bytes32, math.Float32bits(float32(v)/3))
	}
	for _, c := range []struct {
		transforms string
		sample     []byte
		want       func(i int) float32
	}{
		{`Reshape(1, 3, 2)`, bytes32, func(i int) float32 { return float32(integers[i]) / 3 }},
		{`Reshape(1, 3, 2), ScaleShift16((2, 0.1), shift=(1, 3))`, bytes32, func(i int) float32 {
			return float32(float32(integers[i])/3-[]float32{1, 3}[i%2]) * []float32{2, 0.1}[i%2]
		}},
		{`Reshape(1, 3, 2, "int16"), ScaleShift16(0.5, 1)`, bytes16, func(i int) float32 {
			return (float32(integers[i]) - 1) * 0.5
		}},
		{`Reshape(1, 3, 2, "uint16"), ScaleShift16(0.5, 0)`, bytes16, func(i int) float32 {
			return float32(uint16(integers[i])) * 0.5
		}},
	} {
		w := compiled(t, c.transforms).Worker()
		dst := make([]byte, 6*4)
		if err := w.Apply(dst, c.sample, Key{}); err != nil {
			t.Errorf("%s: %v", c.transforms, err)
			continue
		}
		for i := range integers {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(dst[4*i:])); got !=
				c.want(i) {
				t.Errorf("%s: element %d is %v, want %v", c.transforms, i, got, c.want(i))
			}
		}
		if err := w.Apply(dst, c.sample[1:], Key{}); err == nil ||
			!strings.Contains(err.Error(), "Reshape: the sample has") {
			t.Errorf("%s: a short sample: %v", c.transforms, err)
		}
	}
}
