package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// frequencyAnswer is the distribution of a rank's access frequencies.
type frequencyAnswer struct {
	Rank      int     `json:"rank"`
	Samples   int     `json:"samples"`
	Nodes     int     `json:"nodes"`
	Epochs    int     `json:"epochs"`
	Mean      float64 `json:"mean"`
	Delta     float64 `json:"delta"`
	Threshold int     `json:"threshold"`
	// Expected and Drawn count samples that are read more than Threshold times. Expected is by
	// thesis equation 3.8; null if that does not apply.
	Expected *float64  `json:"expected"`
	Drawn    int       `json:"drawn"`
	Least    int       `json:"least"`
	Most     int       `json:"most"`
	Counts   []int     `json:"counts"`           // samples read Least, Least+1, ... Most times
	Theory   []float64 `json:"theory,omitempty"` // the expected Counts
	opts     accessOptions
}

func frequencies(opts accessOptions, stream *access.Stream) frequencyAnswer {
	rank := max(0, opts.rank)
	freq := stream.Frequencies([]int{rank}, 0, opts.epochs)
	a := frequencyAnswer{
		Rank: rank, Samples: opts.samples, Nodes: opts.nodes, Epochs: opts.epochs,
		Delta: opts.delta, Least: int(freq[0]), opts: opts,
	}
	sum := 0
	for _, r := range freq {
		a.Least, a.Most = min(a.Least, int(r)), max(a.Most, int(r))
		sum += int(r)
	}
	a.Mean = float64(sum) / float64(opts.samples)
	a.Threshold = int(min((1+opts.delta)*float64(opts.epochs)/float64(opts.nodes)+1e-9,
		math.MaxInt32))
	a.Counts = make([]int, a.Most-a.Least+1)
	for _, r := range freq {
		a.Counts[int(r)-a.Least]++
		if int(r) > a.Threshold {
			a.Drawn++
		}
	}
	// The theory assumes a full shuffle, of which each rank gets its part: 1/N, unless batches do not
	// divide by the number of ranks, or the scheme gives ranks different parts.
	f, p := float64(opts.samples), float64(stream.RankSamples(rank))/float64(opts.samples)
	if s := stream.Spec(); s.Shuffle != access.Sequential && s.Mixture == nil &&
		stream.Order() == nil && p <= 1 {
		expected := f * binomialAbove(opts.epochs, a.Threshold, p)
		a.Expected = &expected
		for k := a.Least; k <= a.Most; k++ {
			a.Theory = append(a.Theory, f*binomial(opts.epochs, k, p))
		}
	}
	return a
}

// binomial returns P[X = k] for X ~ Binomial(n, p), exact up to rounding for any n.
func binomial(n, k int, p float64) float64 {
	if k < 0 || k > n {
		return 0
	}
	if p == 1 {
		if k == n {
			return 1
		}
		return 0
	}
	lg := func(x int) float64 {
		v, _ := math.Lgamma(float64(x) + 1)
		return v
	}
	return math.Exp(lg(n) - lg(k) - lg(n-k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}

// binomialAbove returns P[X > k], the sum of thesis equation 3.8.
func binomialAbove(n, k int, p float64) float64 {
	sum := 0.0
	for i := n; i > k; i-- { // the smallest terms first
		sum += binomial(n, i, p)
	}
	return sum
}

func (a frequencyAnswer) print(out io.Writer) {
	fmt.Fprintf(out, "How often rank %d of %d reads each of %d samples in %d epochs (%s shuffle, "+
		"seed %d)\n\n", a.Rank, a.Nodes, a.Samples, a.Epochs, a.opts.shuffle, a.opts.seed)
	a.histogram(out)
	fmt.Fprintf(out, "\n  mean %.4g, least %d, most %d\n", a.Mean, a.Least, a.Most)
	fmt.Fprintf(out, "  read more than %d times, (1 + %.4g) E/N:  %d samples", a.Threshold, a.Delta,
		a.Drawn)
	if a.Expected != nil {
		fmt.Fprintf(out, ", %.1f expected", *a.Expected)
	}
	fmt.Fprint(out, "\n")
}

// histogram prints the counts as bars, with a dot where theory expects each to end.
func (a frequencyAnswer) histogram(out io.Writer) {
	const lines, width = 16, 50
	per := (len(a.Counts) + lines - 1) / lines
	type bin struct {
		lo, hi, n int
		theory    float64
	}
	var bins []bin
	longest := 1.0
	for i := 0; i < len(a.Counts); i += per {
		b := bin{lo: a.Least + i, hi: a.Least + min(i+per, len(a.Counts)) - 1}
		for j := i; j < min(i+per, len(a.Counts)); j++ {
			b.n += a.Counts[j]
			if a.Theory != nil {
				b.theory += a.Theory[j]
			}
		}
		longest = max(longest, float64(b.n), b.theory)
		bins = append(bins, b)
	}
	digits := len(fmt.Sprint(a.Most))
	label := func(b bin) string {
		if b.lo == b.hi {
			return fmt.Sprintf("%*d", 2*digits+1, b.lo)
		}
		return fmt.Sprintf("%*d-%*d", digits, b.lo, digits, b.hi)
	}
	head := fmt.Sprintf("  %*s  %9s", 2*digits+1, "read", "samples")
	if a.Theory != nil {
		head += fmt.Sprintf("  %9s", "expected")
	}
	fmt.Fprintln(out, head)
	for _, b := range bins {
		row := []rune(accessBar(float64(b.n)/longest*width) + strings.Repeat(" ", width+1))
		line := fmt.Sprintf("  %s  %9d", label(b), b.n)
		if a.Theory != nil {
			line += fmt.Sprintf("  %9.1f", b.theory)
			if at := int(b.theory / longest * width); row[at] == ' ' {
				row[at] = '·'
			}
		}
		fmt.Fprintln(out, strings.TrimRight(line+"  "+string(row), " "))
	}
}

// accessBar returns a bar of so many character cells, in eighths.
func accessBar(cells float64) string {
	eighths := int(cells*8 + 0.5)
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s
}

// chart draws the counts as figure 3.1 of the thesis, with what theory expects.
func (a frequencyAnswer) chart() drawing.Chart {
	drawn := drawing.ChartLine{Name: "samples", Plain: true}
	expected := drawing.ChartLine{Name: "expected", Plain: true, Dashed: true}
	for i, n := range a.Counts {
		x := float64(a.Least + i)
		drawn.Points = append(drawn.Points, drawing.ChartPoint{X: x, Y: float64(n)})
		if a.Theory != nil {
			expected.Points = append(expected.Points, drawing.ChartPoint{X: x, Y: a.Theory[i]})
		}
	}
	chart := drawing.Chart{
		Title: fmt.Sprintf("How often rank %d of %d reads each of %d samples in %d epochs", a.Rank,
			a.Nodes, a.Samples, a.Epochs),
		Axis: "reads of a sample", Unit: "samples", Linear: true, Lines: []drawing.ChartLine{drawn},
		Marks: []drawing.Mark{{
			X: float64(a.Threshold), Text: fmt.Sprintf("(1 + %.4g) E/N: %d samples read more", a.Delta,
				a.Drawn),
		}},
	}
	if a.Theory != nil {
		chart.Lines = append(chart.Lines, expected)
	}
	return chart
}

// draw writes the chart to a file.
func (a frequencyAnswer) draw(path string) error {
	figure := a.chart().Figure("frequencies", "")
	var b bytes.Buffer
	var err error
	switch filepath.Ext(path) {
	case ".png":
		err = figure.PNG(&b)
	case ".svg":
		var text []byte
		text, err = figure.SVG(drawing.Wide, drawing.Margin)
		b.Write(text)
	default:
		return badInput("--out %s: give a file with a name that ends in .png or .svg", path)
	}
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o666)
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}
