package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/dataset/folder"
	"github.com/hdmlp/hdmlp/internal/printable"
)

// datasetOptions are what `hdmlp dataset` is asked for.
type datasetOptions struct {
	dir        string
	indexDir   string
	extensions []string
	rescan     bool
	classes    bool
	json       bool
	progress   func(files int64) // nil: none
	timeout    time.Duration
	warn       func(text string) // nil: none
}

func newDatasetCommand() *cobra.Command {
	var opts datasetOptions
	cmd := &cobra.Command{
		Use:   "dataset DIR",
		Short: "Show what is in a dataset: classes, samples, sizes",
		Long: `Show what is in a dataset: a folder with one sub-directory per class, as
torchvision's ImageFolder takes it, with the same classes and the same order.

The first look scans the folder, reads parts of 64 of its files, and keeps
what it found in an index file; later ones, and jobs, scan only the directories
that have changed. Files that were written to in place change no directory. A
job that reads such a file notices it by its size and times, ends with an error
that names it, and removes the index file, so that the next start scans again;
--rescan does this at once.

EXIT STATUS
  0  success
  1  the source did not answer within source_timeout
  2  wrong input: no such directory, a class without samples, ...
  130  interrupted`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badInput("dataset takes one directory, not %d", len(args))
			}
			if args[0] == "" {
				return badInput("dataset: the directory's name is empty; the current one is \".\"")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.dir = args[0]
			cfg, err := configInForce()
			if err != nil {
				return err
			}
			opts.timeout = cfg.SourceTimeout
			if !cmd.Flags().Changed("index-dir") {
				opts.indexDir = cfg.IndexDir // as jobs do
			}
			opts.json, _ = cmd.Flags().GetBool("json")
			progress := scanProgress{out: cmd.ErrOrStderr(), start: time.Now()}
			if !opts.json && isTerminal(progress.out) {
				opts.progress = progress.update
			}
			defer progress.close()
			opts.warn = func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", text) }
			return runDataset(cmd.Context(), opts, cmd.OutOrStdout(), progress.close)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.rescan, "rescan", false, "scan the whole folder, whatever the index says")
	flags.StringVar(&opts.indexDir, "index-dir", "", "directory of the index file (default: index_dir of the configuration; or else the folder itself, or where that cannot be written ~/.cache/hdmlp/index)")
	flags.StringSliceVar(&opts.extensions, "extensions", nil, "endings of the names of samples, in any case (default: "+strings.Join(folder.Extensions(), ",")+")")
	flags.BoolVar(&opts.classes, "classes", false, "list all classes")
	return cmd
}

// runDataset opens the dataset and prints what is in it; opened is called
// between the two.
func runDataset(ctx context.Context, opts datasetOptions, out io.Writer, opened func()) error {
	if opts.warn == nil {
		opts.warn = func(string) {}
	}
	start := time.Now()
	f, err := folder.Open(ctx, opts.dir, folder.Options{
		Extensions: opts.extensions, IndexDir: opts.indexDir, Rescan: opts.rescan, Progress: opts.progress,
		Memory: availableMemory, Warn: opts.warn, Timeout: opts.timeout,
		Slow: func(op, path string, since time.Time) { opts.warn(slowCall(op, path, since)) },
	})
	took := time.Since(start)
	opened()
	var problem *dataset.Error
	switch {
	case errors.As(err, &problem) && !errors.Is(err, dataset.ErrUnavailable):
		return badInput("%w", err)
	case err != nil:
		return err
	}
	view := newDatasetView(f, opts.classes, took)
	if opts.json {
		err = printJSON(out, view)
	} else {
		_, err = io.WriteString(out, view.text())
	}
	return errors.Join(err, f.Close())
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// datasetView is what `hdmlp dataset --json` prints. Sizes are in bytes.
type datasetView struct {
	Root        string `json:"root"`
	Samples     int    `json:"samples"`
	Bytes       int64  `json:"bytes"`
	Classes     int    `json:"classes"`
	Fingerprint string `json:"fingerprint"`
	Sizes       struct {
		Smallest  int64     `json:"smallest"`
		Mean      float64   `json:"mean"`
		Median    int64     `json:"median"`
		Largest   int64     `json:"largest"`
		Histogram []sizeBin `json:"histogram"`
	} `json:"sizes"`
	Most   []classView `json:"most"`   // classes with the most samples
	Fewest []classView `json:"fewest"` // and with the fewest
	Index  struct {
		Path        string  `json:"path,omitempty"`
		Bytes       int64   `json:"bytes"`
		Error       string  `json:"error,omitempty"`
		Loaded      bool    `json:"loaded"` // not scanned
		Listed      int     `json:"listed"` // directories listed anew
		Directories int     `json:"directories"`
		Seconds     float64 `json:"seconds"`
	} `json:"index"`
	List []classView `json:"class_list,omitempty"`
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

// extremes is how many classes are shown as having the most and the fewest
// samples.
const extremes = 3

func newDatasetView(f *folder.Folder, list bool, took time.Duration) *datasetView {
	x := f.Index()
	v := &datasetView{Root: f.Root(), Samples: x.Len(), Bytes: x.Bytes(), Classes: len(x.Classes())}
	fingerprint := x.Fingerprint()
	v.Fingerprint = hex.EncodeToString(fingerprint[:])
	s := x.Statistics()
	v.Sizes.Smallest, v.Sizes.Mean, v.Sizes.Median, v.Sizes.Largest = s.Smallest, s.Mean, s.Median, s.Largest
	for _, b := range s.Histogram {
		v.Sizes.Histogram = append(v.Sizes.Histogram, sizeBin(b))
	}
	v.Index.Path, v.Index.Bytes, v.Index.Loaded, v.Index.Seconds = f.IndexPath(), x.EncodedSize(), f.FromIndex(), took.Seconds()
	if err := f.IndexError(); err != nil {
		v.Index.Error = err.Error()
	}
	v.Index.Listed, v.Index.Directories = f.Listed()

	classes := classViews(x)
	if list {
		v.List = slices.Clone(classes)
	}
	slices.SortStableFunc(classes, func(a, b classView) int { return cmp.Compare(b.Samples, a.Samples) })
	n := max(min(extremes, len(classes)/2), 1)
	v.Most = slices.Clone(classes[:n])
	v.Fewest = slices.Clone(classes[len(classes)-n:])
	slices.Reverse(v.Fewest)
	return v
}

func classViews(x *dataset.Index) []classView {
	classes := make([]classView, len(x.Classes()))
	id := 0
	for label, samples := range x.ClassSizes() {
		c := classView{Label: label, Name: x.Classes()[label], Samples: samples}
		for end := id + samples; id < end; id++ {
			c.Bytes += x.Size(id)
		}
		classes[label] = c
	}
	return classes
}

// text is the view for people.
func (v *datasetView) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", printable.Name(v.Root))
	fmt.Fprintf(&b, "%s in %s, %s\n\n", count(v.Samples, "sample"), plural(v.Classes, "class", "classes"), byteSize(float64(v.Bytes)))

	how, listed := "scanned", "listed"
	if v.Index.Loaded {
		how, listed = "loaded", "listed again"
	}
	fmt.Fprintf(&b, "  %-12s in %s; %s of %s %s\n", how, seconds(v.Index.Seconds), thousands(v.Index.Listed),
		plural(v.Index.Directories, "directory", "directories"), listed)
	if v.Index.Path != "" {
		fmt.Fprintf(&b, "  %-12s %s, %s\n", "index", printable.Name(v.Index.Path), byteSize(float64(v.Index.Bytes)))
	} else {
		fmt.Fprintf(&b, "  %-12s not written, so that the next start has to scan again:\n  %-12s %s\n", "index", "",
			strings.ReplaceAll(printableLines(v.Index.Error), "\n", "\n"+strings.Repeat(" ", 15)))
	}
	fmt.Fprintf(&b, "  %-12s %s\n\n", "fingerprint", v.Fingerprint)

	fmt.Fprintf(&b, "  %-12s smallest %s, median %s, mean %s, largest %s\n\n", "sizes", byteSize(float64(v.Sizes.Smallest)),
		byteSize(float64(v.Sizes.Median)), byteSize(v.Sizes.Mean), byteSize(float64(v.Sizes.Largest)))
	v.histogram(&b)
	b.WriteByte('\n')
	v.extremes(&b)
	if len(v.List) > 0 {
		b.WriteByte('\n')
		listClasses(&b, v.List)
	}
	return b.String()
}

// histogram draws a bar for each bin; the longest has barWidth columns.
func (v *datasetView) histogram(b *strings.Builder) {
	const barWidth = 36
	most, width := 0, 0
	for _, bin := range v.Sizes.Histogram {
		most = max(most, bin.Samples)
		width = max(width, len(thousands(bin.Samples)))
	}
	for _, bin := range v.Sizes.Histogram {
		label := "empty"
		if bin.To > 1 {
			label = byteSize(float64(bin.From)) + " to " + byteSize(float64(bin.To))
		}
		line := fmt.Sprintf("  %20s  %*s %7s  %s", label, width, thousands(bin.Samples),
			percent(bin.Samples, v.Samples), sizeBar(float64(bin.Samples)/float64(most)*barWidth))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// sizeBar is a bar of this many columns, exact to an eighth; what is there at all is
// seen.
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
			each = printable.Name(v.Most[0].Name) + " has"
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
			fmt.Fprintf(b, "  %-12s %-8s %*s  %9s  %s\n", head, part.label, width, thousands(c.Samples), byteSize(float64(c.Bytes)), printable.Name(c.Name))
		}
	}
}

func listClasses(b *strings.Builder, classes []classView) {
	fmt.Fprintf(b, "  %6s  %11s  %9s  %s\n", "label", "samples", "bytes", "class")
	for _, c := range classes {
		fmt.Fprintf(b, "  %6d  %11s  %9s  %s\n", c.Label, thousands(c.Samples), byteSize(float64(c.Bytes)), printable.Name(c.Name))
	}
}

// scanProgress shows on a terminal that a scan goes on, once it has taken a
// second. Calls must not overlap.
type scanProgress struct {
	out   io.Writer
	start time.Time
	bars  *mpb.Progress // nil: nothing is shown
	bar   *mpb.Bar
}

func (p *scanProgress) update(files int64) {
	if p.bars == nil {
		if time.Since(p.start) < time.Second {
			return
		}
		p.bars = mpb.New(mpb.WithOutput(p.out), mpb.WithWidth(1))
		p.bar = p.bars.New(0, mpb.SpinnerStyle(), mpb.BarFillerTrim(), mpb.AppendDecorators(
			decor.Any(func(s decor.Statistics) string {
				rate := float64(s.Current) / time.Since(p.start).Seconds()
				return fmt.Sprintf(" scanning: %s, %s per second", count(int(s.Current), "file"), thousands(int(rate)))
			}),
		))
	}
	p.bar.SetCurrent(files)
}

// close takes the bar away.
func (p *scanProgress) close() {
	if p.bars != nil {
		p.bar.Abort(true)
		p.bars.Wait()
		p.bars = nil
	}
}

// isTerminal tells whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// byteSize is a size for people: three digits, in units of 1024.
func byteSize(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	unit := 0
	for ; n >= 1023.5 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	digits := 0
	if n != math.Trunc(n) {
		switch {
		case n < 9.995:
			digits = 2
		case n < 99.95:
			digits = 1
		}
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + " " + units[unit]
}

// thousands is 1234567 as "1,234,567".
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func count(n int, noun string) string { return plural(n, noun, noun+"s") }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

func percent(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of)) }

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.2f s", s)
	}
	return d.Round(time.Second).String()
}

func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = printable.Name(line)
	}
	return strings.Join(lines, "\n")
}
