package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// cacheWarmOptions are the options of `hdmlp cache warm`.
type cacheWarmOptions struct {
	datasetFlags
	paths  []string
	dir    string
	size   string // "": the configuration's
	like   string // file; "": by ID
	json   bool
	config *config.Config

	scanned func(files int64) // nil: none
	opened  func()
	filled  func(done, of int64) // bytes; nil: none
	warn    func(text string)
}

func newCacheWarmCommand() *cobra.Command {
	var opts cacheWarmOptions
	cmd := &cobra.Command{
		Use:   "warm PATH... --cache DIR",
		Short: "Fill a cache directory with a dataset for a later job",
		Long: `Copy the samples of a dataset into a cache directory, as a job with this
cache_dir does: a later job on the same dataset reads them there from its first
epoch on. Samples that are there already stay, so that the command goes on where
it was interrupted. No daemon can use the directory meanwhile.

` + pathsHelp + `

A job's copies are found by the version of its dataset, which depends on its
options: give the same --extensions and --option as the job does. Of
hdmlp.torch.WebDataset, fields=("jpg", "cls") is --option fields=jpg,cls
--option missing=raise.

If the samples do not fit, those that come first are kept: by ID or, with
--like, in the order in which a job needs them first.

EXIT STATUS
  0    success, also if the cache is full
  1    samples could not be read, or the disk of the cache failed
  2    wrong input: no such dataset, DIR is in use by a daemon, ...
  130  interrupted; what was copied is kept`,
		Example: `  hdmlp cache warm /data/imagenet/train --cache /nvme/hdmlp
  hdmlp cache warm '/data/shards/*.tar' --cache /nvme/hdmlp --size 200GB`,
		Args: pathsOfDataset,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.paths = args
			if opts.dir == "" {
				return badInput("--cache is missing; give the job's cache_dir")
			}
			if err := opts.configure(); err != nil {
				return err
			}
			if !cmd.Flags().Changed("index-dir") {
				opts.indexDir = opts.config.IndexDir
			}
			opts.json, _ = cmd.Flags().GetBool("json")
			errs := cmd.ErrOrStderr()
			scan, bar := scanProgress{out: errs, start: time.Now()}, warmProgress{out: errs}
			if !opts.json && isTerminal(errs) {
				opts.scanned, opts.filled = scan.update, bar.update
			}
			opts.opened = scan.close
			defer scan.close()
			defer bar.close()
			opts.warn = func(text string) {
				fmt.Fprintf(errs, "warning: %s\n", human.Text(text))
			}
			answer, err := runCacheWarm(cmd.Context(), opts)
			bar.close()
			if answer == nil {
				return err
			}
			if opts.json {
				return errors.Join(err, printJSON(cmd.OutOrStdout(), answer))
			}
			_, e := io.WriteString(cmd.OutOrStdout(), answer.text())
			return errors.Join(err, e)
		},
	}
	flags := cmd.Flags()
	opts.add(flags)
	flags.StringVar(&opts.dir, "cache", "", "cache directory, `DIR`; created if missing")
	flags.StringVar(&opts.size, "size", "",
		"`SIZE` that samples may take there (default: cache_size of the configuration, or else the "+
			"free space of the disk, less disk_reserve)")
	flags.StringVar(&opts.like, "like", "",
		"first those samples that the job needs first whose state, or list of IDs, is in `FILE` (JSON)")
	return cmd
}

// configure sets the configuration of a job with the cache directory.
func (o *cacheWarmOptions) configure() error {
	path, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if err := host.Directory(path); err != nil {
		return badInput("--cache %s: %w", human.Name(o.dir), err)
	}
	keys := map[string]any{"cache_dir": path}
	if o.size != "" {
		keys["cache_size"] = o.size
	}
	o.dir = path
	o.config, err = jobConfig(keys, "", "")
	return err
}

// warmAnswer is what `hdmlp cache warm --json` prints. Sizes are in bytes.
type warmAnswer struct {
	Dir      string   `json:"dir"`
	Version  string   `json:"version"`
	Dataset  string   `json:"dataset"`
	Samples  int      `json:"samples"` // of the dataset
	Bytes    int64    `json:"bytes"`
	Held     int      `json:"held"` // samples with a copy
	HeldSize int64    `json:"held_bytes"`
	Added    int      `json:"added"` // by this run
	Full     bool     `json:"full"`  // the others do not fit
	Capacity int64    `json:"capacity"`
	Failed   int      `json:"failed"` // samples that could not be read
	Failures []string `json:"failures"`
	Seconds  float64  `json:"seconds"`
}

// runCacheWarm fills the cache. An answer that comes with an error is of what was done.
func runCacheWarm(ctx context.Context, o cacheWarmOptions) (_ *warmAnswer, err error) {
	start := time.Now()
	at := slices.IndexFunc(o.config.StorageClasses, func(c config.StorageClass) bool {
		return c.Path() == o.dir
	})
	if at < 0 {
		return nil, badInput("--cache %s: the configuration has other storage classes", o.dir)
	}
	if _, err := host.RaiseFileLimit(); err != nil {
		o.warn(err.Error())
	}
	found, err := o.find(ctx, o.config.SourceTimeout, o.paths)
	if err != nil {
		return nil, err
	}
	if err := outside(found.dir, o.dir); err != nil {
		return nil, err
	}
	src, err := found.open(ctx, openOptions{
		progress: o.scanned, warn: o.warn, timeout: o.config.SourceTimeout, retries: true,
	})
	o.opened()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	w := &warming{source: src, index: src.Index(), progress: o.filled}
	if o.like != "" {
		if w.order, err = orderLike(o.like, w.index); err != nil {
			return nil, err
		}
	}
	root, err := found.root()
	if err != nil {
		return nil, err
	}
	spec := &source.Spec{Kind: found.kind.Name, Path: root, Options: found.values}
	answer := &warmAnswer{
		Dir: o.dir, Version: versionText(w.index.Fingerprint()), Dataset: root,
		Samples: w.index.Len(), Bytes: w.index.Bytes(), Failures: []string{},
	}
	err = w.openStore(o.config.StorageClasses[at], spec, o.warn, func(opened store.Store) error {
		err := w.run(ctx, opened)
		answer.Held = len(opened.Held())
		answer.Capacity, answer.HeldSize = opened.Capacity()
		return err
	})
	answer.Added, answer.Full = w.added, w.full
	answer.Failed, answer.Failures = w.failed, append(answer.Failures, w.failures...)
	answer.Seconds = time.Since(start).Seconds()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case answer.Failed > 0:
		return answer, fmt.Errorf("%s could not be read: a job reports them in the same way; "+
			"repair them, and give the command again", count(answer.Failed, "sample"))
	}
	return answer, nil
}

// openStore opens the class's store of the dataset for a call of use.
func (w *warming) openStore(c config.StorageClass, spec *source.Spec, warn func(string),
	use func(store.Store) error,
) error {
	kind, err := classKind(c.Kind)
	if err != nil {
		return err
	}
	class, err := kind.New(store.Options{Values: c.Options, Warn: warn})
	if err != nil {
		return warmError(err)
	}
	ds, most := catalog.Stored(spec, w.source)
	w.directory = source.DirectoryHash(ds.Directory[0], ds.Directory[1])
	capacity := c.Capacity()
	if capacity == 0 {
		capacity, err = class.Available(ds)
	}
	var opened store.Store
	if err == nil {
		opened, err = class.Open(ds, min(capacity, most))
	}
	if err != nil {
		return errors.Join(warmError(err), class.Close())
	}
	return errors.Join(use(opened), opened.Close(), class.Close())
}

// warmError marks those errors of a class as wrong input that the user caused.
func warmError(err error) error {
	var limit *store.LimitError
	if errors.As(err, &limit) {
		return inputError{err}
	}
	return cacheError(err)
}

// text formats the answer for people.
func (a *warmAnswer) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, store %s of %s\n", human.Name(a.Dir), a.Version[:shortVersion],
		human.Name(a.Dataset))
	fmt.Fprintf(&b, "%s of %s, %s of %s, %s of them new, in %s\n", thousands(a.Held),
		count(a.Samples, "sample"), byteSize(float64(a.HeldSize)), byteSize(float64(a.Bytes)),
		thousands(a.Added), seconds(a.Seconds))
	if a.Full {
		fmt.Fprintf(&b, "the cache is full (%s): a job reads the others from the dataset; raise "+
			"--size, or free space on its disk\n", byteSize(float64(a.Capacity)))
	}
	for _, text := range a.Failures {
		fmt.Fprintf(&b, "  %s\n", human.Text(text))
	}
	if more := a.Failed - len(a.Failures); more > 0 {
		fmt.Fprintf(&b, "  and %s more\n", thousands(more))
	}
	return b.String()
}

// warmProgress shows the progress on a terminal. Calls must not overlap.
type warmProgress struct {
	out      io.Writer
	line     *liveLine // nil: nothing is shown
	done, of int64
}

func (p *warmProgress) update(done, of int64) {
	if p.line == nil {
		p.done, p.of = done, of
		p.line = showLine(p.out, p.text)
		return
	}
	p.line.update(func() { p.done = done })
}

func (p *warmProgress) text(columns int) string {
	after := fmt.Sprintf("  %s of %s", byteSize(float64(p.done)), byteSize(float64(p.of)))
	const before = "copying  "
	return before + rule(p.done, p.of, 28, columns, before, after) + after
}

// close removes the bar.
func (p *warmProgress) close() {
	if p.line != nil {
		p.line.close(false)
		p.line = nil
	}
}
