package drawing

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"strings"
	"testing"
)

func rates() []Chart {
	return []Chart{
		{Title: "Storage class memory", Axis: "streams", Lines: []ChartLine{
			{Name: "read of 100 kB", Points: []ChartPoint{{1, 5000, 4800, 5100}, {2, 9000, 8000, 9100}}},
			{Name: "write of 100 kB", Points: []ChartPoint{{1, 1000, 900, 1100}}},
		}},
		{Title: "Source: random reads", Axis: "streams", Lines: []ChartLine{
			{Name: "<100 kB>", Points: []ChartPoint{{1, 0, 0, 0}}},
		}},
	}
}

func TestCurvesAreDrawnInEachFormat(t *testing.T) {
	picture, err := Curves(rates(), ".png")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := png.Decode(bytes.NewReader(picture)); err != nil || p.Bounds().Dy() < 800 {
		t.Errorf("PNG: %v", err)
	}
	for _, extension := range []string{".svg", ".html"} {
		text, err := Curves(rates(), extension)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"read of 100 kB", "&lt;100 kB&gt;", "MB/s"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: %q is missing", extension, want)
			}
		}
		if extension != ".svg" {
			continue
		}
		for d := xml.NewDecoder(bytes.NewReader(text)); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Curves(rates(), ".pdf"); err == nil {
		t.Error("a PDF was drawn")
	}
	if _, err := Curves(nil, ".svg"); err != nil {
		t.Error(err)
	}
}

// TestBarsFit: also long ones, and such without any length.
func TestBarsFit(t *testing.T) {
	parts := []Entry{{Colour: Ink, Name: "some part"}, {Colour: Rule, Name: "another part"}}
	for _, most := range []float64{0, 1e-3, 1e6} {
		f := Bars{Title: "Bars", Axis: "seconds", Parts: parts, Bars: []Bar{
			{Name: "the first of them", Parts: []float64{most, most}, Text: "100 % of it all"},
			{Name: "another", Parts: []float64{0, most / 2}},
		}}.Figure("bars", "")
		if text, err := f.SVG(Narrow, 0); err != nil || !strings.Contains(string(text), "another") {
			t.Error(err)
		}
	}
}
