package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/file"
)

// cacheCheckOptions are what `hdmlp cache check` is asked for.
type cacheCheckOptions struct {
	dir      string
	dataset  string // path; "": that of the store's description
	store    string // beginning of a version; "": all
	fix      bool
	json     bool
	indexDir string
	timeout  time.Duration
	scanned  func(files int64)  // progress of a scan; nil: none
	compared func(done, of int) // and of the comparison, calls do not overlap; nil: none
	opened   func()             // between the two; nil: none
	warn     func(text string)  // nil: none
}

func newCacheCheckCommand() *cobra.Command {
	var opts cacheCheckOptions
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Compare a cache directory with the dataset that its samples came from",
		Long: `Compare the samples in a cache directory with the files of the dataset that they
came from, byte by byte. Every file that the cache holds a copy of is read once.

The dataset is looked for where the store's description has it, or at --dataset. It must be
of the store's version: copies of another version are not used, and are not
compared. No daemon can use the directory meanwhile.

--fix drops copies that are corrupt or differ, so that the next job reads these
samples from the dataset; the exit status is the same.

EXIT STATUS
  0  all copies are as their files
  1  a copy is corrupt or differs, or a file was changed or cannot be read; or
     the source did not answer within source_timeout
  2  wrong input: not a cache directory, no such store, in use by a daemon, the
     dataset is not there or of another version, ...
  130  interrupted`,
		Example: `  hdmlp cache check /nvme/hdmlp
  hdmlp cache check /nvme/hdmlp --store 3f07c1 --dataset /data/imagenet --fix`,
		Args: oneDirectory("cache check"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.dir = args[0]
			cfg, err := configInForce()
			if err != nil {
				return err
			}
			opts.timeout, opts.indexDir = cfg.SourceTimeout, cfg.IndexDir
			opts.json, _ = cmd.Flags().GetBool("json")
			scan := scanProgress{out: cmd.ErrOrStderr(), start: time.Now()}
			compare := compareProgress{out: cmd.ErrOrStderr()}
			if !opts.json && isTerminal(cmd.ErrOrStderr()) {
				opts.scanned, opts.compared, opts.opened = scan.update, compare.update, scan.close
			}
			defer compare.close()
			defer scan.close()
			opts.warn = func(text string) {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", printable.Text(text))
			}
			return runCacheCheck(cmd.Context(), opts, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.dataset, "dataset", "",
		"where the dataset lies (default: where it was when the store was opened last)")
	flags.StringVar(&opts.store, "store", "",
		"the store whose version begins with these digits (default: all)")
	flags.BoolVar(&opts.fix, "fix", false, "drop copies that are corrupt or differ")
	return cmd
}

// checkView is what `hdmlp cache check --json` prints of one store. Sizes are in bytes.
type checkView struct {
	Dir        string    `json:"dir"`
	Version    string    `json:"version"`
	Dataset    string    `json:"dataset"`
	Samples    int       `json:"samples"` // of the dataset
	Held       int       `json:"held"`
	Bytes      int64     `json:"bytes"` // of those held
	Same       int       `json:"same"`
	Corrupt    int       `json:"corrupt"`
	Differ     int       `json:"differ"`
	Unreadable int       `json:"source_changed_or_unreadable"`
	Dropped    int       `json:"dropped"`
	Seconds    float64   `json:"seconds"`
	Findings   []finding `json:"findings"` // the first mostFindings by ID
}

// mostFindings is how many samples that are not as they should be are listed.
const mostFindings = 20

// finding is a sample whose copy and file could not be found to be the same.
type finding struct {
	Sample int    `json:"sample"`
	Path   string `json:"path"`
	What   string `json:"what"` // corrupt, differs, source
	Copy   string `json:"copy_digest,omitempty"`
	// differs: the file's; corrupt: that recorded when the copy was made
	Other string `json:"other_digest,omitempty"`
	// why a file could not be compared, or a copy not be read
	Reason string `json:"reason,omitempty"`
}

// What a finding is.
const (
	copyCorrupt  = "corrupt"
	copyDiffers  = "differs"
	sourceFailed = "source"
)

// bad is how many samples are not the same.
func (v *checkView) bad() int { return v.Corrupt + v.Differ + v.Unreadable }

// runCacheCheck compares stores with their datasets and prints what it found. A store
// that cannot be compared does not keep the others from being so.
func runCacheCheck(ctx context.Context, opts cacheCheckOptions, out io.Writer) (err error) {
	if opts.warn == nil {
		opts.warn = func(string) {}
	}
	if opts.opened == nil {
		opts.opened = func() {}
	}
	c, err := lockCache(opts.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	stores, err := cacheStores(c)
	if err != nil {
		return err
	}
	if opts.store != "" {
		s, err := findStore(opts.dir, stores, opts.store)
		if err != nil {
			return err
		}
		stores = []file.StoreInfo{*s}
	}
	if opts.dataset != "" && len(stores) > 1 {
		return badInput("--dataset %s: name the store to be compared with it (--store)%s",
			opts.dataset, storeList(stores))
	}
	views := []*checkView{}
	var failed []error
	bad, held := 0, 0
	for i := range stores {
		v, err := checkStore(ctx, c, &stores[i], opts)
		if v != nil {
			views = append(views, v)
			bad, held = bad+v.bad(), held+v.Held
			if !opts.json {
				fmt.Fprint(out, v.text())
			}
		}
		if err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if opts.json {
		err = printVisibleJSON(out, views)
	} else if len(stores) == 0 {
		_, err = fmt.Fprintf(out, "%s: nothing is cached\n", printable.Name(opts.dir))
	}
	if bad > 0 { // beats wrong input
		verb := "are"
		if bad == 1 {
			verb = "is"
		}
		difference := fmt.Errorf("%s of %s in %s %s not the same as in the dataset", thousands(bad),
			count(held, "cached sample"), opts.dir, verb)
		return statusError{1, errors.Join(append(failed, difference, err)...)}
	}
	return errors.Join(append(failed, err)...)
}

// checkStore compares one store; what it found is nil where nothing was compared.
func checkStore(ctx context.Context, c *file.Cache, s *file.StoreInfo,
	opts cacheCheckOptions,
) (_ *checkView, err error) {
	version := versionText(s.Fingerprint)
	kind, path, extensions, err := whereIs(s, opts)
	if err != nil {
		return nil, err
	}
	source, err := patient(kind).Open(ctx, path, dataset.OpenOptions{
		Extensions: extensions, IndexDir: opts.indexDir, Progress: opts.scanned,
		Timeout: opts.timeout, Warn: opts.warn, Tell: opts.warn,
	})
	opts.opened()
	var problem *dataset.Error
	switch {
	case errors.As(err, &problem) && !errors.Is(err, dataset.ErrUnavailable):
		return nil, badInput("store %s was not compared: %w", version, err)
	case err != nil:
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	index := source.Index()
	if now := index.Fingerprint(); now != s.Fingerprint {
		return nil, badInput("store %s was not compared: the dataset %s is of another version "+
			"now, %s, so it is another one or was changed since. "+
			"No job on it uses the store's samples; `hdmlp cache rm %s --store %s` removes them",
			version, path, versionText(now), opts.dir, version[:shortVersion])
	}
	ds := storageclass.Dataset{Fingerprint: s.Fingerprint, Samples: index.Len(), Size: index.Size}
	contents, err := c.Contents(ds)
	if errors.Is(err, file.ErrIndex) || errors.Is(err, fs.ErrNotExist) {
		return nil, badInput("store %s was not compared: %w", version, file.ErrIndex)
	}
	if err != nil {
		return nil, cacheError(err)
	}
	k := &checker{
		source:   source,
		locate:   pathsOf(source),
		index:    index,
		contents: contents,
		progress: opts.compared,
	}
	start := time.Now()
	err = errors.Join(k.run(ctx), contents.Close())
	if err != nil {
		return nil, err
	}
	v := k.view
	v.Dir, v.Version, v.Dataset, v.Samples, v.Held = opts.dir, version, path, index.Len(),
		len(contents.Held())
	v.Seconds = time.Since(start).Seconds()
	if opts.fix && len(k.drop) > 0 {
		if err := c.Drop(ds, k.drop); err != nil {
			return &v, fmt.Errorf("drop copies from store %s: %w", version, err)
		}
		v.Dropped = len(k.drop)
	}
	return &v, nil
}

// whereIs says of which kind the dataset of a store is, where it is to be looked for, and by which
// extensions its samples are known.
func whereIs(s *file.StoreInfo,
	opts cacheCheckOptions,
) (kind dataset.Kind, path string, extensions []string, err error) {
	path = opts.dataset
	d := s.Description
	if d == nil {
		if path == "" {
			why := "an older version of hdmlp made it"
			if s.Problem != nil {
				why = s.Problem.Error()
			}
			return kind, "", nil, badInput("store %s was not compared: it does not say which "+
				"dataset it belongs to (%s); name it with --store and --dataset",
				versionText(s.Fingerprint), why)
		}
		return sources()[0], path, nil, nil
	}
	if kind, err = sourceKind(d.Kind); err != nil {
		return kind, "", nil, badInput("store %s was not compared: %w", d.Version, err)
	}
	if !slices.Equal(d.Extensions, kind.Extensions) {
		extensions = d.Extensions
	}
	return kind, cmp.Or(path, d.Path), extensions, nil
}

// text is the view for people.
func (v *checkView) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, store %s of %s\n", printable.Name(v.Dir), v.Version[:shortVersion],
		printable.Name(v.Dataset))
	fmt.Fprintf(&b, "compared %s of %s, %s, in %s\n\n", thousands(v.Held),
		count(v.Samples, "sample"), byteSize(float64(v.Bytes)), seconds(v.Seconds))
	for _, row := range []struct {
		n    int
		what string
	}{
		{v.Same, "same"},
		{v.Corrupt, "copy corrupt"},
		{v.Differ, "copy differs from the file"},
		{v.Unreadable, "file changed or unreadable at the source"},
	} {
		fmt.Fprintf(&b, "  %11s  %s\n", thousands(row.n), row.what)
	}
	if len(v.Findings) > 0 {
		b.WriteByte('\n')
	}
	for _, f := range v.Findings {
		fmt.Fprintf(&b, "  sample %d (%s): %s\n", f.Sample, printable.Name(f.Path), f.text())
	}
	if more := v.bad() - len(v.Findings); more > 0 {
		fmt.Fprintf(&b, "  and %s more\n", thousands(more))
	}
	switch {
	case v.Dropped > 0:
		fmt.Fprintf(&b, "\ndropped %s: the next job reads these samples from the dataset\n",
			plural(v.Dropped, "copy", "copies"))
	case v.Corrupt+v.Differ > 0:
		b.WriteString("\n--fix drops the copies that are corrupt or differ\n")
	}
	b.WriteByte('\n')
	return b.String()
}

// text says what was found, without the sample.
func (f *finding) text() string {
	switch {
	case f.What == sourceFailed:
		return printable.Text(f.Reason)
	case f.Reason != "":
		return "the copy cannot be read: " + printable.Text(f.Reason)
	case f.What == copyCorrupt:
		return fmt.Sprintf("the copy is corrupt: it has digest %s, and had %s when it was made",
			f.Copy, f.Other)
	}
	return fmt.Sprintf("the copy differs: it has digest %s, the file has %s", f.Copy, f.Other)
}

// compareProgress shows on a terminal how far the comparison is. Calls must not
// overlap.
type compareProgress struct {
	out  io.Writer
	bars *mpb.Progress // nil: nothing is shown
	bar  *mpb.Bar
}

func (p *compareProgress) update(done, of int) {
	if p.bars == nil {
		p.bars = mpb.New(mpb.WithOutput(p.out), mpb.WithWidth(30))
		p.bar = p.bars.AddBar(int64(of), mpb.PrependDecorators(decor.Name("comparing ")),
			mpb.AppendDecorators(
				decor.Any(func(s decor.Statistics) string {
					return fmt.Sprintf(" %s of %s", thousands(int(s.Current)),
						count(int(s.Total), "sample"))
				}),
			))
	}
	p.bar.SetCurrent(int64(done))
	if done == of {
		p.close() // the next store has a bar of its own
	}
}

// close takes the bar away.
func (p *compareProgress) close() {
	if p.bars != nil {
		p.bar.Abort(true)
		p.bars.Wait()
		p.bars = nil
	}
}
