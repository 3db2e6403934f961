package survey

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform"
)

// transformsOf returns transforms of these samples on one thread.
func transformsOf(t *testing.T, list string, samples ...[]byte) *Transforms {
	t.Helper()
	parsed, err := transform.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	program, err := transform.Compile(parsed)
	if err != nil {
		t.Fatal(err)
	}
	w := program.Worker()
	t.Cleanup(w.Close)
	return &Transforms{
		program: program, samples: samples, workers: []*transform.Worker{w}, outputs: make([][]byte, 1),
	}
}

// noise is a PNG of so many random pixels in each direction.
func noise(t *testing.T, edge int) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(edge)))
	m := image.NewNRGBA(image.Rect(0, 0, edge, edge))
	for i := range m.Pix {
		m.Pix[i] = uint8(r.Uint32())
		if i%4 == 3 {
			m.Pix[i] = 255
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestForms: of a PNG of noise, the pixels are as large as the file, and a crop of them takes no
// inflating. What has no form counts as it is, and takes its time.
func TestForms(t *testing.T) {
	const crop = "CenterCrop(8), ToTensor()"
	large, small := noise(t, 512), noise(t, 256)
	f := transformsOf(t, crop, large).Forms(t.Context(), time.Millisecond)
	if !near(f.Size, 2, 0.01) || f.Sent || !(f.Time > 0 && f.Time < 1) {
		t.Errorf("forms of a PNG: %+v", f)
	}
	damaged := bytes.Clone(small)
	damaged = damaged[:len(damaged)/2]
	both := transformsOf(t, crop, large, small).Forms(t.Context(), time.Millisecond)
	if !near(both.Size, 2, 0.01) {
		t.Errorf("forms of two PNGs: %+v", both)
	}
	until := time.Now().Add(time.Hour)
	made, size := transformsOf(t, crop, large, damaged).convert(t.Context(), until)
	whole := float64(2*len(large)+len(damaged)) / float64(len(large)+len(damaged))
	if len(made) != 2 || !near(size, whole, 0.01) {
		t.Errorf("with a damaged one: %d samples, %v times the size, want %v", len(made), size, whole)
	}
}

// TestNoForms: samples that are no images have none, and what was interrupted says nothing.
func TestNoForms(t *testing.T) {
	raw := transformsOf(t, "Pixels(2, 2, 3), ToTensor()", make([]byte, 12))
	if f := raw.Forms(t.Context(), time.Millisecond); f.Time != 0 {
		t.Errorf("forms of pixels: %+v", f)
	}
	text := transformsOf(t, "CenterCrop(8), ToTensor()", []byte("no image"))
	if f := text.Forms(t.Context(), time.Millisecond); f.Time != 0 {
		t.Errorf("forms of text: %+v", f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	images := transformsOf(t, "CenterCrop(8), ToTensor()", noise(t, 32))
	if f := images.Forms(ctx, time.Millisecond); f.Time != 0 {
		t.Errorf("forms after an interruption: %+v", f)
	}
}
