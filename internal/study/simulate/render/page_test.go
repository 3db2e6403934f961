package render_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/drawing/drawingtest"
	"github.com/hdmlp/hdmlp/internal/study/simulate/render"
	"github.com/hdmlp/hdmlp/internal/study/simulate/rendertest"
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
		{rendertest.Scaled(), []string{"scaling", "efficiency"}},
		{rendertest.Swept(2), []string{
			"sweep-perfect", "sweep-naive", "sweep-cooperative",
			"sweep-lbann_dynamic", "sweep-sharded",
		}},
	} {
		dir := filepath.Join(t.TempDir(), "a", "b")
		names, err := render.Write(test.report, dir)
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
		for _, f := range render.Figures(report) {
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
	if got := strings.Join(render.Summary(r), " "); !strings.Contains(got,
		"cooperative: 26 min 40 s, 1.07 times") {
		t.Errorf("got %q", got)
	}
	r.Points[0].Policies = nil
	if got := render.Summary(r); len(got) != 0 {
		t.Errorf("nothing was simulated: got %q", got)
	}
}
