package runner

import (
	"bytes"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	"math"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform"
)

// TestWorkersShareNothing: what comes out is a function of sample and key, on however many threads.
// This package's tests run with the race detector, those of package transform without it.
func TestWorkersShareNothing(t *testing.T) {
	list, err := transform.Parse(`RandomVerticalFlip(), RandomResizedCrop(64),
		ColorJitter(0.3, 0.3, 0.3, 0.1), RandomCrop(60, padding=2), RandomHorizontalFlip(),
		ToTensor(), Normalize(0.5, 0.2)`)
	if err != nil {
		t.Fatal(err)
	}
	p := compiled(t, string(list))
	samples := [][]byte{jpegOf(t, 300, 200), pngOf(t, 77), jpegOf(t, 64, 400)}
	type call struct{ sample, epoch int }
	key := func(epoch, sample int) transform.Key {
		return transform.Key{Seed: 9, Epoch: epoch, Sample: sample}
	}
	want := map[call]string{}
	n := p.Output().Bytes()
	for sample := range samples {
		for epoch := range 4 {
			w := p.Worker()
			dst := make([]byte, n)
			if err := w.Apply(dst, samples[sample], key(epoch, sample)); err != nil {
				t.Fatal(err)
			}
			want[call{sample, epoch}] = string(dst)
			w.Close()
		}
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			w := p.Worker()
			defer w.Close()
			dst := make([]byte, n)
			for range 3 {
				for c, out := range want { // in any order
					_ = w.Apply(dst, []byte("garbage"), transform.Key{})
					if err := w.Apply(dst, samples[c.sample],
						key(c.epoch, c.sample)); err != nil {
						t.Error(err)
					}
					if string(dst) != out {
						t.Errorf("sample %d, epoch %d comes out otherwise", c.sample, c.epoch)
					}
				}
			}
		})
	}
	group.Wait()
}

// jpegOf returns a JPEG with smooth parts and edges.
func jpegOf(t *testing.T, width, height int) []byte {
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
	var b bytes.Buffer
	if err := stdjpeg.Encode(&b, m, &stdjpeg.Options{Quality: 90}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
