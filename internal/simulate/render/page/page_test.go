package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/drawing"
	"github.com/hdmlp/hdmlp/internal/drawing/drawingtest"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
	"github.com/hdmlp/hdmlp/internal/simulate/render"
	"github.com/hdmlp/hdmlp/internal/simulate/render/rendertest"
)

// TestWrite: all files are there, plots are images, and the page holds everything and names nothing
// elsewhere.
func TestWrite(t *testing.T) {
	for _, test := range []struct {
		report  *render.Report
		figures []string
	}{
		{rendertest.Sample(), []string{"runtime", "batches"}},
		{rendertest.Swept(1), []string{"sweep"}},
		{rendertest.Swept(2), []string{
			"sweep-perfect", "sweep-naive", "sweep-cooperative",
			"sweep-lbann_dynamic", "sweep-sharded",
		}},
	} {
		dir := filepath.Join(t.TempDir(), "a", "b")
		names, err := Write(test.report, dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) != 3+2*len(test.figures) {
			t.Errorf("wrote %v", names)
		}
		page, err := os.ReadFile(filepath.Join(dir, "index.html"))
		if err != nil {
			t.Fatal(err)
		}
		for _, figure := range test.figures {
			checkPNG(t, filepath.Join(dir, figure+".png"))
			checkSVG(t, filepath.Join(dir, figure+".svg"))
		}
		for _, outside := range []string{"src=", "href=", "url(", "<script", "@import"} {
			if strings.Contains(string(page), outside) {
				t.Errorf("the page has %s: it must need nothing else", outside)
			}
		}
		if n := strings.Count(string(page), "<svg "); n != 2*len(test.figures) {
			t.Errorf("the page has %d plots, want each of %d for both widths", n, len(test.figures))
		}
		for _, want := range []string{
			"A &lt;small&gt; cluster &amp; its policies",
			"width=device-width", "cooperative",
		} {
			if !strings.Contains(string(page), want) {
				t.Errorf("the page lacks %q", want)
			}
		}
	}
}

func checkPNG(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	dark := 0
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			if r, g, b, _ := img.At(x, y).RGBA(); r+g+b < 3*0x5000 {
				dark++
			}
		}
	}
	if img.Bounds().Dx() < 1500 || dark < 500 {
		t.Errorf("%s is %v with %d dark dots", path, img.Bounds(), dark)
	}
}

func checkSVG(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if !strings.Contains(string(text), "Liberation Sans,Arial,Helvetica,sans-serif") {
		t.Errorf("%s asks for a font that not everybody has, without another", path)
	}
}

// TestTextWithinPlots: each text of a plot lies within it.
func TestTextWithinPlots(t *testing.T) {
	for _, report := range []*render.Report{
		rendertest.Sample(), rendertest.Swept(1), rendertest.Swept(2),
	} {
		for _, f := range (&plotted{report}).figures() {
			drawingtest.TextsFit(t, f)
		}
	}
}

// TestSummary: the best policy is named, also where dropping the last batch leaves out a part of
// the dataset; one that shows less than the others is not the best, however fast.
func TestSummary(t *testing.T) {
	r := rendertest.Sample()
	for i := range r.Points[0].Policies {
		r.Points[0].Policies[i].SeenPerEpoch *= 0.99
	}
	r.Points[0].Policies[4].Runtime = 1501
	if got := strings.Join((&plotted{r}).summary(), " "); !strings.Contains(got,
		"cooperative: 26 min 40 s, 1.07 times") {
		t.Errorf("got %q", got)
	}
	r.Points[0].Policies = nil
	if got := (&plotted{r}).summary(); len(got) != 0 {
		t.Errorf("nothing was simulated: got %q", got)
	}
}

// TestLinesHaveTheStyleOfTheirPolicy: lines have the style that policies declare; the default's is
// wider, the lower bound's is dotted, and an unknown policy is drawn as well.
func TestLinesHaveTheStyleOfTheirPolicy(t *testing.T) {
	for _, p := range policies.All() {
		line, l := p.About().Line, lookOf(p.Name())
		if l.colour != drawing.RGB(line.Colour) || (len(l.dashes) > 0) != line.Dashed {
			t.Errorf("%s is drawn as %+v, and says %+v", p.Name(), l, line)
		}
		if usual := lookOf("unknown").width; (l.width > usual) !=
			(p.Name() == policies.Default().Name()) {
			t.Errorf("%s has a line of %v; the usual is %v", p.Name(), l.width, usual)
		}
	}
	if bound, dashed := lookOf(policies.Bound().Name()),
		lookOf("partitioned"); slices.Equal(bound.dashes, dashed.dashes) {
		t.Error("the lower bound is dashed as policies are")
	}
}

func TestSpread(t *testing.T) {
	for _, test := range []struct{ places, want []float64 }{
		{[]float64{10, 50, 90}, []float64{10, 50, 90}},
		{[]float64{50, 50, 50}, []float64{40, 50, 60}},
		{[]float64{0, 0}, []float64{0, 10}},
		{[]float64{100, 100}, []float64{90, 100}},
		{[]float64{20, 22, 60, 61}, []float64{16, 26, 55.5, 65.5}},
	} {
		got := spread(test.places, 10, 0, 100)
		for i := range got {
			if math.Abs(got[i]-test.want[i]) > 1e-9 {
				t.Errorf("spread(%v) = %v, want %v", test.places, got, test.want)
				break
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		values []string
		want   []float64
		unit   string
	}{
		{[]string{"0", "10240"}, []float64{0, 10240}, "MB"},
		{[]string{"0", "10 GB", "20 GB"}, []float64{0, 10, 20}, "GB"},
		{[]string{"1 GB", "500 MB"}, nil, ""},
		{[]string{"uniform", "whole"}, nil, ""},
	} {
		got, unit, ok := numbers("environment.storage_class.ram.capacity", test.values)
		if ok != (test.want != nil) || !cmp.Equal(test.want, got) || unit != test.unit {
			t.Errorf("numbers(%v) = %v, %q, %v", test.values, got, unit, ok)
		}
	}
}

// TestHeatColour: letters can be read on every cell, with a contrast of at least 4.5 (WCAG AA).
func TestHeatColour(t *testing.T) {
	for i := range 101 {
		fill, letters := heatColour(float64(i) / 100)
		a, b := luminance(fill)+0.05, luminance(letters)+0.05
		if contrast := max(a, b) / min(a, b); contrast < 4.5 {
			t.Errorf("contrast of %.1f at %d %%", contrast, i)
		}
	}
}
