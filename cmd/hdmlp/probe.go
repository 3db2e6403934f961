package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/study/measure/survey"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// probeOptions are the options of `hdmlp probe`.
type probeOptions struct {
	datasetFlags
	paths                []string
	cache                string // directory of the file class; "": the configuration's
	transforms           string // "": none
	out, plot            string // files; "": beside the index, and none
	time                 time.Duration
	json                 bool
	config               *config.Config
	nodes, node          int
	address              string            // where node 0 listens, or is reached
	scanned              func(files int64) // progress of a scan; nil: none
	opened               func()            // the scan is over
	progress, warn, tell func(text string) // nil: none; tell is for processes that print no result
	// wrap returns what is measured; nil: the dataset.
	wrap func(source.Indexed) (source.Indexed, error)
}

func newProbeCommand() *cobra.Command {
	var opts probeOptions
	cmd := &cobra.Command{
		Use:   "probe PATH...",
		Short: "Measure how fast this machine reads, keeps and transforms samples",
		Long: `Measure what the performance model needs to know of this machine: how fast the
source delivers samples of the dataset, by their size and the number of streams,
how fast memory and the cache directory (--cache) take and return them, and how
fast a thread transforms them. Each rate is the median of 10 measurements, with
its 95 % confidence interval. It takes a minute (--time), and more only if the
dataset has no index yet.

` + pathsHelp + `

Samples are read in random order, and are dropped from the page cache before; it
says so if that is not possible. Servers may have them in memory nevertheless.
The cache directory is measured in a temporary directory in it, which is removed
whatever happens. Nothing else in it is touched.

On several nodes, start it on all of them at the same time, with torchrun, srun
or hdmlp dev cluster, as jobs are, with one process per node. It then measures
also what the source delivers to several nodes at once, and the network between
neighbours. Node 0 prints the results. The command that pip installs finds the
nodes, by what the launcher says; without it, --nodes, --node, --address and
HDMLP_SECRET do.

The result is stored beside the dataset's index, where later jobs and probes
find it, or written to --out. ` + "`hdmlp simulate SCENARIO --environment FILE`" + `
simulates the measured machine. --plot draws the rates, as PNG, SVG or HTML.

EXIT STATUS
  0    success; anything but the source that could not be measured was reported
  1    failure; if only the source could not be measured, the rest was written
  2    wrong input: no such dataset, a list of transforms with errors, ...
  130  interrupted; nothing was written`,
		Example: `  hdmlp probe /data/imagenet --cache /nvme --out environment.toml \
      --transforms 'RandomResizedCrop(224), ToTensor()' --plot rates.html
  hdmlp simulate scenarios/thesis-3.toml --environment environment.toml
  srun --ntasks-per-node 1 hdmlp probe /data/imagenet`,
		Args: pathsOfDataset,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.paths = args
			opts.json, _ = cmd.Flags().GetBool("json")
			errs := cmd.ErrOrStderr()
			scan := scanProgress{out: errs, start: time.Now()}
			if !opts.json && isTerminal(errs) {
				opts.scanned = scan.update
			}
			opts.opened = scan.close
			defer scan.close()
			if !cmd.Flags().Changed("nodes") {
				if name := severalProcesses(os.Getenv); name != "" {
					return badInput("%s=%s: this is one of several processes, and the binary does not "+
						"read launchers' variables: start `hdmlp probe` as pip installs it, or "+
						"`python -m hdmlp probe`, or give --nodes, --node and --address", name,
						os.Getenv(name))
				}
			}
			var bar probeBar
			if isTerminal(errs) {
				bar.out, bar.time = errs, opts.time
			}
			opts.progress = bar.update
			defer bar.close()
			opts.tell = func(text string) { fmt.Fprintln(errs, text) }
			opts.warn = func(text string) { opts.tell("warning: " + text) }
			var err error
			if opts.config, err = jobConfig(nil, opts.cache, ""); err != nil {
				return err
			}
			if !cmd.Flags().Changed("index-dir") {
				opts.indexDir = opts.config.IndexDir
			}
			a, err := runProbe(cmd.Context(), opts)
			bar.close()
			if err != nil || a == nil {
				return err
			}
			if opts.json {
				return errors.Join(printJSON(cmd.OutOrStdout(), a), a.unmeasured())
			}
			width, _ := terminal(cmd.OutOrStdout())
			if _, err := io.WriteString(cmd.OutOrStdout(), a.text(width)); err != nil {
				return err
			}
			return a.unmeasured()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.cache, "cache", "",
		"`DIR` on the disk of the cache (default: cache_dir of the configuration, if it is set)")
	flags.StringVar(&opts.transforms, "transforms", "",
		"list of transforms to measure, such as 'Resize(256), CenterCrop(224), ToTensor()'")
	flags.StringVar(&opts.out, "out", "",
		"write the environment to `FILE` (TOML) instead of beside the index")
	flags.StringVar(&opts.plot, "plot", "", "draw the rates to `FILE`: .png, .svg or .html")
	flags.DurationVar(&opts.time, "time", time.Minute, "time for all measurements, 2s to 1h")
	opts.add(flags)
	flags.IntVar(&opts.nodes, "nodes", 1, "number of nodes that measure together")
	flags.IntVar(&opts.node, "node", 0, "number of this node, from 0")
	flags.StringVar(&opts.address, "address", "",
		"`HOST:PORT` of node 0, for all nodes; on node 0 the host may be left out")
	return cmd
}

// severalProcesses returns the variable that says that a launcher has started several processes, or
// that there are several nodes; "": none does.
func severalProcesses(getenv func(string) string) string {
	for _, name := range []string{
		"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS",
	} {
		if n, err := strconv.Atoi(getenv(name)); err == nil && n > 1 {
			return name
		}
	}
	if strings.Contains(getenv("HDMLP_NODES"), ",") {
		return "HDMLP_NODES"
	}
	return ""
}

// check validates what can be before anything is measured, and compiles the transforms.
func (o *probeOptions) check() (*transform.Program, error) {
	if o.time < 2*time.Second || o.time > time.Hour {
		return nil, badInput("--time is %v; allowed: 2s to 1h", o.time)
	}
	switch {
	case o.nodes < 1, o.node < 0, o.node >= o.nodes:
		return nil, badInput("--nodes is %d and --node %d; allowed: at least 1 node, and --node from "+
			"0 to --nodes less one", o.nodes, o.node)
	case o.nodes > 1 && o.address == "":
		return nil, badInput("--nodes is %d, but --address, which says where node 0 is, is not given",
			o.nodes)
	case o.nodes > 1 && secret() == "":
		return nil, badInput("the nodes need a secret in common: set HDMLP_SECRET to the same on all " +
			"nodes ('openssl rand -hex 32' generates one)")
	}
	for _, f := range []struct{ flag, path string }{{"--out", o.out}, {"--plot", o.plot}} {
		if err := checkTarget(f.path); err != nil {
			return nil, badInput("%s %s: %w", f.flag, f.path, err)
		}
	}
	if o.plot != "" {
		switch strings.ToLower(filepath.Ext(o.plot)) {
		case ".png", ".svg", ".html":
		default:
			return nil, badInput("--plot %s: the file's name must end in .png, .svg or .html", o.plot)
		}
	}
	if strings.TrimSpace(o.transforms) == "" {
		if o.transforms != "" {
			return nil, badInput("--transforms is empty; give a list, or omit it")
		}
		return nil, nil
	}
	description, err := transform.Parse(o.transforms)
	if err != nil {
		return nil, badInput("--transforms: %w", err)
	}
	program, err := transform.Compile(description)
	if err != nil {
		return nil, badInput("--transforms: %w", err)
	}
	return program, nil
}

// checkTarget returns an error if a file cannot be written there later. "" is no file.
func checkTarget(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return errors.New("it exists, and is not a regular file")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	dir := filepath.Dir(path)
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

// runProbe measures, and writes the files. The answer is nil on a node that prints nothing.
func runProbe(ctx context.Context, o probeOptions) (*probeAnswer, error) {
	program, err := o.check()
	if err != nil {
		return nil, err
	}
	source, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	a := &probeAnswer{Dataset: strings.Join(o.paths, " "), started: time.Now()}
	spec, err := o.spec(source, program)
	if err != nil {
		return nil, err
	}
	if o.nodes > 1 {
		if spec.Group, err = o.join(ctx, source.Index()); err != nil {
			return nil, err
		}
		defer spec.Group.Close()
	}
	// Nothing hangs longer than this, on other nodes either.
	within, cancel := context.WithTimeout(ctx, o.time+o.time/2+30*time.Second)
	defer cancel()
	a.Result, err = survey.Run(within, spec)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, survey.ErrNoSamples):
		return nil, badInput("%s: %w", a.Dataset, err)
	case err != nil:
		return nil, err
	}
	a.Seconds = time.Since(a.started).Seconds()
	a.size = model.Size{Nodes: a.Nodes, Sample: a.Mean}
	for _, c := range spec.Classes {
		a.size.Capacity = append(a.size.Capacity, float64(c.Capacity)/1e6)
	}
	a.size.Staging = float64(cmp.Or(o.config.StagingBuffer, min(1<<30, spec.Memory))) / 1e6
	if err := a.write(ctx, &o, source, o.node == 0); err != nil {
		return nil, err
	}
	if o.node != 0 {
		o.tell(fmt.Sprintf("node %d: measured together with node 0, which prints the results", o.node))
		return nil, nil
	}
	return a, nil
}

// open opens the dataset.
func (o *probeOptions) open(ctx context.Context) (source.Indexed, error) {
	if _, err := host.RaiseFileLimit(); err != nil {
		o.warn(err.Error())
	}
	at, err := o.find(ctx, o.config.SourceTimeout, o.paths)
	if err != nil {
		o.opened()
		return nil, err
	}
	src, err := at.open(ctx, openOptions{
		progress: o.scanned, warn: o.warn, timeout: o.config.SourceTimeout,
	})
	o.opened()
	if err == nil && o.wrap != nil {
		return o.wrap(src)
	}
	return src, err
}

const (
	// mostProbed is how many bytes of samples the measurement of a class writes, at most.
	mostProbed = 256 << 20
	// probeStreams is the largest number of streams from the source.
	probeStreams = 512
	// ownFiles is how many files the process may have open besides those that it reads.
	ownFiles = 64
)

// spec returns what to measure.
func (o *probeOptions) spec(source source.Indexed,
	program *transform.Program,
) (survey.Options, error) {
	available, err := availableMemory()
	if err != nil {
		return survey.Options{}, err
	}
	s := survey.Options{
		Source: source, Index: source.Index(), Program: program,
		Threads: runtime.GOMAXPROCS(0), Streams: probeStreams, Memory: available / 8,
		Time: o.time, Progress: o.progress,
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}
	if soft, _, err := host.FileLimit(); err == nil {
		s.Streams = max(1, min(s.Streams, int(min(soft, 1<<20))-ownFiles))
	}
	for _, c := range o.config.StorageClasses {
		kind, err := classKind(c.Kind)
		if err != nil {
			return s, err
		}
		class := survey.Class{Kind: kind, Path: c.Path(), Capacity: capacityOf(c), Threads: c.Threads}
		class.Room = func() (int64, error) { return min(available/8, mostProbed), nil }
		if kind.Has(store.PathKey) {
			free, _, err := disk(c.Path())
			class.Room = func() (int64, error) {
				if _, err := os.Stat(c.Path()); err != nil {
					return 0, err
				}
				return min(free/4, mostProbed), err
			}
		}
		s.Classes = append(s.Classes, class)
	}
	return s, nil
}

// classKind returns the kind of storage class of this name.
func classKind(name string) (store.Kind, error) {
	for _, k := range describedClasses() {
		if k.Name == name {
			return k, nil
		}
	}
	return store.Kind{}, badInput("storage class %q is not known", name)
}

// secret returns what the nodes have in common; "" if it is not given.
func secret() string { return strings.TrimSpace(os.Getenv("HDMLP_SECRET")) }

// join finds the other nodes.
func (o *probeOptions) join(ctx context.Context, index *source.Index) (*survey.Group, error) {
	listing := index.Listing()
	classes := make([]string, len(o.config.StorageClasses))
	for i, c := range o.config.StorageClasses {
		classes[i] = c.Kind
	}
	o.progress(fmt.Sprintf("waiting for %s", count(o.nodes, "node")))
	g, err := survey.Join(ctx, survey.NodesOptions{
		Node: o.node, Nodes: o.nodes, Address: o.address, Interface: o.config.Interface,
		Secret: []byte(secret()), Wait: o.config.StartTimeout, Progress: o.progress,
		Sample: max(index.Bytes()/int64(max(index.Len(), 1)), 1),
		Facts: []survey.Fact{
			{Key: "hdmlp's version", Value: version},
			{Key: "dataset", Value: hex.EncodeToString(listing[:])},
			{Key: "storage classes", Value: strings.Join(classes, ", ")},
			{Key: "--transforms", Value: o.transforms},
			{Key: "--time", Value: o.time.String()},
		},
	})
	if err != nil && ctx.Err() == nil {
		return nil, badInput("the nodes could not form a cluster: %w", err)
	}
	return g, err
}
