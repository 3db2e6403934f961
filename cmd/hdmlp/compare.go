package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/compare"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// compareOptions are the options of `hdmlp compare`.
type compareOptions struct {
	datasetFlags
	paths                     []string
	policies                  []string
	epochs, nodes, batch      int
	samples                   int // 0: as many as the time allows
	seed                      uint64
	rate, sourceRate          string
	transforms                string
	memory, cache, cacheSize  string
	out                       string // directory of the result; "": one in the user's cache
	time, probeTime, stepTime time.Duration
	timeout                   time.Duration // of a read of the source
	again, json               bool
	timeGiven, samplesGiven   bool

	// What validate makes of them.
	link       devcluster.LinkState
	sourceMBps float64 // 0: no limit
	program    []byte  // of the transforms, as requests have them; nil: none
	bytes      int64   // of memory; negative: auto
	cacheBytes int64   // 0: auto
	named      bool    // the policies were named one by one
	chosen     []plan.Policy

	tell, warn func(text string)
	progress   io.Writer // a terminal; nil: none
}

func newCompareCommand() *cobra.Command {
	var opts compareOptions
	cmd := &cobra.Command{
		Use:   "compare PATH...",
		Short: "Run each policy on a dataset for real, beside its simulation",
		Long: `Run each policy on a dataset and this machine, for real, and simulate the same
policies from what was measured of the machine. Shown side by side: runtime,
stall, time before training, where the bytes came from, how far the order is
from a full shuffle, and the five properties by which the thesis compares
loaders (table 2.1), as measured. The bound, perfect, is shown beside.

` + pathsHelp + `

It says first how long it will take, and reads as many samples, drawn at random,
as fit into --time; caches are then scaled to that part of the dataset. Each
policy runs in new processes with empty caches, and begins with the same
measurements of the machine. Samples are dropped from the page cache before each
read of the source; the result says if that was not possible.

A rank takes batches as a training process does: it holds a batch for
--step-time, as long as training computes on it, gives its memory back, and
waits for the other ranks. Without --step-time it takes batches as fast as they
come, so that the runtime is that of loading alone.

With -n, nodes are those of hdmlp dev cluster: an HDMLP node each, on this
machine. As root they are network namespaces, and --rate limits their links.
--source-rate is the limit of the source, of all nodes together. The nodes share
the processors, so that times, which are marked ~, are not those of as many
machines; bytes are.

Results are saved after each policy. If it is interrupted, it prints what there
is, and the same command goes on.

EXIT STATUS
  0    success; policies that cannot run on this data are listed with the reason
  1    failure, or a policy failed while it ran; the others are shown
  2    wrong input, or a policy that was named cannot run; nothing was started
  130  interrupted; what ran to the end is printed and saved`,
		Example: `  hdmlp compare /data/imagenet --policies all --epochs 3
  hdmlp compare /data/imagenet --policies cooperative,staging,naive \
      -n 4 --rate 1gbit --source-rate 40MB/s --step-time 50ms
  hdmlp compare '/data/shards/*.tar' --samples 20000 --out comparison \
      --transforms 'RandomResizedCrop(224), ToTensor()'`,
		Args: pathsOfDataset,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.paths = args
			opts.json, _ = cmd.Flags().GetBool("json")
			opts.timeGiven = cmd.Flags().Changed("time")
			opts.samplesGiven = cmd.Flags().Changed("samples")
			errs := cmd.ErrOrStderr()
			opts.tell = func(text string) { fmt.Fprintln(errs, human.Text(text)) }
			opts.warn = func(text string) { opts.tell("warning: " + text) }
			if isTerminal(errs) {
				opts.progress = errs
			}
			cfg, err := configInForce()
			if err != nil {
				return err
			}
			opts.timeout = cfg.SourceTimeout
			if !cmd.Flags().Changed("index-dir") {
				opts.indexDir = cfg.IndexDir
			}
			if cfg.Entries != "" {
				opts.warn(fmt.Sprintf("the storage classes in %s are not used: --memory and --cache say "+
					"what each node has", cfg.Entries))
			}
			c, err := runCompare(cmd.Context(), &opts)
			if c == nil {
				return err
			}
			return errors.Join(err, opts.print(c, cmd.OutOrStdout()))
		},
	}
	flags := cmd.Flags()
	opts.add(flags)
	flags.StringSliceVar(&opts.policies, "policies", []string{"all"},
		"policies to compare, with options as in tfdata:buffer=2000, or all: those that run on this "+
			"data")
	flags.IntVar(&opts.epochs, "epochs", 3, "number of epochs")
	flags.IntVarP(&opts.nodes, "nodes", "n", 1, "number of nodes, with one rank on each")
	flags.IntVar(&opts.batch, "batch", 32, "samples of a rank's batch")
	flags.IntVar(&opts.samples, "samples", 0,
		"read so many `SAMPLES` of the dataset (default: as many as fit into --time)")
	flags.DurationVar(&opts.time, "time", 10*time.Minute, "time for all runs together, at least 10s")
	flags.DurationVar(&opts.probeTime, "probe-time", 0,
		"`TIME` for measuring the machine before, 2s to 1h (default: a twentieth of --time, 2s to 30s)")
	flags.DurationVar(&opts.stepTime, "step-time", 0, "how long training computes on a batch")
	flags.StringVar(&opts.rate, "rate", "unlimited",
		"rate of each node's link, each way, such as 1gbit; needs -n, and root")
	flags.StringVar(&opts.sourceRate, "source-rate", "",
		"`RATE` of the source, of all nodes together, such as 40MB/s (default: no limit)")
	flags.StringVar(&opts.transforms, "transforms", "",
		"list of transforms, such as 'Resize(256), CenterCrop(224), ToTensor()' (default: none)")
	flags.StringVar(&opts.memory, "memory", "auto",
		"`SIZE` of each node's cache in memory, for the whole dataset; 0: none")
	flags.StringVar(&opts.cache, "cache", "",
		"`DIR` on the disk of the nodes' caches; each gets a directory of its own in it, which is "+
			"removed (default: no cache on disk)")
	flags.StringVar(&opts.cacheSize, "cache-size", "",
		"`SIZE` of each node's cache in --cache, for the whole dataset (default: the free space of "+
			"the disk, divided among the nodes)")
	flags.Uint64Var(&opts.seed, "seed", 0, "seed of the order, and of which samples are read")
	flags.StringVar(&opts.out, "out", "",
		"write the page, plots and results to `DIR` (default: one in ~/.cache/hdmlp/compare)")
	flags.BoolVar(&opts.again, "again", false, "run all policies again, also those that are saved")
	return cmd
}

// validate reads the flags. Its error joins one for each mistake.
func (o *compareOptions) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}
	number := func(flag string, v int) {
		if v < 1 || v > math.MaxInt32 {
			fault("--%s is %d; allowed: 1 to %d", flag, v, math.MaxInt32)
		}
	}
	number("epochs", o.epochs)
	number("nodes", o.nodes)
	number("batch", o.batch)
	if o.samplesGiven {
		number("samples", o.samples)
		if o.timeGiven {
			fault("--samples and --time: give one of them; the time follows from the samples")
		}
	}
	if o.time < 10*time.Second {
		fault("--time is %v; it must be 10s or more", o.time)
	}
	if o.probeTime == 0 {
		o.probeTime = min(max(o.time/20, 2*time.Second), 30*time.Second)
	} else if o.probeTime < 2*time.Second || o.probeTime > time.Hour {
		fault("--probe-time is %v; allowed: 2s to 1h", o.probeTime)
	}
	if o.stepTime < 0 || o.stepTime > time.Hour {
		fault("--step-time is %v; allowed: 0 to 1h", o.stepTime)
	}
	var err error
	if o.link.Rate, err = devcluster.ParseRate(o.rate); err != nil {
		fault("--rate: %w", err)
	} else if o.link.Rate != 0 && o.nodes == 1 {
		fault("--rate: one node has no link; give -n as well")
	}
	if o.nodes >= 1 && o.nodes <= math.MaxInt32 {
		if err := o.cluster().Check(); err != nil {
			fault("-n: %w", err)
		}
	}
	if o.sourceRate != "" {
		rate, wrong := envfile.Rate.Read("--source-rate", o.sourceRate)
		if wrong != nil {
			faults = append(faults, *wrong)
		}
		o.sourceMBps = rate
	}
	size := func(flag, text string, to *int64) {
		n, err := human.Parse(text)
		if err != nil || n < 0 {
			fault("--%s is %q; give %s", flag, text, human.Allowed)
		}
		*to = n
	}
	if o.bytes = -1; o.memory != "auto" {
		size("memory", o.memory, &o.bytes)
	}
	if o.cacheSize != "" {
		size("cache-size", o.cacheSize, &o.cacheBytes)
		if o.cache == "" {
			fault("--cache-size: give --cache as well, the directory of the caches")
		}
	}
	if o.cache != "" {
		if o.cache, err = filepath.Abs(o.cache); err != nil {
			fault("--cache: %w", err)
		}
	}
	if o.transforms != "" {
		faults = append(faults, o.compile())
	}
	faults = append(faults, o.choosePolicies())
	return errors.Join(faults...)
}

func (o *compareOptions) compile() error {
	var err error
	if strings.TrimSpace(o.transforms) == "" {
		return errors.New("--transforms is empty; give a list, or omit it")
	}
	if o.program, err = transform.Parse(o.transforms); err == nil {
		_, err = transform.Compile(o.program)
	}
	if err != nil {
		return fmt.Errorf("--transforms: %w", err)
	}
	return nil
}

// choosePolicies sets the policies that are asked for.
func (o *compareOptions) choosePolicies() error {
	if len(o.policies) == 1 && o.policies[0] == "all" {
		o.chosen = policies.Engine()
		return nil
	}
	o.named = true
	if len(o.policies) == 0 {
		return errors.New("--policies is empty; give all, or their names")
	}
	var faults []error
	seen := map[string]bool{}
	for _, name := range o.policies {
		p, err := policies.ByName(name)
		switch {
		case name == "all":
			err = errors.New("--policies: give all alone, or the names of policies")
		case err != nil:
			err = fmt.Errorf("--policies: %w", err)
		case seen[p.Name()]: // as tfdata:buffer=10000, which is the default
			err = fmt.Errorf("--policies: %s is given twice", p.Name())
		default:
			o.chosen = append(o.chosen, p)
			seen[p.Name()] = true
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// cluster returns the options of the nodes.
func (o *compareOptions) cluster() devcluster.Options {
	return devcluster.Options{Nodes: o.nodes, Link: o.link, Loopback: o.nodes == 1}
}

// settings returns what the results depend on.
func (o *compareOptions) settings(root, fingerprint string) compare.Settings {
	return compare.Settings{
		Dataset: root, Version: fingerprint, Options: strings.Join(o.options, " "), Nodes: o.nodes,
		Epochs: o.epochs, Batch: o.batch, Seed: o.seed, StepTime: o.stepTime.Seconds(),
		Rate: o.link.Rate.String(), SourceRate: o.sourceMBps, Transforms: o.transforms,
		Memory: o.bytes, Cache: o.cache, CacheSize: o.cacheBytes, Samples: o.samples,
		Time: o.limit(), ProbeTime: o.probeTime.Seconds(), Paths: o.paths, Program: version,
		Variables: variables(),
	}
}

// variables returns the HDMLP_* variables of configuration keys, which apply to each run as to a
// job.
func variables() string {
	var all []string
	for name, value := range hdmlpEnvironment() {
		if _, key := config.Lookup(strings.ToLower(strings.TrimPrefix(name, "HDMLP_"))); key {
			all = append(all, name+"="+value)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// limit returns the time limit in seconds; 0 if the number of samples is given.
func (o *compareOptions) limit() float64 {
	if o.samples > 0 {
		return 0
	}
	return o.time.Seconds()
}

// print prints the comparison.
func (o *compareOptions) print(c *compare.Comparison, out io.Writer) error {
	if o.json {
		return c.JSON(out)
	}
	width, colour := terminal(out)
	if err := c.Text(out, compare.TextOptions{Width: width, Colour: colour}); err != nil {
		return err
	}
	if c.Dir == "" { // it could not be written
		return nil
	}
	_, err := fmt.Fprintf(out, "\nSaved: %s%cindex.html\n", human.Name(c.Dir), os.PathSeparator)
	return err
}
