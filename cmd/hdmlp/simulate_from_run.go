package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/study/replay"
)

// comparison is what `hdmlp simulate --from-run` prints: measurements of a run, and the simulator's
// predictions.
type comparison struct {
	Report  string     `json:"report"`
	Dataset string     `json:"dataset"`
	Policy  string     `json:"policy"`
	Rows    []compared `json:"rows"`
	// LeftOut lists the epochs that are not compared because some ranks were still in them; "": none.
	LeftOut string `json:"left_out,omitempty"`
	// Unsure lists what the run did not measure well of what these numbers depend on.
	Unsure []string `json:"unsure,omitempty"`
	// WhatIf predicts the run with the changes that were asked for; nil: none.
	WhatIf *changedRun `json:"what_if,omitempty"`
}

// compared is one quantity, predicted and measured.
type compared struct {
	What      string  `json:"what"`
	Unit      string  `json:"unit"`
	Predicted float64 `json:"predicted"`
	Measured  float64 `json:"measured"`
	Error     float64 `json:"error"` // (predicted - measured) / measured
}

// changedRun has quantities predicted for the run as it was and for the changed one.
type changedRun struct {
	Changed []string  `json:"changed"`
	Rows    []changed `json:"rows"`
}

type changed struct {
	What    string  `json:"what"`
	Unit    string  `json:"unit"`
	AsItRan float64 `json:"as_it_ran"`
	WhatIf  float64 `json:"what_if"`
}

// fromRunOptions are the options of `hdmlp simulate --from-run`.
type fromRunOptions struct {
	report   string
	asks     func(flag string) bool // reports whether a what-if question gives the flag
	memory   string
	nodes    int
	indexDir string
	json     bool
}

// variation returns what the options change, and words for it.
func (o *fromRunOptions) variation() (v replay.Variation, words []string, err error) {
	v = replay.AsItRan
	if o.asks("memory") {
		if v.Memory, err = human.Parse(o.memory); err != nil {
			return v, nil, badInput("--memory: %v; give %s", err, human.Allowed)
		}
		words = append(words, "memory of "+human.Format(v.Memory)+" for each node")
	}
	if o.asks("nodes") {
		if o.nodes < 1 {
			return v, nil, badInput("--nodes is %d; it must be 1 or more", o.nodes)
		}
		v.Nodes = o.nodes
		words = append(words, number(o.nodes, "node"))
	}
	return v, words, nil
}

const (
	// startup is the time in seconds at the beginning of a run which is not compared: streams start,
	// and their number is tuned.
	startup = 1
	// A first epoch that takes less than shortest, predicted or measured, is compared as it is: there
	// would be little left of it to compare, or less than nothing.
	shortest = 2 * startup
)

// maxRun is the size limit of a report, in bytes.
const maxRun = 256 << 20

// runFromRun simulates a finished job from its measurements, and compares the two. If the dataset
// still exists, the samples' sizes come from its index, which is in indexDir or, if that is empty,
// where the kind of source keeps it.
func runFromRun(ctx context.Context, o fromRunOptions, out io.Writer) error {
	v, words, err := o.variation()
	if err != nil {
		return err
	}
	data, err := files.Read(o.report, maxRun)
	if err != nil {
		return badInput("--from-run: %v", err)
	}
	run, err := replay.Read(data)
	if err != nil {
		return badInput("--from-run %s: %v", o.report, err)
	}
	sizes := sizesOf(ctx, run, o.indexDir)
	result, err := o.simulate(ctx, run, sizes, replay.AsItRan)
	if err != nil {
		return err
	}
	c := compareRun(o.report, run, result)
	var other *replay.Result // nil: no question was asked
	if words != nil {
		if other, err = o.simulate(ctx, run, sizes, v); err != nil {
			return err
		}
		c.WhatIf = compareWhatIf(words, result, other)
	}
	c.Unsure = run.Unsure(result, other)
	if o.json {
		return printJSON(out, c)
	}
	if sizes == nil {
		fmt.Fprintf(out, "the dataset %s is missing, has changed, or is a list that a process gave, "+
			"or a part of shards; assuming the mean size for each sample\n", human.Name(run.Dataset))
	}
	if err := printComparison(c, out); err != nil {
		return err
	}
	if run.DirectMB > 0.01*run.SourceMB {
		fmt.Fprintf(out, "\n%.3f MB were read from the source although a cache holds them, because "+
			"that was too slow\n", run.DirectMB)
	}
	return nil
}

// sizesOf returns the sizes of the run's samples by ID; nil if the dataset is missing or changed,
// or if it cannot be opened again by its directory alone.
func sizesOf(ctx context.Context, run *replay.Run, indexDir string) func(int) int64 {
	silent := func(string) {}
	view, err := ownView(ctx, run.Dataset)
	if err != nil {
		return nil
	}
	for _, kind := range sources() { // the report does not name the kind
		if kind.Manifest {
			continue // the list is gone with the process
		}
		source, err := kind.Open(ctx, run.Dataset, source.OpenOptions{
			Values: option.Values{source.IndexDirKey: indexDir}, View: view, Warn: silent, Tell: silent,
		})
		if err != nil {
			continue
		}
		index := source.Index()
		var sizes []int64
		if run.Fits(index.Len(), index.Bytes()) {
			sizes = make([]int64, index.Len())
			for id := range sizes {
				sizes[id] = index.Size(id)
			}
		}
		_ = source.Close() // it was only read
		if sizes != nil {
			return func(id int) int64 { return sizes[id] }
		}
	}
	return nil
}

// simulate simulates the run with a variation.
func (o *fromRunOptions) simulate(ctx context.Context, run *replay.Run,
	sizes func(int) int64, v replay.Variation,
) (*replay.Result, error) {
	result, err := run.Simulate(ctx, sizes, v)
	if err != nil && ctx.Err() == nil {
		return nil, badInput("--from-run %s: %v", o.report, err)
	}
	return result, err
}

func compareRun(path string, run *replay.Run, result *replay.Result) *comparison {
	c := &comparison{
		Report: path, Dataset: run.Dataset, Policy: run.Policy, LeftOut: run.LeftOut(),
	}
	add := func(what, unit string, predicted, measured float64) {
		row := compared{What: what, Unit: unit, Predicted: predicted, Measured: measured}
		if measured != 0 {
			row.Error = (predicted - measured) / measured
		}
		c.Rows = append(c.Rows, row)
	}
	if run.BeforeTraining > 0 || result.BeforeTraining > 0 {
		add("before training", "s", result.BeforeTraining, run.BeforeTraining)
	}
	var all [2]float64 // predicted, measured
	for i, e := range run.Epochs {
		what, without := fmt.Sprintf("epoch %d", e.Epoch), 0.0
		if i == 0 && min(e.Seconds, result.Epochs[i]) >= shortest {
			what, without = what+" after 1 s", startup
		}
		predicted, measured := result.Epochs[i]-without, e.Seconds-without
		add(what, "s", predicted, measured)
		all[0], all[1] = all[0]+predicted, all[1]+measured
	}
	add("all epochs", "s", all[0], all[1])
	add("read from the source", "MB", result.Source, run.SourceMB)
	for _, tier := range run.Tiers(result.Delivered) {
		add("delivered from "+tierName(tier), "MB", result.Delivered[tier], run.Delivered[tier])
	}
	return c
}

// tierName names a tier in a table.
func tierName(tier string) string {
	switch tier {
	case "source":
		return "the source"
	case "peer":
		return "other nodes"
	}
	return tier
}

func compareWhatIf(words []string, ran, other *replay.Result) *changedRun {
	w := &changedRun{Changed: words}
	all := changed{What: "all epochs", Unit: "s"}
	for e := range ran.Epochs {
		all.AsItRan, all.WhatIf = all.AsItRan+ran.Epochs[e], all.WhatIf+other.Epochs[e]
		w.Rows = append(w.Rows, changed{
			fmt.Sprintf("epoch %d", e), "s", ran.Epochs[e], other.Epochs[e],
		})
	}
	w.Rows = append(w.Rows, all,
		changed{"read from the source", "MB", ran.Source, other.Source})
	return w
}

func printComparison(c *comparison, out io.Writer) error {
	fmt.Fprintf(out, "%s: %s, policy %s\n\n", human.Name(c.Report), human.Name(c.Dataset),
		c.Policy)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tpredicted\tmeasured\terror\t")
	for _, r := range c.Rows {
		relative := "-"
		if r.Measured != 0 {
			relative = fmt.Sprintf("%+.2f %%", 100*r.Error)
		}
		fmt.Fprintf(w, "%s\t%.3f %s\t%.3f %s\t%s\t\n", r.What, r.Predicted, r.Unit,
			r.Measured, r.Unit, relative)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, what := range c.Unsure {
		fmt.Fprintf(out, "\n%s\n", what)
	}
	if c.LeftOut != "" {
		fmt.Fprintf(out, "\n%s\n", c.LeftOut)
	}
	if c.WhatIf == nil {
		return nil
	}
	fmt.Fprintf(out, "\nPredicted for %s:\n\n", strings.Join(c.WhatIf.Changed, ", "))
	w = tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tas it ran\twhat if\t")
	for _, r := range c.WhatIf.Rows {
		fmt.Fprintf(w, "%s\t%.3f %s\t%.3f %s\t\n", r.What, r.AsItRan, r.Unit, r.WhatIf, r.Unit)
	}
	return w.Flush()
}
