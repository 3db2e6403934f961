package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/analysis/render"
)

// analysisHelp describes the flags of analysisOptions.
const analysisHelp = `
--what-if answers what changes would bring, all of them together: threads,
memory and cache (per node), nodes, source, network and compute, in MB/s or
times the present rate, such as compute=2x.

--price sorts what would help by what it costs more. A price file says what an
hour of each costs, in TOML, of as many of these as are known: memory_gb (1e9
bytes of memory), ssd_gb (of a cache directory), core, node, hour (the whole job
as it is); and the currency.

--out writes a page (index.html), the plots (PNG, SVG), result.json, which
--from reads, and environment.toml, which hdmlp simulate --environment reads.
`

// analysisOptions say what is concluded from what was measured of a job, and how it is shown.
type analysisOptions struct {
	price, whatIf, dir string
	json               bool
	width              int
	conclude           analysis.Options
}

func (o *analysisOptions) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.price, "price", "", "sort what would help by the prices in `FILE`")
	flags.StringVar(&o.whatIf, "what-if", "",
		"say what changes would bring, such as `memory=64GB,nodes=2`")
	flags.StringVar(&o.dir, "out", "",
		"write a page (index.html), plots, JSON and an environment to `DIR`")
}

// parse reads and checks what the flags say, before anything is measured.
func (o *analysisOptions) parse(cmd *cobra.Command) (err error) {
	o.json, _ = cmd.Flags().GetBool("json")
	o.width, _ = terminal(cmd.OutOrStdout())
	if o.price != "" {
		if o.conclude.Prices, err = analysis.ReadPrices(o.price); err != nil {
			return badInput("--price: %w", err)
		}
	}
	if cmd.Flags().Changed("what-if") {
		if o.conclude.Changes, err = remedy.Parse(o.whatIf); err != nil {
			return badInput("--what-if: %w", err)
		}
	}
	return o.checkDir()
}

// checkDir checks that files can be written to the directory for results, which it makes.
func (o *analysisOptions) checkDir() error {
	if o.dir == "" {
		return nil
	}
	if err := os.MkdirAll(o.dir, 0o777); err != nil {
		return badInput("--out: %w; give a directory that can be written to", err)
	}
	probe, err := os.CreateTemp(o.dir, ".hdmlp-")
	if err != nil {
		return badInput("--out: %w; give a directory that can be written to", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// readMeasured reads what was measured from the JSON of an earlier analysis.
func readMeasured(path string) (*analysis.Measured, error) {
	m, err := analysis.Read(path)
	if err != nil {
		return nil, badInput("--from: %w", err)
	}
	return m, nil
}

// run draws the conclusions and shows them.
func (o *analysisOptions) run(ctx context.Context, m *analysis.Measured, out io.Writer) error {
	r, err := analysis.Analyze(ctx, m, o.conclude)
	if err != nil {
		return err
	}
	if o.json {
		err = render.JSON(r, out)
	} else {
		err = render.Text(r, o.width, out)
	}
	if err != nil || o.dir == "" {
		return err
	}
	_, err = render.Write(r, o.dir)
	return err
}
