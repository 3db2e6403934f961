package transform

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
)

// TestFast: with DCT scaling, images come out within 45 dB of those without, and it is used where
// it can be.
func TestFast(t *testing.T) {
	if !exactJPEG {
		t.Skip("Go's decoder has no DCT scaling")
	}
	for _, size := range [][2]int{{1600, 1200}, {1603, 1201}, {800, 1000}} {
		sample := encodedJPEG(t, size[0], size[1])
		for _, transforms := range []string{
			"Resize((224, 224))", "Resize(256), CenterCrop(224)", "RandomResizedCrop(224)",
			"RandomResizedCrop(96, interpolation='bicubic'), RandomHorizontalFlip()",
			"CenterCrop((801, 799)), Resize(90), CenterCrop(90)", "Resize((150, 70), 'lanczos')",
			"Resize((100, 100), 'nearest')",
		} {
			fast, exact := compiled(t, "ImgDecode(fast=True), "+transforms).Worker(),
				compiled(t, transforms).Worker()
			a, b := make([]byte, exact.program.Output().Bytes()),
				make([]byte, exact.program.Output().Bytes())
			differ := 0
			for epoch := range 12 {
				if err := errors.Join(fast.Apply(a, sample, Key{Seed: 3, Epoch: epoch, Sample: 1}),
					exact.Apply(b, sample, Key{Seed: 3, Epoch: epoch, Sample: 1})); err != nil {
					t.Fatal(err)
				}
				sum := 0.0
				for i := range a {
					d := float64(a[i]) - float64(b[i])
					sum += d * d
				}
				if sum > 0 {
					differ++
				}
				if db := 10 * math.Log10(255*255*float64(len(a))/sum); db < 45 {
					t.Errorf("%v, %s, epoch %d: %.1f dB", size, transforms, epoch, db)
				}
			}
			if differ == 0 && size[0] == 1600 && !strings.Contains(transforms, "nearest") {
				t.Errorf("%v, %s: never decoded smaller", size, transforms)
			}
			fast.Close()
			exact.Close()
		}
	}
}

// leaves is a picture with the statistics of sharp photographs (the model of dead leaves): discs of
// all sizes over each other, as many more as they are smaller.
func leaves(width, height int) image.Image {
	draws := rand.New(rand.NewPCG(1, 2))
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for range width * height / 16 {
		const least, most = 6.0, 200.0
		x, y := draws.Float64()*float64(width), draws.Float64()*float64(height)
		u := draws.Float64()
		radius := 1 / math.Sqrt(u/(least*least)+(1-u)/(most*most)) // density goes with radius^-3
		level := func() byte { return byte(20 + draws.IntN(175)) }
		c := color.RGBA{level(), level(), level(), 255}
		for j := max(0, int(y-radius)); j < min(height, int(y+radius)+1); j++ {
			for i := max(0, int(x-radius)); i < min(width, int(x+radius)+1); i++ {
				if math.Hypot(float64(i)-x, float64(j)-y) < radius {
					m.SetRGBA(i, j, c)
				}
			}
		}
	}
	return m
}

// TestFastOfDetail: at the least ratios at which images are decoded smaller, 45 dB hold for sharp
// pictures as well.
func TestFastOfDetail(t *testing.T) {
	if !exactJPEG {
		t.Skip("Go's decoder has no DCT scaling")
	}
	const edge = 360
	var b bytes.Buffer
	if err := stdjpeg.Encode(&b, leaves(edge, edge), &stdjpeg.Options{Quality: 92}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 4} {
		size := edge // the largest that is decoded at n eighths
		for codec.Eighths(image.Pt(edge, edge), image.Pt(size, size)) > n {
			size--
		}
		transforms := fmt.Sprintf("Resize((%d, %d))", size, size)
		fast, exact := compiled(t, "ImgDecode(fast=True), "+transforms).Worker(),
			compiled(t, transforms).Worker()
		x, y := make([]byte, exact.program.Output().Bytes()),
			make([]byte, exact.program.Output().Bytes())
		if err := errors.Join(fast.Apply(x, b.Bytes(), Key{}),
			exact.Apply(y, b.Bytes(), Key{})); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i := range x {
			d := float64(x[i]) - float64(y[i])
			sum += d * d
		}
		if db := 10 * math.Log10(255*255*float64(len(x))/sum); db < 45 || sum == 0 {
			t.Errorf("%s: %.1f dB", transforms, db)
		}
		fast.Close()
		exact.Close()
	}
}

func BenchmarkApply(b *testing.B) {
	for name, c := range map[string]struct {
		transforms    string
		width, height int
	}{
		"RandomResizedCrop": {
			`RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor(),
				Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))`, 500, 375,
		},
		"CenterCrop": {
			`Resize(256), CenterCrop(224), ToTensor(),
				Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))`, 500, 375,
		},
		"ColorJitter": {
			`RandomResizedCrop(224), ColorJitter(0.4, 0.4, 0.4), ToTensor()`, 500,
			375,
		},
		"Hue": {`RandomResizedCrop(224), ColorJitter(hue=0.1), ToTensor()`, 500, 375},
		"Fast": {
			`ImgDecode(fast=True), Resize(256), CenterCrop(224), ToTensor()`,
			1600, 1200,
		},
	} {
		b.Run(name, func(b *testing.B) {
			w := compiled(b, c.transforms).Worker()
			defer w.Close()
			sample := encodedJPEG(b, c.width, c.height)
			dst := make([]byte, w.program.Output().Bytes())
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := w.Apply(dst, sample, Key{Seed: 1, Epoch: 0, Sample: i}); err != nil {
					b.Fatal(err)
				}
				i++
			}
			for i, d := range w.Times() {
				if d > 0 {
					b.ReportMetric(float64(d.Microseconds())/float64(b.N), w.program.names[i]+"-us")
				}
			}
		})
	}
}
