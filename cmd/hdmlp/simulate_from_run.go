package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/inputfile"
	"github.com/hdmlp/hdmlp/internal/scenario"
	"github.com/hdmlp/hdmlp/internal/simulate"
)

// comparison is what `hdmlp simulate --from-run` prints: measurements of a run, and the simulator's
// predictions.
type comparison struct {
	Report  string     `json:"report"`
	Dataset string     `json:"dataset"`
	Policy  string     `json:"policy"`
	Rows    []compared `json:"rows"`
}

// compared is one quantity, predicted and measured.
type compared struct {
	What      string  `json:"what"`
	Unit      string  `json:"unit"`
	Predicted float64 `json:"predicted"`
	Measured  float64 `json:"measured"`
	Error     float64 `json:"error"` // (predicted - measured) / measured
}

// maxRun is the size limit of a report, in bytes.
const maxRun = 256 << 20

// runFromRun simulates a finished job from its measurements, and compares the two. If the dataset
// still exists, the samples' sizes come from its index, which is in indexDir or, if that is empty,
// where the kind of source keeps it.
func runFromRun(ctx context.Context, path, indexDir string, asJSON bool, out io.Writer) error {
	data, err := inputfile.Read(path, maxRun)
	if err != nil {
		return badInput("--from-run: %v", err)
	}
	run, err := scenario.ReadRun(data)
	if err != nil {
		return badInput("--from-run %s: %v", path, err)
	}
	var sizes func(int) int64
	silent := func(string) {}
	for _, kind := range sources() { // the report does not name the kind
		source, err := kind.Open(ctx, run.Dataset,
			dataset.OpenOptions{IndexDir: indexDir, Warn: silent, Tell: silent})
		if err != nil {
			continue
		}
		defer source.Close() //nolint:errcheck // it was only read
		if run.Fits(source.Index().Len(), source.Index().Bytes()) {
			sizes = source.Index().Size
			break
		}
	}
	job, err := run.Job(sizes)
	if err != nil {
		return badInput("--from-run %s: %v", path, err)
	}
	result, err := simulate.RunModel(ctx, job, run.Policy)
	if err != nil {
		return err
	}
	if !result.Supported {
		return badInput("--from-run %s: policy %s: %s", path, run.Policy, result.Reason)
	}
	c := compareRun(path, run, result)
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(c)
	}
	if sizes == nil {
		fmt.Fprintf(out, "the dataset %s is missing or has changed; assuming the mean size for "+
			"each sample\n", run.Dataset)
	}
	return printComparison(c, out)
}

func compareRun(path string, run *scenario.Run, result *simulate.Result) *comparison {
	c := &comparison{Report: path, Dataset: run.Dataset, Policy: run.Policy}
	add := func(what, unit string, predicted, measured float64) {
		row := compared{What: what, Unit: unit, Predicted: predicted, Measured: measured}
		if measured != 0 {
			row.Error = (predicted - measured) / measured
		}
		c.Rows = append(c.Rows, row)
	}
	var predicted, measured float64
	for i, e := range run.Epochs {
		add(fmt.Sprintf("epoch %d", e.Epoch), "s", result.Epochs[i], e.Seconds)
		predicted, measured = predicted+result.Epochs[i], measured+e.Seconds
	}
	add("all epochs", "s", predicted, measured)
	consumed := result.Reads.Source.MB + result.Reads.Remote.MB
	for _, local := range result.Reads.Local {
		consumed += local.MB
	}
	add("read from the source", "MB", result.SourceTotal, run.SourceMB)
	add("served by the caches", "MB", consumed-result.SourceTotal, run.ConsumedMB-run.SourceMB)
	return c
}

func printComparison(c *comparison, out io.Writer) error {
	fmt.Fprintf(out, "%s: %s, policy %s\n\n", c.Report, c.Dataset, c.Policy)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tpredicted\tmeasured\terror\t")
	for _, r := range c.Rows {
		fmt.Fprintf(w, "%s\t%.3f %s\t%.3f %s\t%+.2f %%\t\n", r.What, r.Predicted, r.Unit,
			r.Measured, r.Unit, 100*r.Error)
	}
	return w.Flush()
}
