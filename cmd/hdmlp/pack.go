package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/shards"
)

// packOptions are the options of `hdmlp pack`.
type packOptions struct {
	datasetFlags
	paths     []string
	out       string
	like      string // file; "": by ID
	shardSize string // "": derived
	pattern   string
	rename    []string // each OLD=NEW
	json      bool
	scanned   func(files int64) // nil: none
	opened    func()
	packed    func(done, of shards.Progress) // nil: none
	timeout   time.Duration
	warn      func(text string)
}

func newPackCommand() *cobra.Command {
	var opts packOptions
	cmd := &cobra.Command{
		Use:   "pack PATH... OUT",
		Short: "Write a dataset as tar shards",
		Long: `Write a dataset as tar shards by WebDataset's rules into the directory OUT,
which is created: KEY.FIELD for each field of a sample. hdmlp.torch.WebDataset
and the webdataset package read them.

` + pathsHelp + `

A file of a folder is KEY.EXTENSION, beside KEY.cls with the number of its
class; OUT/classes.json has the names of the classes. Dots in keys become
underscores. Samples are in the dataset's order or, with --like, in the order in
which a job needs them first; a job that reads the shards without shuffling then
reads each from its beginning to its end.

The bytes of the shards follow from the dataset and the flags. Each shard is
read back, and compared by a digest, before it gets its name. If the command was
interrupted, however that happened, the same command goes on with the shards
that are missing. Nothing in OUT is overwritten that it did not write: OUT must
be empty, or have the shards of the same command.

EXIT STATUS
  0    success
  1    failure: a sample cannot be read, what was written is not what is read
       back, ...
  2    wrong input: no such dataset, OUT is in use, not enough space, ...
  130  interrupted`,
		Example: `  hdmlp pack /data/imagenet/train /data/shards --shards 'train-%04d.tar'
  hdmlp pack /data/lsun_lmdb /data/shards --rename value=webp
  hdmlp pack '/data/shards/*.tar' /nvme/ordered --like state.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return badInput("pack takes a dataset and a directory for its shards; " +
					"`hdmlp pack --help` says which")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			opts.paths, opts.out = args[:last], args[last]
			if err := pathsOfDataset(cmd, args); err != nil {
				return err
			}
			cfg, err := configInForce()
			if err != nil {
				return err
			}
			opts.timeout = cfg.SourceTimeout
			if !cmd.Flags().Changed("index-dir") {
				opts.indexDir = cfg.IndexDir
			}
			opts.json, _ = cmd.Flags().GetBool("json")
			errs := cmd.ErrOrStderr()
			scan := scanProgress{out: errs, start: time.Now()}
			bar := packProgress{out: errs}
			if !opts.json && isTerminal(errs) {
				opts.scanned, opts.packed = scan.update, bar.update
			}
			opts.opened = scan.close
			defer scan.close()
			defer bar.close()
			opts.warn = func(text string) {
				fmt.Fprintf(errs, "warning: %s\n", human.Text(text))
			}
			answer, err := runPack(cmd.Context(), opts)
			bar.close()
			if err != nil {
				return err
			}
			if opts.json {
				return printJSON(cmd.OutOrStdout(), answer)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), answer.text())
			return err
		},
	}
	flags := cmd.Flags()
	opts.add(flags)
	flags.StringVar(&opts.like, "like", "",
		"order the samples as the job needs them first whose state, or list of IDs, is in `FILE` "+
			"(JSON)")
	flags.StringVar(&opts.shardSize, "shard-size", "",
		"`SIZE` of a shard, such as 512MiB (default: 1/128 of the dataset, 64 MiB to 1 GiB)")
	flags.StringVar(&opts.pattern, "shards", shards.DefaultPattern, "`PATTERN` of the shards' names")
	flags.StringArrayVar(&opts.rename, "rename", nil,
		"`OLD=NEW`, a field's name in the shards; may be given again")
	return cmd
}

// packAnswer is what `hdmlp pack --json` prints.
type packAnswer struct {
	Out     string  `json:"out"`
	Samples int     `json:"samples"`
	Shards  int     `json:"shards"`
	Bytes   int64   `json:"bytes"`
	Kept    int     `json:"shards_of_an_earlier_run"`
	First   string  `json:"first"` // names
	Last    string  `json:"last"`
	Seconds float64 `json:"seconds"`
}

// packStreams is how many samples are read at the same time, and packMemory how many bytes of them
// are in memory.
const (
	packStreams = 32
	packMemory  = 256 << 20
)

func runPack(ctx context.Context, o packOptions) (_ *packAnswer, err error) {
	start := time.Now()
	layoutOptions := shards.Options{Pattern: o.pattern, Rename: map[string]string{}}
	for _, text := range o.rename {
		from, to, ok := strings.Cut(text, "=")
		if !ok || from == "" {
			return nil, badInput("--rename %q: give OLD=NEW", text)
		}
		layoutOptions.Rename[from] = to
	}
	if o.shardSize != "" {
		if layoutOptions.Size, err = human.Parse(o.shardSize); err != nil {
			return nil, badInput("--shard-size %q: %w", o.shardSize, err)
		}
	}
	if _, err := host.RaiseFileLimit(); err != nil {
		o.warn(err.Error())
	}
	at, err := o.find(ctx, o.timeout, o.paths)
	if err != nil {
		return nil, err
	}
	if err := outside(at.dir, o.out); err != nil {
		return nil, err
	}
	src, err := at.open(ctx, openOptions{
		progress: o.scanned, warn: o.warn, timeout: o.timeout, retries: true,
	})
	o.opened()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	x := src.Index()
	if o.shardSize == "" {
		layoutOptions.Size = shards.DefaultSize(x.Bytes())
	}
	if o.like != "" {
		if layoutOptions.Order, err = orderLike(o.like, x); err != nil {
			return nil, err
		}
	}
	layout, err := shards.New(x, layoutOptions)
	if err != nil {
		return nil, badInput("%w", err)
	}
	list := layout.Shards()
	all := shards.Progress{Samples: layout.Samples(), Shards: len(list), Bytes: layout.Bytes()}
	write := shards.WriteOptions{Streams: packStreams, Memory: packMemory}
	if o.packed != nil {
		write.Progress = func(done shards.Progress) { o.packed(done, all) }
	}
	result, err := layout.Write(ctx, src, o.out, write)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, shards.ErrInput):
		return nil, inputError{err}
	case err != nil:
		return nil, packError(err)
	}
	return &packAnswer{
		Out: o.out, Samples: all.Samples, Shards: all.Shards, Bytes: all.Bytes, Kept: result.Kept,
		First: list[0].Name, Last: list[len(list)-1].Name, Seconds: time.Since(start).Seconds(),
	}, nil
}

// packError adds to an error what to do.
func packError(err error) error {
	var sample *source.SampleError
	if errors.As(err, &sample) {
		advice, _, _ := strings.Cut(sample.Advice(), ", or leave such samples out")
		return fmt.Errorf("%w: %s; the same command then goes on", err, advice)
	}
	return fmt.Errorf("%w; the same command goes on where this one stopped", err)
}

// outside returns an error if a directory for shards is in that of the dataset, which would change.
func outside(dataset, out string) error {
	if option.IsURL(dataset) {
		return nil
	}
	paths := [2]string{dataset, out}
	for i, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if real, err := filepath.EvalSymlinks(absolute); err == nil {
			absolute = real
		} else if real, err := filepath.EvalSymlinks(filepath.Dir(absolute)); err == nil {
			absolute = filepath.Join(real, filepath.Base(absolute))
		}
		paths[i] = absolute
	}
	if paths[0] == paths[1] || strings.HasPrefix(paths[1], strings.TrimSuffix(paths[0], "/")+"/") {
		return badInput("%s is in the directory of the dataset, which would change by it: give one "+
			"outside of %s", human.Name(out), human.Name(dataset))
	}
	return nil
}

// text formats the answer for people.
func (a *packAnswer) text() string {
	names := human.Name(a.First)
	if a.Shards > 1 {
		names += " to " + human.Name(a.Last)
	}
	kept := ""
	if a.Kept > 0 {
		kept = fmt.Sprintf(", of which an earlier run wrote %s", thousands(a.Kept))
	}
	return fmt.Sprintf("%s: %s in %s (%s), %s%s; each was read back and compared\n",
		human.Name(a.Out), count(a.Samples, "sample"), count(a.Shards, "shard"), names,
		byteSize(float64(a.Bytes)), kept)
}

// packProgress shows the progress on a terminal. Calls must not overlap.
type packProgress struct {
	out      io.Writer
	line     *liveLine // nil: nothing is shown
	start    time.Time
	first    int64 // bytes that were there already
	done, of shards.Progress
}

func (p *packProgress) update(done, of shards.Progress) {
	if p.line == nil {
		p.done, p.of = done, of
		p.start, p.first = time.Now(), done.Bytes
		p.line = showLine(p.out, p.text)
		return
	}
	p.line.update(func() { p.done = done })
}

func (p *packProgress) text(columns int) string {
	took := time.Since(p.start)
	rate := float64(p.done.Bytes-p.first) / max(took.Seconds(), 0.001)
	after := fmt.Sprintf("  %s of %s, %s of %s, %s/s", thousands(p.done.Shards),
		count(p.of.Shards, "shard"), byteSize(float64(p.done.Bytes)),
		byteSize(float64(p.of.Bytes)), byteSize(rate))
	if rate > 0 {
		left := float64(p.of.Bytes-p.done.Bytes) / rate
		after += ", " + clock(time.Duration(left*float64(time.Second))) + " left"
	}
	const before = "packing  "
	return before + rule(p.done.Bytes, p.of.Bytes, 28, columns, before, after) + after
}

// close removes the bar.
func (p *packProgress) close() {
	if p.line != nil {
		p.line.close(false)
		p.line = nil
	}
}
