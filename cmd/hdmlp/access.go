package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// accessOptions are the options of `hdmlp access`. A negative sample, rank, epoch or step was not
// given.
type accessOptions struct {
	samples, nodes, epochs, batch int
	seed                          uint64
	delta                         float64
	shuffle, scheme, tail         string
	dropLast                      bool
	sample, rank, epoch, step     int
	policy, capacity, size        string
	mix                           string
	mixture                       *access.Mixture // that of mix; nil: there is none
	epochSize                     int
	out                           string // a file for the plot; "": none
	json                          bool
}

func newAccessCommand() *cobra.Command {
	var opts accessOptions
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Show which rank reads which sample when, and how often, by seed",
		Long: `Show the accesses of a training run, which follow from its seed, before it
starts: how often a node reads each sample, as drawn and as expected in theory;
which rank reads a given sample when (--sample); what a rank reads in a step
(--rank, --epoch, --step).

Each node reads some samples far more often than others, which makes it
worthwhile to cache them: with 10000 samples, 4 nodes and 1000 epochs, each node
reads about 323 samples more than 275 times, while the mean is 250.

With the default --shuffle torch, ranks read exactly what torch's
DistributedSampler and DataLoader with a batch size of BATCH/NODES would give
them.

--mix shows the accesses of hdmlp.torch.Mix: of several datasets, whose samples
follow one another, by weights. Their order is --shuffle feistel or none.

EXIT STATUS
  0  success
  1  the FILE of --out cannot be written
  2  wrong input`,
		Example: `  hdmlp access --samples 10000 --nodes 4 --epochs 1000 --batch 100 --seed 42
  hdmlp access --nodes 4 --epochs 1000 --seed 42 --out frequencies.png
  hdmlp access --samples 1281167 --nodes 8 --epochs 90 --batch 1024 \
      --sample 4711
  hdmlp access --samples 1281167 --nodes 8 --epochs 90 --batch 1024 \
      --rank 3 --epoch 12 --step 0
  hdmlp access --mix 1281167:0.9,50000:0.1 --epoch-size 100000 --sample 1300000`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badInput("access takes only flags, but got the argument %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.json, _ = cmd.Flags().GetBool("json")
			for name, v := range map[string]*int{
				"sample": &opts.sample,
				"rank":   &opts.rank,
				"epoch":  &opts.epoch,
				"step":   &opts.step,
			} {
				if cmd.Flags().Changed(name) && *v < 0 {
					return badInput("--%s is %d; it must be 0 or more", name, *v)
				}
			}
			if err := opts.mixed(cmd.Flags().Changed); err != nil {
				return err
			}
			return runAccess(opts, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opts.samples, "samples", 10000, "number of samples, F")
	flags.IntVar(&opts.nodes, "nodes", 4, "number of nodes, N, with one rank on each")
	flags.IntVar(&opts.epochs, "epochs", 90, "number of epochs, E")
	flags.IntVar(&opts.batch, "batch", 100, "samples per step over all nodes")
	flags.Uint64Var(&opts.seed, "seed", 0, "seed of the shuffle")
	flags.Float64Var(&opts.delta, "delta", 0.1,
		"count the samples that are read more than (1+delta)*E/N times")
	flags.StringVar(&opts.shuffle, "shuffle", string(access.Torch),
		"order of the samples: torch, feistel or none")
	flags.StringVar(&opts.scheme, "scheme", string(access.Strided),
		"how a batch is split among ranks: strided, uniform, whole or imbalanced")
	flags.StringVar(&opts.tail, "tail", string(access.Pad),
		"what to do with samples left over when dividing by the nodes: pad, drop or keep")
	flags.BoolVar(&opts.dropLast, "drop-last", false, "drop an incomplete last batch")
	flags.StringVar(&opts.mix, "mix", "", "samples and weights of datasets that epochs are mixed "+
		"of, instead of --samples: N:WEIGHT,N:WEIGHT,...")
	flags.IntVar(&opts.epochSize, "epoch-size", 0, "samples of an epoch of a mix")
	flags.StringVar(&opts.policy, "policy", policies.Default().Name(),
		"show the order in which ranks read under this policy, with its options, such as "+
			"tfdata:buffer=2000")
	flags.StringVar(&opts.capacity, "capacity", "",
		"configured size of each node's cache, for policies whose order depends on it "+
			"(default: without a limit)")
	flags.StringVar(&opts.size, "size", "100KB", "size of a sample, for the same")
	flags.StringVar(&opts.out, "out", "",
		"draw how often the rank reads the samples into this `FILE` (.png or .svg), as figure 3.1 of "+
			"the thesis")
	flags.IntVar(&opts.sample, "sample", -1, "show which rank reads this sample and when")
	flags.IntVar(&opts.rank, "rank", -1,
		"show what this rank reads (default: the frequencies of rank 0)")
	flags.IntVar(&opts.epoch, "epoch", -1, "show only this epoch")
	flags.IntVar(&opts.step, "step", -1, "show the batch of this step")
	for _, name := range []string{"sample", "rank", "epoch", "step"} {
		flags.Lookup(name).DefValue = "0" // help shows no default: they are off unless given
	}
	return cmd
}

// accessFlags replaces the names of access.Spec's fields by those of flags.
var accessFlags = strings.NewReplacer("access: ", "", "Samples is", "--samples is",
	"WorldSize", "--nodes", "GlobalBatch", "--batch", "Shuffle is", "--shuffle is",
	"Scheme is", "--scheme is", "Tail", "--tail", "DropLast", "--drop-last",
	"Entries of Mixture", "--epoch-size", "Mixture", "--mix")

// runAccess prints what opts select.
func runAccess(opts accessOptions, out io.Writer) error {
	stream, err := access.New(access.Spec{
		Samples: opts.samples, Seed: opts.seed, Epochs: opts.epochs, WorldSize: opts.nodes,
		GlobalBatch: opts.batch, DropLast: opts.dropLast,
		Shuffle: access.Shuffle(opts.shuffle), Scheme: access.Scheme(opts.scheme),
		Tail: access.Tail(opts.tail), Mixture: opts.mixture,
	})
	if err != nil {
		return badInput("%s", accessFlags.Replace(err.Error()))
	}
	if stream, err = opts.reordered(stream); err != nil {
		return err
	}
	if err := opts.check(stream); err != nil {
		return err
	}
	var answer interface{ print(io.Writer) }
	switch {
	case opts.sample >= 0:
		answer = sampleReads(opts, stream)
	case opts.step >= 0:
		answer = batchOf(opts, stream)
	default:
		frequencies := frequencies(opts, stream)
		if opts.out != "" {
			if err := frequencies.draw(opts.out); err != nil {
				return err
			}
		}
		answer = frequencies
	}
	if opts.json {
		return printJSONLine(out, answer)
	}
	answer.print(out)
	return nil
}

// reordered returns the stream in the order of the policy.
func (opts accessOptions) reordered(stream *access.Stream) (*access.Stream, error) {
	policy, err := policies.ForSimulator(cmp.Or(opts.policy, policies.Default().Name()))
	if err != nil {
		return nil, badInput("--policy: %v", err)
	}
	if policy == policies.Bound() {
		return nil, badInput("--policy: %s is a bound of the simulator, under which no rank reads "+
			"anything; `hdmlp simulate` shows it", policy.Name())
	}
	size, err := human.Parse(cmp.Or(opts.size, "100KB"))
	if err != nil || size < 1 {
		return nil, badInput("--size is %s; allowed: %s, at least 1 B", opts.size, human.Allowed)
	}
	capacity := int64(plan.Unlimited)
	if opts.capacity != "" {
		if capacity, err = human.Parse(opts.capacity); err != nil {
			return nil, badInput("--capacity is %s; allowed: %s", opts.capacity, human.Allowed)
		}
	}
	nodes := make([]plan.Node, opts.nodes)
	for n := range nodes {
		nodes[n] = plan.Node{Ranks: []int{n}, Capacity: []int64{capacity}}
	}
	in, err := plan.Ordered(policy, plan.Input{
		Stream: stream, Epochs: 1, Nodes: nodes, Size: func(int) int64 { return size },
	})
	if err != nil {
		return nil, badInput("--policy: %v", err)
	}
	return in.Stream, nil
}

// check validates the options that the stream itself does not know.
func (opts accessOptions) check(stream *access.Stream) error {
	below := func(name string, v, limit int) error {
		if v >= limit {
			return badInput("--%s is %d; allowed: 0 to %d", name, v, limit-1)
		}
		return nil
	}
	if opts.epochs < 1 {
		return badInput("--epochs is %d; it must be 1 or more", opts.epochs)
	}
	if !(opts.delta >= 0) || math.IsInf(opts.delta, 1) {
		return badInput("--delta is %v; it must be 0 or more and finite", opts.delta)
	}
	for _, e := range []error{
		below("sample", opts.sample, opts.samples), below("rank", opts.rank, opts.nodes),
		below("epoch", opts.epoch, opts.epochs), below("step", opts.step, stream.Steps()),
	} {
		if e != nil {
			return e
		}
	}
	switch {
	case opts.sample >= 0 && (opts.rank >= 0 || opts.step >= 0):
		return badInput("--sample goes with --epoch alone, not with --rank or --step: it shows " +
			"which rank reads the sample and when")
	case opts.sample < 0 && (opts.epoch >= 0) != (opts.step >= 0):
		return badInput("--epoch and --step go together: with --rank they select the batch to show")
	case opts.out != "" && (opts.sample >= 0 || opts.step >= 0):
		return badInput("--out draws how often a rank reads the samples: leave out --sample, --epoch " +
			"and --step")
	case opts.step >= 0 && opts.rank < 0:
		return badInput("--step needs --rank, the rank whose batch to show")
	}
	return nil
}

// readsAnswer lists the reads of a sample: which rank, and when.
type readsAnswer struct {
	Sample int        `json:"sample"`
	Epochs int        `json:"epochs"`
	Reads  []readWhen `json:"reads"`
	opts   accessOptions
}

type readWhen struct {
	Epoch int `json:"epoch"`
	Rank  int `json:"rank"`
	Step  int `json:"step"`
	Index int `json:"index"`
}

func sampleReads(opts accessOptions, stream *access.Stream) readsAnswer {
	a := readsAnswer{Sample: opts.sample, Epochs: opts.epochs, Reads: []readWhen{}, opts: opts}
	from, to := 0, opts.epochs
	if opts.epoch >= 0 {
		from, to = opts.epoch, opts.epoch+1
	}
	for e := from; e < to; e++ {
		for _, p := range stream.Epoch(e).Find(opts.sample) {
			a.Reads = append(a.Reads, readWhen{e, p.Rank, p.Step, p.Index})
		}
	}
	return a
}

func (a readsAnswer) print(out io.Writer) {
	when := fmt.Sprintf("in %d epochs", a.Epochs)
	if a.opts.epoch >= 0 {
		when = fmt.Sprintf("in epoch %d", a.opts.epoch)
	}
	fmt.Fprintf(out, "Sample %d is %s %s", a.Sample, readTimes(len(a.Reads)), when)
	if len(a.Reads) == 0 {
		fmt.Fprint(out, ".\n")
		return
	}
	fmt.Fprint(out, ":\n\n  epoch   rank    step   sample of the rank's epoch\n")
	const most = 100
	for i, r := range a.Reads {
		if i == most {
			fmt.Fprintf(out, "  ... and %d more; --json lists all\n", len(a.Reads)-most)
			break
		}
		fmt.Fprintf(out, "  %5d  %5d  %6d   %6d\n", r.Epoch, r.Rank, r.Step, r.Index)
	}
	if a.opts.epoch >= 0 {
		return
	}
	byRank := make([]int, a.opts.nodes)
	for _, r := range a.Reads {
		byRank[r.Rank]++
	}
	best := 0
	for r, n := range byRank {
		if n > byRank[best] {
			best = r
		}
	}
	fmt.Fprintf(out, "\nRank %d reads it most: %s.\n", best, times(byRank[best]))
}

// readTimes returns how often something is read, in words.
func readTimes(n int) string {
	if n == 0 {
		return "never read"
	}
	return "read " + times(n)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// batchAnswer lists the samples that a rank reads in a step.
type batchAnswer struct {
	Rank    int     `json:"rank"`
	Epoch   int     `json:"epoch"`
	Step    int     `json:"step"`
	Steps   int     `json:"steps"`
	Samples []int32 `json:"samples"`
}

func batchOf(opts accessOptions, stream *access.Stream) batchAnswer {
	return batchAnswer{
		opts.rank, opts.epoch, opts.step, stream.Steps(),
		stream.Epoch(opts.epoch).Batch([]int32{}, opts.rank, opts.step),
	}
}

func (a batchAnswer) print(out io.Writer) {
	fmt.Fprintf(out, "Rank %d reads %d samples in epoch %d, step %d of 0 to %d:\n", a.Rank,
		len(a.Samples), a.Epoch, a.Step, a.Steps-1)
	width := 0
	for _, k := range a.Samples {
		width = max(width, len(fmt.Sprint(k)))
	}
	perLine := max(1, min(10, 76/(width+2)))
	for i, k := range a.Samples {
		if i%perLine == 0 {
			fmt.Fprint(out, "\n")
		}
		fmt.Fprintf(out, "  %*d", width, k)
	}
	if len(a.Samples) > 0 {
		fmt.Fprint(out, "\n")
	}
}
