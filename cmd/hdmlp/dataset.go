package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
)

// datasetOptions are the options of `hdmlp dataset`.
type datasetOptions struct {
	datasetFlags
	paths    []string
	rescan   bool
	classes  bool
	sheet    string // file of the contact sheet; "": none
	index    string // file that the index is written to; "": none
	json     bool
	progress func(files int64) // nil: none
	timeout  time.Duration
	warn     func(text string) // nil: none
}

func newDatasetCommand() *cobra.Command {
	var opts datasetOptions
	cmd := &cobra.Command{
		Use:   "dataset PATH...",
		Short: "Show a dataset's fields or classes, samples and sizes",
		Long: `Show a dataset's fields or classes, samples and sizes.

` + pathsHelp + `

The first run finds the samples, reads parts of 64 of them, and keeps the result
in an index file. Later runs, and jobs, look only at directories and files that
have changed. A file that is rewritten in place does not change its directory: a
job that reads it detects that by its size and times, fails with an error that
names the file, and removes the index file, so that the next start scans the
whole folder. --rescan scans it at once.

EXIT STATUS
  0    success
  1    the source did not answer within source_timeout
  2    wrong input: no such directory, a class without samples, ...
  130  interrupted`,
		Example: `  hdmlp dataset /data/imagenet/train
  hdmlp dataset '/data/shards/{000..099}.tar' --sheet look.png
  hdmlp dataset /data/lsun_lmdb --option decoder=datum`,
		Args: pathsOfDataset,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.paths = args
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
	opts.add(flags)
	flags.BoolVar(&opts.rescan, "rescan", false, "ignore the index, and find all samples again")
	flags.BoolVar(&opts.classes, "classes", false, "list all classes")
	flags.StringVar(&opts.index, "index", "",
		"write the index of shards to `FILE` as well, for index= of jobs on any node")
	flags.StringVar(&opts.sheet, "sheet", "",
		"draw images of the dataset, with their keys, to `FILE` (.png)")
	return cmd
}

// writeIndex writes an index to a file, as index= reads it.
func writeIndex(x *source.Index, path string) error {
	var image bytes.Buffer
	if err := x.Encode(&image); err != nil {
		return err
	}
	const mode = 0o644
	if err := files.Write(path, mode, image.Bytes()); err != nil {
		return badInput("--index: %w", err)
	}
	return nil
}

// pathsOfDataset rejects arguments that cannot lead to a dataset.
func pathsOfDataset(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return badInput("%s takes a directory, or one file or more; `%s --help` says which",
			cmd.Name(), cmd.CommandPath())
	}
	if slices.Contains(args, "") {
		return badInput("%s: the directory's name is empty; use \".\" for the current one",
			cmd.Name())
	}
	return nil
}

// runDataset opens the dataset and prints its contents; it calls opened between the two.
func runDataset(ctx context.Context, opts datasetOptions, out io.Writer, opened func()) error {
	if opts.warn == nil {
		opts.warn = func(string) {}
	}
	if opts.sheet != "" {
		if err := checkSheet(opts.sheet); err != nil {
			return err
		}
	}
	start := time.Now()
	at, err := opts.find(ctx, opts.timeout, opts.paths)
	if err != nil {
		return err
	}
	if _, ok := option.Find(at.kind.Options, source.IndexKey); opts.index != "" && !ok {
		return badInput("--index: a dataset of the kind %s is listed at each start: leave it out",
			at.kind.Name)
	}
	root, err := at.root()
	if err != nil {
		return err
	}
	src, err := at.open(ctx, openOptions{
		rescan: opts.rescan, progress: opts.progress, warn: opts.warn, timeout: opts.timeout,
	})
	took := time.Since(start)
	opened()
	if err != nil {
		return err
	}
	view := newDatasetView(root, at.kind.Name, src, opts.classes, took)
	if opts.sheet != "" {
		err = drawDataset(ctx, src, opts.sheet)
		view.Sheet = opts.sheet
	}
	if opts.index != "" && err == nil {
		err = writeIndex(src.Index(), opts.index)
	}
	if err != nil {
		return errors.Join(err, src.Close())
	}
	if opts.json {
		err = printJSON(out, view)
	} else {
		_, err = io.WriteString(out, view.text())
	}
	return errors.Join(err, src.Close())
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
