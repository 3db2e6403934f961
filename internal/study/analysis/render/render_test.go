package render

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	performance "github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/drawing/drawingtest"
)

func report(t *testing.T, change func(*analysis.Measured), o analysis.Options) *analysis.Report {
	t.Helper()
	m, err := analysis.Read(filepath.Join("testdata", "measured.json"))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(m)
	}
	r, err := analysis.Analyze(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestText: the whole text of a job, and sentences of the texts of others.
func TestText(t *testing.T) {
	var b bytes.Buffer
	prices := &analysis.Prices{Currency: "EUR", Of: map[string]float64{
		"memory_gb": 0.004, "core": 0.03, "hour": 2.5,
	}}
	if err := Text(report(t, nil, analysis.Options{Prices: prices}), 100, &b); err != nil {
		t.Fatal(err)
	}
	testkit.Compare(t, "torch.txt", b.String())
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(line)); n > 101 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for want, change := range map[string]func(*analysis.Measured){
		"all images take 1.4 GB of memory on each node, which is more than there is; hdmlp then": func(
			m *analysis.Measured,
		) {
			m.Forms = &performance.Forms{Time: 0.5, Size: 1.1, Sent: true}
			m.Dataset.MB, m.Room = 1050, 1_000_000_000
		},
		"training could not be measured": func(m *analysis.Measured) { m.Training = nil },
		"Faster loading would not make it faster": func(m *analysis.Measured) {
			m.Training = &analysis.Rate{Median: 10, Low: 9, High: 11}
			m.AsIs = m.Training
		},
		"No conclusion: the job as it is takes 790 samples/s on each node, which is 7,800 % faster " +
			"than by the rates of its parts (10 for a later epoch).": func(m *analysis.Measured) {
			m.Training = &analysis.Rate{Median: 10, Low: 9, High: 11}
		},
		"takes 400 samples/s on each node, which is 37.5 % slower than by the rates of its parts " +
			"(812 for a later epoch, and with empty caches)": func(m *analysis.Measured) {
			m.AsIs, m.First = &analysis.Rate{Median: 400, Low: 390, High: 410}, true
		},
		"waited for their data in 64.2 % of their time. Measure again": func(m *analysis.Measured) {
			m.AsIs = &analysis.Rate{Median: 400, Low: 390, High: 410}
		},
		"takes 790 samples/s, which it could not if no more were prepared than was measured: they " +
			"are taken to be 2.86 times as many": func(m *analysis.Measured) {
			for i := range m.Preparation {
				m.Preparation[i].Median = 80 * float64(i+1) // 4 workers: 320
			}
			m.Preparation[2].Median = 320
		},
		"taken are 756 with 4 instead of 812, 756 with 8 instead of 700": func(m *analysis.Measured) {
			m.Preparation[3].Median = 700
		},
		"But it takes 10 samples/s": func(m *analysis.Measured) {
			m.Training = &analysis.Rate{Median: 10, Low: 9, High: 11}
			m.AsIs, m.Source = m.Training, nil
		},
		"It takes 5 samples/s": func(m *analysis.Measured) {
			m.Training = &analysis.Rate{Median: 10, Low: 9, High: 11}
			m.AsIs, m.Source = &analysis.Rate{Median: 5, Low: 4, High: 6}, nil
		},
		"Nothing has to be done.": func(m *analysis.Measured) {
			m.Training = &analysis.Rate{Median: 10, Low: 9, High: 11}
			m.AsIs = m.Training
		},
		"That is not certain": func(m *analysis.Measured) {
			m.Training = &analysis.Rate{Median: 2000, Low: 1, High: 4000}
		},
		"source (S), 1 node, 4 streams": func(m *analysis.Measured) { m.Nodes, m.Ranks = 2, 2 },
		"source, each of 2 nodes at once, 16 streams": func(m *analysis.Measured) {
			m.Nodes, m.Ranks = 2, 2
			m.Sources = []analysis.Point{{N: 2, Streams: 16, Rate: m.Source[0].Rate}}
		},
		"* least to largest": func(m *analysis.Measured) {
			m.Source[2].Few, m.AsIs.Few = false, true
		},
		"without workers": func(m *analysis.Measured) { m.Loader.Workers = 0 },
		"none: the source is fast enough": func(m *analysis.Measured) {
			m.Preparation[0].Rate = analysis.Rate{Median: 5, Low: 4, High: 6}
			m.Preparation = m.Preparation[:1]
			m.AsIs = &m.Preparation[0].Rate
		},
	} {
		b.Reset()
		if err := Text(report(t, change, analysis.Options{}), 100, &b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("%q is not said:\n%s", want, b.String())
		}
	}
}

// TestWrite: the page holds everything and names nothing elsewhere, and the other files can be read
// by those that they are for.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	r := report(t, nil, analysis.Options{})
	names, err := Write(r, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"index.html", "result.json", "environment.toml", "stall.png", "stall.svg", "cache.png",
		"cache.svg", "cores.png", "cores.svg",
	}
	if !slices.Equal(names, want) {
		t.Errorf("wrote %v, want %v", names, want)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, outside := range []string{"src=", "href=", "url(", "<script", "@import"} {
		if strings.Contains(string(page), outside) {
			t.Errorf("the page has %s: it must need nothing else", outside)
		}
	}
	for _, want := range []string{"limits this job", "x* =", "hdmlp in the place", "&lt;b&gt;"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if _, err := analysis.Read(filepath.Join(dir, ResultFile)); err != nil {
		t.Error(err)
	}
	if _, err := envfile.Read(filepath.Join(dir, EnvironmentFile)); err != nil {
		t.Error(err)
	}
	for _, f := range figures(r) {
		drawingtest.TextsFit(t, f)
	}
}

// TestWriteWithoutConclusions: what was measured is there if it does not suffice for conclusions.
func TestWriteWithoutConclusions(t *testing.T) {
	r := report(t, func(m *analysis.Measured) { m.Source = nil }, analysis.Options{})
	if names, err := Write(r, t.TempDir()); err != nil || len(names) != 3 {
		t.Error(names, err)
	}
}

// TestReadsAboveTheFigure: a line that is not in the figure is not in its legend, and is explained.
func TestReadsAboveTheFigure(t *testing.T) {
	for _, faster := range []float64{1, 1e6} {
		r := report(t, func(m *analysis.Measured) {
			for i := range m.Source {
				m.Source[i].Median *= faster
				m.Source[i].Low *= faster
				m.Source[i].High *= faster
			}
			m.Memory = nil
		}, analysis.Options{})
		caption := cacheFigure(r).Caption
		if strings.Contains(caption, "above the figure") != (faster > 1) {
			t.Errorf("a source that is %g times as fast: %s", faster, caption)
		}
	}
}
