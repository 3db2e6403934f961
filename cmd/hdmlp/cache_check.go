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

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
)

// cacheCheckOptions are the options of `hdmlp cache check`.
type cacheCheckOptions struct {
	dir      string
	dataset  string // path; "": the one in the store's description
	store    string // beginning of a version; "": all
	fix      bool
	json     bool
	indexDir string
	timeout  time.Duration
	scanned  func(files int64)  // progress of a scan; nil: none
	compared func(done, of int) // progress of the comparison; calls do not overlap; nil: none
	opened   func()             // called between the two; nil: none
	warn     func(text string)  // nil: none
}

func newCacheCheckCommand() *cobra.Command {
	var opts cacheCheckOptions
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Compare the samples in a cache directory with their dataset",
		Long: `Compare the samples in a cache directory byte by byte with the files of the
dataset that they were copied from. Each file that has a copy in the cache is
read once.

The dataset is expected at the path in the store's description, or at --dataset.
It must have the store's version: copies of another version are neither used nor
compared. No daemon can use the directory meanwhile.

--fix drops copies that are corrupt or differ, so that the next job reads these
samples from the dataset; it does not change the exit status.

EXIT STATUS
  0    all copies are equal to their files
  1    a copy is corrupt or differs, or a file has changed or cannot be read, or
       the source did not answer within source_timeout
  2    wrong input: not a cache directory, no such store, in use by a daemon,
       the dataset is missing or has another version, ...
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
				opts.scanned = scan.update
				opts.compared = compare.update
				opts.opened = scan.close
			}
			defer compare.close()
			defer scan.close()
			opts.warn = func(text string) {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", human.Text(text))
			}
			return runCacheCheck(cmd.Context(), opts, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.dataset, "dataset", "",
		"path of the dataset (default: its path when the store was last opened)")
	flags.StringVar(&opts.store, "store", "",
		"check the store whose version begins with `DIGITS` (default: all)")
	flags.BoolVar(&opts.fix, "fix", false, "drop copies that are corrupt or differ")
	return cmd
}

// checkView is what `hdmlp cache check --json` prints for one store. Sizes are in bytes.
type checkView struct {
	Dir        string    `json:"dir"`
	Version    string    `json:"version"`
	Dataset    string    `json:"dataset"`
	Samples    int       `json:"samples"` // of the dataset
	Held       int       `json:"held"`    // samples with a copy in the store
	Bytes      int64     `json:"bytes"`   // of the copies
	Same       int       `json:"same"`
	Corrupt    int       `json:"corrupt"`
	Differ     int       `json:"differ"`
	Unreadable int       `json:"source_changed_or_unreadable"`
	Dropped    int       `json:"dropped"`
	Seconds    float64   `json:"seconds"`
	Findings   []finding `json:"findings"` // the first mostFindings by ID
}

// mostFindings is the limit on listed findings.
const mostFindings = 20

// finding is a sample whose copy and file are not known to be equal.
type finding struct {
	Sample int    `json:"sample"`
	Path   string `json:"path"`
	What   string `json:"what"` // corrupt, differs, source
	Copy   string `json:"copy_digest,omitempty"`
	// Other is the file's digest if What is differs, and the recorded one if it is corrupt.
	Other string `json:"other_digest,omitempty"`
	// Reason is why the file could not be compared, or why the copy could not be read.
	Reason string `json:"reason,omitempty"`
}

// Values of finding.What.
const (
	copyCorrupt  = "corrupt"
	copyDiffers  = "differs"
	sourceFailed = "source"
)

// bad returns the number of samples that are not equal.
func (v *checkView) bad() int { return v.Corrupt + v.Differ + v.Unreadable }

// runCacheCheck compares stores with their datasets and prints its findings. If a store cannot be
// compared, the others still are.
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
		return badInput("--dataset %s: choose the store to compare with it (--store)%s",
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
		err = printJSON(out, views)
	} else if len(stores) == 0 {
		_, err = fmt.Fprintf(out, "%s: nothing is cached\n", human.Name(opts.dir))
	}
	if bad > 0 { // takes precedence over wrong input
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

// checkStore compares one store. The result is nil if nothing was compared.
func checkStore(ctx context.Context, c *file.Cache, s *file.StoreInfo,
	opts cacheCheckOptions,
) (_ *checkView, err error) {
	version := versionText(s.Fingerprint)
	at, err := whereIs(ctx, c, s, opts)
	if err != nil {
		return nil, err
	}
	path := at.dir
	src, err := at.open(ctx, openOptions{
		progress: opts.scanned, timeout: opts.timeout, warn: opts.warn, retries: true,
	})
	opts.opened()
	var problem *source.Error
	switch {
	case errors.As(err, &problem) && !errors.Is(err, source.ErrUnavailable):
		return nil, badInput("store %s was not compared: %w", version, err)
	case err != nil:
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	index := src.Index()
	stored, _ := catalog.Stored(&source.Spec{}, src)
	if now := index.Fingerprint(); now != s.Fingerprint && catalog.Apart(stored) != s.Fingerprint {
		return nil, badInput("store %s was not compared: the dataset %s now has another version, "+
			"%s, so it is a different dataset or has changed since; no job on it uses the "+
			"store's samples, and `hdmlp cache rm %s --store %s` removes them",
			version, path, versionText(now), opts.dir, version[:shortVersion])
	}
	ds := store.Dataset{Fingerprint: s.Fingerprint, Samples: index.Len(), Size: index.Size}
	contents, err := c.Contents(ds)
	if errors.Is(err, file.ErrIndex) || errors.Is(err, fs.ErrNotExist) {
		return nil, badInput("store %s was not compared: %w", version, file.ErrIndex)
	}
	if err != nil {
		return nil, cacheError(err)
	}
	contents.Restore = restored
	k := &checker{
		source:   src,
		locate:   pathsOf(src),
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
	v.Dir = opts.dir
	v.Version = version
	v.Dataset = path
	v.Samples = index.Len()
	v.Held = len(contents.Held())
	v.Seconds = time.Since(start).Seconds()
	if opts.fix && len(k.drop) > 0 {
		if err := c.Drop(ds, k.drop); err != nil {
			return &v, fmt.Errorf("drop copies from store %s: %w", version, err)
		}
		v.Dropped = len(k.drop)
	}
	return &v, nil
}

// whereIs returns where a store's dataset is.
func whereIs(ctx context.Context, c *file.Cache, s *file.StoreInfo, opts cacheCheckOptions,
) (*dataset, error) {
	version := versionText(s.Fingerprint)
	d := s.Description
	if d == nil {
		if opts.dataset == "" {
			why := "it was made by an older version of hdmlp"
			if s.Problem != nil {
				why = s.Problem.Error()
			}
			return nil, badInput("store %s was not compared: it does not say which "+
				"dataset it belongs to (%s); give the store and its dataset with --store "+
				"and --dataset", version, why)
		}
		flags := datasetFlags{indexDir: opts.indexDir}
		return flags.find(ctx, opts.timeout, []string{opts.dataset})
	}
	kind, err := sourceKind(d.Kind)
	var list *source.Manifest
	if err == nil && kind.Manifest {
		list, err = listOf(c, s)
	}
	if err != nil {
		return nil, badInput("store %s was not compared: %w", version, err)
	}
	at := &dataset{
		kind: kind, dir: cmp.Or(opts.dataset, d.Path), manifest: list,
		values: option.Values{source.IndexDirKey: opts.indexDir},
	}
	if !slices.Equal(d.Extensions, defaultExtensions(kind)) {
		at.values[source.ExtensionsKey] = d.Extensions
	}
	for key, given := range d.Options {
		o, ok := option.Find(kind.Options, key)
		if !ok {
			return nil, badInput("store %s was not compared: its description has %q, which is no "+
				"option of the kind %s", version, key, d.Kind)
		}
		if at.values[key], err = storedOption(o, given); err != nil {
			return nil, badInput("store %s was not compared: its description: %w", version, err)
		}
	}
	return at, nil
}

// listOf returns the list of a dataset's records that its store keeps.
func listOf(c *file.Cache, s *file.StoreInfo) (*source.Manifest, error) {
	data, err := c.List(s.Fingerprint)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("a process listed its samples (kind %s), and an older version of hdmlp "+
			"did not keep the list; verify=True of a loader compares each copy", s.Description.Kind)
	case err != nil:
		return nil, err
	}
	return source.NewManifest(data), nil
}

// storedOption returns the value of an option that a description has as JSON.
func storedOption(o option.Option, given any) (any, error) {
	list, ok := given.([]any)
	if !ok || o.Kind != option.List {
		value, _, err := o.Read(given)
		return value, err
	}
	texts := make([]string, len(list))
	for i, v := range list {
		if texts[i], ok = v.(string); !ok {
			return nil, fmt.Errorf("%s: %v is no text", o.Key, v)
		}
	}
	return texts, nil
}

// text formats the view for people.
func (v *checkView) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, store %s of %s\n", human.Name(v.Dir), v.Version[:shortVersion],
		human.Name(v.Dataset))
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
		fmt.Fprintf(&b, "  sample %d (%s): %s\n", f.Sample, human.Name(f.Path), f.text())
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

// text describes the finding, without the sample.
func (f *finding) text() string {
	switch {
	case f.What == sourceFailed:
		return human.Text(f.Reason)
	case f.Reason != "":
		return "the copy cannot be read: " + human.Text(f.Reason)
	case f.What == copyCorrupt:
		return fmt.Sprintf("the copy is corrupt: its digest is %s, and was %s when it was made",
			f.Copy, f.Other)
	}
	return fmt.Sprintf("the copy differs: its digest is %s, the file's is %s", f.Copy, f.Other)
}

// compareProgress shows the progress of a comparison on a terminal. Calls must not overlap.
type compareProgress struct {
	out  io.Writer
	line *liveLine // nil: nothing is shown
	done int
	of   int
}

func (p *compareProgress) update(done, of int) {
	if p.line == nil {
		p.done, p.of = done, of
		p.line = showLine(p.out, p.text)
	}
	p.line.update(func() { p.done = done })
	if done == of { // the next store has a line of its own
		p.line.close(true)
		p.line = nil
	}
}

func (p *compareProgress) text(columns int) string {
	after := fmt.Sprintf("]  %s of %s", thousands(p.done), count(p.of, "sample"))
	const before = "comparing  ["
	width := max(0, min(28, columns-len(before)-len(after)))
	bar := strings.Repeat("=", portion(int64(p.done), int64(p.of), width))
	if p.done < p.of && bar != "" {
		bar = bar[1:] + ">"
	}
	return before + bar + strings.Repeat("-", width-len(bar)) + after
}

// close removes the bar.
func (p *compareProgress) close() {
	if p.line != nil {
		p.line.close(false)
		p.line = nil
	}
}
