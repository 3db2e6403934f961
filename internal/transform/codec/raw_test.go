package codec

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"pgregory.net/rapid"
)

// numbersPNG is a PNG of numbers, with a palette of so many colours, or in gray if it has none.
func numbersPNG(t *rapid.T, width, height, colours int, deep bool) (src []byte, numbers []int) {
	var made image.Image
	number := rapid.IntRange(0, 255)
	switch {
	case colours > 0:
		p := make(color.Palette, colours)
		for i := range p {
			p[i] = color.RGBA{byte(7 * i), byte(90 - i), 3, 255}
		}
		m := image.NewPaletted(image.Rect(0, 0, width, height), p)
		for i := range m.Pix {
			m.Pix[i] = byte(number.Draw(t, "index") % colours)
			numbers = append(numbers, int(m.Pix[i]))
		}
		made = m
	case deep:
		m := image.NewGray16(image.Rect(0, 0, width, height))
		for i := range width * height {
			v := 256*number.Draw(t, "high") + number.Draw(t, "low")
			m.Pix[2*i], m.Pix[2*i+1] = byte(v>>8), byte(v)
			numbers = append(numbers, v)
		}
		made = m
	default:
		m := image.NewGray(image.Rect(0, 0, width, height))
		for i := range m.Pix {
			m.Pix[i] = byte(number.Draw(t, "level"))
			numbers = append(numbers, int(m.Pix[i]))
		}
		made = m
	}
	var b bytes.Buffer
	if err := png.Encode(&b, made); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), numbers
}

// TestRawNumbers checks that a mask's numbers are those that were written, of palettes of every
// depth, in any region.
func TestRawNumbers(t *testing.T) {
	var d Decoder
	defer d.Close()
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 40).Draw(t, "width")
		height := rapid.IntRange(1, 20).Draw(t, "height")
		colours := rapid.SampledFrom([]int{0, 1, 2, 3, 4, 11, 16, 17, 256}).Draw(t, "colours")
		deep := rapid.Bool().Draw(t, "deep")
		src, numbers := numbersPNG(t, width, height, colours, deep)
		at := rapid.IntRange(0, 1<<20)
		x, y := at.Draw(t, "x")%width, at.Draw(t, "y")%height
		region := image.Rect(x, y, x+1+at.Draw(t, "w")%(width-x), y+1+at.Draw(t, "h")%(height-y))
		var m pixels.Image
		origin, depth, err := d.DecodeRaw(&m, src, region)
		if err != nil {
			t.Fatal(err)
		}
		if want := deep && colours == 0; (depth == TwoBytes) != want {
			t.Fatalf("depth %d", depth)
		}
		for row := region.Min.Y; row < region.Max.Y; row++ {
			for column := region.Min.X; column < region.Max.X; column++ {
				pixel := m.Row(row - origin.Y)[(column-origin.X)*m.Channels:]
				v := int(pixel[0])
				if m.Channels == 2 {
					v |= int(pixel[1]) << 8
				}
				if want := numbers[row*width+column]; v != want {
					t.Fatalf("%d at %d, %d; want %d", v, column, row, want)
				}
			}
		}
	})
}

// TestColoursAreNoNumbers checks that images with colours are refused.
func TestColoursAreNoNumbers(t *testing.T) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewRGBA(image.Rect(0, 0, 3, 3))); err != nil {
		t.Fatal(err)
	}
	var d Decoder
	defer d.Close()
	var m pixels.Image
	if _, _, err := d.DecodeRaw(&m, b.Bytes(), image.Rectangle{}); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}
