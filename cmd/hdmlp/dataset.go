package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
)

// datasetOptions are the options of `hdmlp dataset`.
type datasetOptions struct {
	dir        string
	kind       string // of the source; "": the first kind
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
		Short: "Show a dataset's classes, samples and sizes",
		Long: `Show a dataset's classes, samples and sizes. A dataset is a folder with one
subdirectory per class, as for torchvision's ImageFolder, with the same classes
in the same order.

The first run scans the folder, reads parts of 64 of its files, and keeps the
result in an index file. Later runs, and jobs, scan only directories that have
changed. A file that is rewritten in place does not change its directory: a job
that reads it detects that by its size and times, fails with an error that names
the file, and removes the index file, so that the next start scans the whole
folder. --rescan scans it at once.

EXIT STATUS
  0    success
  1    the source did not answer within source_timeout
  2    wrong input: no such directory, a class without samples, ...
  130  interrupted`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badInput("dataset takes one directory, not %d", len(args))
			}
			if args[0] == "" {
				return badInput("dataset: the directory's name is empty; use \".\" for the " +
					"current one")
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
	flags.BoolVar(&opts.rescan, "rescan", false, "ignore the index, and scan the whole folder")
	flags.StringVar(&opts.indexDir, "index-dir", "",
		"directory of the index file (default: index_dir of the configuration, or else the "+
			"folder itself or, if that is read-only, ~/.cache/hdmlp/index)")
	flags.StringSliceVar(&opts.extensions, "extensions", nil,
		"extensions of samples, in upper or lower case (default: "+
			strings.Join(defaultExtensions(sources()[0]), ", ")+")")
	flags.StringVar(&opts.kind, "kind", sources()[0].Name,
		"kind of the source; hdmlp kinds lists them")
	flags.BoolVar(&opts.classes, "classes", false, "list all classes")
	return cmd
}

// runDataset opens the dataset and prints its contents; it calls opened between the two.
func runDataset(ctx context.Context, opts datasetOptions, out io.Writer, opened func()) error {
	if opts.warn == nil {
		opts.warn = func(string) {}
	}
	start := time.Now()
	root, err := filepath.Abs(opts.dir)
	if err != nil {
		return err
	}
	kind, err := sourceKind(cmp.Or(opts.kind, sources()[0].Name))
	if err != nil {
		return err
	}
	values := located(opts.extensions, opts.indexDir)
	values[source.RescanKey] = opts.rescan
	f, err := kind.Open(ctx, opts.dir, source.OpenOptions{
		Values: values, Progress: opts.progress,
		Warn: opts.warn, Tell: opts.warn, Timeout: opts.timeout,
	})
	took := time.Since(start)
	opened()
	if err != nil {
		return openError(err)
	}
	view := newDatasetView(root, f, opts.classes, took)
	if opts.json {
		err = printJSON(out, view)
	} else {
		_, err = io.WriteString(out, view.text())
	}
	return errors.Join(err, f.Close())
}

// scanProgress shows the progress of a scan on a terminal, once it has taken a second. Calls must
// not overlap.
type scanProgress struct {
	out   io.Writer
	start time.Time
	line  *liveLine // nil: nothing is shown
	files int64
}

// spinner is what turns before the text, a rune per drawing.
var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

func (p *scanProgress) update(files int64) {
	switch {
	case p.line != nil:
		p.line.update(func() { p.files = files })
	case time.Since(p.start) >= time.Second:
		p.files = files
		drawings := 0
		p.line = showLine(p.out, func(int) string {
			turn := spinner[drawings%len(spinner)]
			drawings++
			rate := float64(p.files) / time.Since(p.start).Seconds()
			return fmt.Sprintf("%c scanning: %s, %s per second", turn, count(int(p.files), "file"),
				thousands(int(rate)))
		})
	}
}

// close removes the bar.
func (p *scanProgress) close() {
	if p.line != nil {
		p.line.close(false)
		p.line = nil
	}
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := fileOf(w).(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
