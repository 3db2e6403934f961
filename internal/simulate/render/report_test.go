package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/simulate"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares with a golden file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: -want +got\n%s", name, diff)
	}
}

// result is one with everything in it.
func result(runtime, before float64, source, remote, ram, ssd int64) *simulate.Result {
	amount := func(n int64) simulate.Amount { return simulate.Amount{Samples: n, MB: 2.5 * float64(n)} }
	return &simulate.Result{
		Supported: true, Runtime: runtime, BeforeTraining: before, Stall: runtime - before - 1500,
		Reads:       simulate.Reads{Source: amount(source), Remote: amount(remote), Local: map[string]simulate.Amount{"1": amount(ram), "2": amount(ssd)}},
		SourceTotal: 2.5 * float64(source), ShareOfBound: float64(source) / 1000, SeenPerEpoch: 1, Epochs: []float64{runtime / 2, runtime / 2},
		Batches: []float64{1, 2, 3, 1, 1, 2, 0.5, 0.25},
	}
}

// sample is a report with a policy of every kind.
func sample() *Report {
	perfect := &simulate.Result{
		Supported: true, Runtime: 1500, Reads: simulate.Reads{Local: map[string]simulate.Amount{"0": {Samples: 4000, MB: 10000}}},
		SeenPerEpoch: 1, Epochs: []float64{750, 750}, Batches: []float64{0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25},
	}
	sharded := result(1700.25, 123.456, 0, 0, 1000, 3000)
	sharded.SeenPerEpoch, sharded.Shuffle, sharded.SourceTotal, sharded.ShareOfBound = 0.25, 0.8125, 10000, 4
	return &Report{
		Title: "A <small> cluster & its policies", Scenario: "small.toml", Profile: "model", Seed: 3, Classes: []string{"staging", "ram", "ssd"},
		Facts: []Fact{{"Machine", "4 nodes"}, {"Dataset", strings.Repeat("a word or two ", 12)}},
		Points: []Point{{Bound: 2500, Policies: []Policy{
			{"perfect", perfect},
			{"naive", result(61234.5, 0, 4000, 0, 0, 0)},
			{"cooperative", result(1600, 0, 1000, 2500, 400, 100)},
			{"lbann_dynamic", &simulate.Result{Reason: "the dataset is larger than the memory of all nodes"}},
			{"sharded", sharded},
		}}},
	}
}

// swept is a report of a sweep over one or two keys.
func swept(keys int) *Report {
	r := sample()
	base := r.Points[0]
	r.Points = nil
	r.Sweep = []string{"environment.storage_class.ram.capacity", "environment.nodes"}[:keys]
	for i, a := range []string{"0", "10 GB", "20 GB"} {
		for k, b := range []string{"1", "2", "4", "8"} {
			if keys == 1 && k > 0 {
				continue
			}
			p := Point{Values: []string{a, b}[:keys], Bound: base.Bound}
			for _, policy := range base.Policies {
				result := *policy.Result
				result.Runtime *= 1 / float64(1+i+k)
				p.Policies = append(p.Policies, Policy{policy.Name, &result})
			}
			r.Points = append(r.Points, p)
		}
	}
	return r
}

func TestTable(t *testing.T) {
	for name, test := range map[string]struct {
		report  *Report
		options TableOptions
	}{
		"table-80.golden":     {sample(), TableOptions{Width: 80}},
		"table-110.golden":    {sample(), TableOptions{Width: 110}},
		"table-colour.golden": {sample(), TableOptions{Width: 80, Colour: true}},
		"table-sweep.golden":  {swept(1), TableOptions{Width: 80}},
		"table-matrix.golden": {swept(2), TableOptions{Width: 60}},
	} {
		var b bytes.Buffer
		if err := test.report.Table(&b, test.options); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.Bytes())
		if test.options.Colour {
			continue
		}
		for line := range strings.Lines(b.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > test.options.Width {
				t.Errorf("%s has a line of %d characters:\n%s", name, n, line)
			}
		}
	}
}

func TestTableInterrupted(t *testing.T) {
	r := sample()
	r.Interrupted, r.Points[0].Policies = true, nil
	var b bytes.Buffer
	if err := r.Table(&b, TableOptions{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "Interrupted") || strings.Contains(b.String(), "policy") {
		t.Errorf("got\n%s", b.String())
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := sample().JSON(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json.golden", b.Bytes())
	b.Reset()
	if err := swept(2).JSON(&b); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Sweep  []string
		Points []struct {
			Set      map[string]string
			Policies map[string]simulate.Result
		}
	}
	if err := json.Unmarshal(b.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Sweep) != 2 || len(answer.Points) != 12 || answer.Points[5].Set["environment.nodes"] != "2" || answer.Points[5].Policies["naive"].Runtime != 61234.5/3 {
		t.Errorf("got %+v", answer)
	}
}

func TestCSV(t *testing.T) {
	for name, r := range map[string]*Report{"report.csv.golden": sample(), "sweep.csv.golden": swept(2)} {
		var b bytes.Buffer
		if err := r.CSV(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.Bytes())
		lines, err := csv.NewReader(&b).ReadAll()
		if err != nil || len(lines) != 1+5*len(r.Points) {
			t.Errorf("%d lines, %v", len(lines), err)
		}
	}
}

// TestWrite: all files are there, plots are images, and the page holds everything and names nothing elsewhere.
func TestWrite(t *testing.T) {
	for _, test := range []struct {
		report  *Report
		figures []string
	}{
		{sample(), []string{"runtime", "batches"}},
		{swept(1), []string{"sweep"}},
		{swept(2), []string{"sweep-perfect", "sweep-naive", "sweep-cooperative", "sweep-lbann_dynamic", "sweep-sharded"}},
	} {
		dir := filepath.Join(t.TempDir(), "a", "b")
		names, err := test.report.Write(dir)
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
		for _, want := range []string{"A &lt;small&gt; cluster &amp; its policies", "width=device-width", "cooperative"} {
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

// TestSummary: the best policy is named, also where dropping the last batch leaves out a part of the dataset; one that
// shows less than the others is not the best, however fast.
func TestSummary(t *testing.T) {
	r := sample()
	for i := range r.Points[0].Policies {
		r.Points[0].Policies[i].SeenPerEpoch *= 0.99
	}
	r.Points[0].Policies[4].Runtime = 1501
	if got := strings.Join(r.summary(), " "); !strings.Contains(got, "cooperative: 26 min 40 s, 1.07 times") {
		t.Errorf("got %q", got)
	}
	r.Points[0].Policies = nil
	if got := r.summary(); len(got) != 0 {
		t.Errorf("nothing was simulated: got %q", got)
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

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		group(1234567.891, 2): "1,234,567.89", group(-1234, 0): "-1,234", group(999.999, 1): "1,000.0", group(0, 0): "0",
		timeText(0): "0", timeText(0.01234): "0.0123", timeText(7.304): "7.30", timeText(60526.36): "60,526.4", timeText(123456): "123,456",
		clock(90): "90.00 s", clock(3599): "59 min 59 s", clock(7265): "2 h 01 min", clock(200000): "2 d 07 h",
		Bytes(0): "0", Bytes(0.027): "27 KB", Bytes(51200): "51.2 GB", Bytes(10000): "10 GB", Bytes(1.2e6): "1.2 TB", Bytes(100): "100 MB",
		percent(1): "100 %", percent(0.9999): ">99.9 %", percent(0.1706): "17.1 %", percent(0): "0 %", percent(1e-5): "<0.1 %",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
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
