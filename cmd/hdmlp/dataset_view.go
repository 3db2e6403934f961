package main

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

// datasetView is what `hdmlp dataset --json` prints. Sizes are in bytes.
type datasetView struct {
	Root        string      `json:"root"`
	Kind        string      `json:"kind"`
	Samples     int         `json:"samples"`
	Bytes       int64       `json:"bytes"`
	Classes     int         `json:"classes"`
	Fingerprint string      `json:"fingerprint"`
	Sizes       sizesView   `json:"sizes"`
	Most        []classView `json:"most"`   // classes with the most samples
	Fewest      []classView `json:"fewest"` // classes with the fewest samples
	Index       struct {
		Path        string  `json:"path,omitempty"`
		Bytes       int64   `json:"bytes"`
		Error       string  `json:"error,omitempty"`
		Loaded      bool    `json:"loaded"` // from the file, not scanned
		Listed      int     `json:"listed"` // directories that were listed
		Directories int     `json:"directories"`
		Resumed     int     `json:"resumed"` // files known from an attempt that was interrupted
		Seconds     float64 `json:"seconds"`
	} `json:"index"`
	List []classView `json:"class_list,omitempty"`
	recordsView
	Sheet    string                `json:"contact_sheet,omitempty"`
	Requests *report.RequestCounts `json:"requests,omitempty"` // that a store got for it
	kept     bool                  // whether the kind keeps its index in a file
}

// sizesView describes the sizes of samples or of fields.
type sizesView struct {
	Smallest  int64     `json:"smallest"`
	Mean      float64   `json:"mean"`
	Median    int64     `json:"median"`
	Largest   int64     `json:"largest"`
	Histogram []sizeBin `json:"histogram"`
}

func newSizesView(s *source.Statistics) sizesView {
	v := sizesView{Smallest: s.Smallest, Mean: s.Mean, Median: s.Median, Largest: s.Largest}
	for _, b := range s.Histogram {
		v.Histogram = append(v.Histogram, sizeBin(b))
	}
	return v
}

type sizeBin struct {
	From    int64 `json:"from"`
	To      int64 `json:"to"`
	Samples int   `json:"samples"`
}

type classView struct {
	Label   int    `json:"label"`
	Name    string `json:"name"`
	Samples int    `json:"samples"`
	Bytes   int64  `json:"bytes"`
}

// extremes is the number of classes shown with the most and with the fewest samples.
const extremes = 3

// indexKeeper is implemented by sources that keep their index in a file.
type indexKeeper interface {
	IndexPath() string // "": it could not be written
	IndexError() error // why it could not be written
	FromIndex() bool   // whether the index was loaded from the file
}

// lister is implemented by sources that list directories.
type lister interface {
	Listed() (listed, all int) // directories
}

// requesting is implemented by sources that may be stores.
type requesting interface {
	Requests() *source.Requests // nil: it is none
}

// indexer is implemented by sources that find their samples by requests.
type indexer interface {
	Indexing() *source.Indexing // nil: it needed none
}

func newDatasetView(root, kind string, source source.Indexed, list bool,
	took time.Duration,
) *datasetView {
	x := source.Index()
	v := &datasetView{
		Root: root, Kind: kind, Samples: x.Len(), Bytes: x.Bytes(), Classes: len(x.Classes()),
	}
	fingerprint := x.Fingerprint()
	v.Fingerprint = hex.EncodeToString(fingerprint[:])
	s := x.Statistics()
	v.Sizes = newSizesView(&s)
	v.recordsView = newRecordsView(x)
	v.Index.Bytes, v.Index.Seconds = x.EncodedSize(), took.Seconds()
	if r, ok := source.(requesting); ok && r.Requests() != nil {
		counts := report.RequestCounts(*r.Requests())
		v.Requests = &counts
	}
	if x, ok := source.(indexer); ok && x.Indexing() != nil {
		v.Index.Resumed = x.Indexing().Resumed
	}
	keeper, ok := source.(indexKeeper)
	if k, may := source.(interface{ KeepsIndex() bool }); may {
		ok = ok && k.KeepsIndex()
	}
	if ok {
		v.kept = true
		v.Index.Path = keeper.IndexPath()
		v.Index.Loaded = keeper.FromIndex()
		if err := keeper.IndexError(); err != nil {
			v.Index.Error = err.Error()
		}
	}
	if lister, ok := source.(lister); ok {
		v.Index.Listed, v.Index.Directories = lister.Listed()
	}

	classes := classViews(x)
	if len(classes) == 0 {
		return v
	}
	if list {
		v.List = slices.Clone(classes)
	}
	slices.SortStableFunc(classes, func(a, b classView) int {
		return cmp.Compare(b.Samples, a.Samples)
	})
	n := max(min(extremes, len(classes)/2), 1)
	v.Most = slices.Clone(classes[:n])
	v.Fewest = slices.Clone(classes[len(classes)-n:])
	slices.Reverse(v.Fewest)
	return v
}

func classViews(x *source.Index) []classView {
	classes := make([]classView, len(x.Classes()))
	for label, samples := range x.ClassSizes() {
		classes[label] = classView{Label: label, Name: x.Classes()[label], Samples: samples}
	}
	if len(classes) == 0 || !x.Labelled() {
		return nil
	}
	for id := range x.Len() {
		classes[x.Label(id)].Bytes += x.Size(id)
	}
	return classes
}

// text formats the view for people.
func (v *datasetView) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", human.Name(v.Root))
	in := plural(v.Classes, "class", "classes")
	if v.Fields != nil {
		in = count(len(v.Objects), "file")
	}
	fmt.Fprintf(&b, "%s in %s, %s\n\n", count(v.Samples, "sample"), in, byteSize(float64(v.Bytes)))

	if v.Fields != nil {
		fmt.Fprintf(&b, "  %-12s %s\n", "kind", v.Kind)
	}
	v.scan(&b)
	fmt.Fprintf(&b, "  %-12s %s\n\n", "fingerprint", v.Fingerprint)

	if v.Fields != nil {
		v.records(&b)
	} else {
		fmt.Fprintf(&b, "  %-12s %s\n\n", "sizes", v.Sizes.text())
		v.Sizes.histogram(&b, v.Samples)
	}
	if len(v.Most) > 0 {
		b.WriteByte('\n')
		v.extremes(&b)
	}
	if len(v.List) > 0 {
		b.WriteByte('\n')
		listClasses(&b, v.List)
	}
	if v.Sheet != "" {
		fmt.Fprintf(&b, "\nContact sheet: %s\n", human.Name(v.Sheet))
	}
	return b.String()
}

// text describes the sizes in a line.
func (s *sizesView) text() string {
	return fmt.Sprintf("smallest %s, median %s, mean %s, largest %s", byteSize(float64(s.Smallest)),
		byteSize(float64(s.Median)), byteSize(s.Mean), byteSize(float64(s.Largest)))
}

// scan prints how long it took to open the dataset, and where its index is.
func (v *datasetView) scan(b *strings.Builder) {
	if v.Requests != nil {
		defer v.requests(b)
	}
	if !v.kept {
		fmt.Fprintf(b, "  %-12s in %s\n", "opened", seconds(v.Index.Seconds))
		return
	}
	how, listed := "scanned", "listed"
	if v.Index.Loaded {
		how, listed = "loaded", "listed again"
	}
	listing := ""
	if v.Index.Directories > 0 {
		listing = fmt.Sprintf("; %s of %s %s", thousands(v.Index.Listed),
			plural(v.Index.Directories, "directory", "directories"), listed)
	}
	if v.Index.Resumed > 0 {
		listing = fmt.Sprintf("; %s known from an attempt that was interrupted",
			count(v.Index.Resumed, "file"))
	}
	fmt.Fprintf(b, "  %-12s in %s%s\n", how, seconds(v.Index.Seconds), listing)
	if v.Index.Path != "" {
		fmt.Fprintf(b, "  %-12s %s, %s\n", "index", human.Name(v.Index.Path),
			byteSize(float64(v.Index.Bytes)))
		return
	}
	fmt.Fprintf(b, "  %-12s not written, so the next start scans again:\n  %-12s %s\n",
		"index", "",
		strings.ReplaceAll(printableLines(v.Index.Error), "\n", "\n"+strings.Repeat(" ", 15)))
}

// requests prints what a store was asked for.
func (v *datasetView) requests(b *strings.Builder) {
	r := v.Requests
	fmt.Fprintf(b, "  %-12s %s for bytes (%s), %s for what objects are, %s\n", "requests",
		thousands(int(r.Gets)), byteSize(float64(r.Bytes)), thousands(int(r.Heads)),
		plural(int(r.Lists), "listing", "listings"))
}

// histogram prints a bar for each bin of this many samples; the longest has barWidth columns.
func (s *sizesView) histogram(b *strings.Builder, samples int) {
	const barWidth = 36
	most, width := 0, 0
	for _, bin := range s.Histogram {
		most = max(most, bin.Samples)
		width = max(width, len(thousands(bin.Samples)))
	}
	for _, bin := range s.Histogram {
		label := "empty"
		if bin.To > 1 {
			label = byteSize(float64(bin.From)) + " to " + byteSize(float64(bin.To))
		}
		line := fmt.Sprintf("  %20s  %*s %7s  %s", label, width, thousands(bin.Samples),
			percent(bin.Samples, samples), sizeBar(float64(bin.Samples)/float64(most)*barWidth))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// sizeBar returns a bar of this many columns, exact to an eighth. A bar that is not empty has at
// least an eighth.
func sizeBar(columns float64) string {
	eighths := int(math.Round(columns * 8))
	if eighths == 0 && columns > 0 {
		eighths = 1
	}
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}

func (v *datasetView) extremes(b *strings.Builder) {
	if v.Most[0].Samples == v.Fewest[0].Samples {
		each := "each has"
		if v.Classes == 1 {
			each = human.Name(v.Most[0].Name) + " has"
		}
		fmt.Fprintf(b, "  %-12s %s %s\n", "classes", each, count(v.Most[0].Samples, "sample"))
		return
	}
	for i, part := range []struct {
		label   string
		classes []classView
	}{{"most", v.Most}, {"fewest", v.Fewest}} {
		head := ""
		if i == 0 {
			head = "classes"
		}
		for j, c := range part.classes {
			if j > 0 {
				head, part.label = "", ""
			}
			width := len(thousands(v.Most[0].Samples))
			fmt.Fprintf(b, "  %-12s %-8s %*s  %9s  %s\n", head, part.label, width,
				thousands(c.Samples), byteSize(float64(c.Bytes)), human.Name(c.Name))
		}
	}
}

func listClasses(b *strings.Builder, classes []classView) {
	fmt.Fprintf(b, "  %6s  %11s  %9s  %s\n", "label", "samples", "bytes", "class")
	for _, c := range classes {
		fmt.Fprintf(b, "  %6d  %11s  %9s  %s\n", c.Label, thousands(c.Samples),
			byteSize(float64(c.Bytes)), human.Name(c.Name))
	}
}
