package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/study/scenario"
	"github.com/hdmlp/hdmlp/internal/study/simulate/render"
)

// simulateOptions are the options of `hdmlp simulate`.
type simulateOptions struct {
	file          string
	environment   string // a file that replaces the scenario's [environment]; "": none
	policies      []string
	policyFiles   []string
	profile, seed string // "": the file's
	set, sweep    []string
	scaling       string
	json, csv     bool
	batches       bool   // in the JSON
	dir           string // for the plots; "": none
	width         int    // of the table, in columns
	colour        bool
	progress      io.Writer // nil: no progress is shown
	notes         io.Writer // gets what is to be known of the input
	memory        func() (int64, error)
}

func newSimulateCommand() *cobra.Command {
	var opts simulateOptions
	var run fromRunOptions
	cmd := &cobra.Command{
		Use:   "simulate SCENARIO.toml | --from-run REPORT.json",
		Short: "Predict how long each way of loading data would take on a machine",
		Long: `Predict, by simulation in virtual time, how each way of loading data would
perform on a machine: runtimes, stalls, and where each sample would be read
from. A scenario file describes the machine, the dataset and the training job;
scenarios/ has those of the papers, and docs/SIMULATOR.md explains how to
describe your own.

--profile model, the default, uses HDMLP's performance model; thesis computes
what the thesis's simulator computes, for comparison with its tables.

--set overrides a value of the file. Keys are dotted, and may omit their table:
epochs is job.epochs. A storage class is named by its number or name:
storage_class.ram.capacity. Values are written as in the file: numbers of MB and
MB/s, or with units, such as 10GB/s.

--policy-file simulates a policy of your own beside the others, without writing
Go: a CSV table with the columns sample, node, class and order says which node
holds which sample in which storage class, and in which order classes are
filled. docs/SIMULATOR.md describes it, and the options of policies.

--sweep runs the scenario for each of several values; if it is given twice, for
each combination of two keys' values. --scaling does the same for numbers of
nodes, and shows speed-up and efficiency, and what the analytical model of Yang
and Cong predicts: from how many nodes on the source is too slow.

--from-run takes the machine and the job from the report of a finished job that
loader.report() returned, or loader.report(cluster=True) for a job on several
nodes. It first compares the prediction with the run. --memory and --nodes then
predict the run with more or less memory in each node's cache, or on another
number of nodes, with as many ranks on each and as large batches for each rank.

EXIT STATUS
  0    success
  1    failure
  2    wrong input; nothing was simulated
  130  interrupted; finished simulations were printed`,
		Example: `  hdmlp simulate scenarios/thesis-3.toml
  hdmlp simulate scenarios/thesis-4.toml --profile thesis \
      --policy frequency,perfect --json
  hdmlp simulate scenarios/imagenet-1k.toml \
      --set storage_class.ram.capacity=100GB --out plots
  hdmlp simulate scenarios/thesis-3.toml --scaling 1,2,4,8,16 --policy all
  hdmlp simulate scenarios/thesis-3.toml --policy cooperative \
      --policy-file mine.csv
  hdmlp simulate scenarios/thesis-environment.toml \
      --sweep storage_class.ram.capacity=0,10240`,
		Args: func(_ *cobra.Command, args []string) error {
			if run.report != "" {
				if len(args) > 0 {
					return badInput("--from-run replaces the scenario file; omit %q", args[0])
				}
				if opts.environment != "" {
					return badInput("--environment and --from-run: give one of them; a run is " +
						"simulated on the machine that it measured")
				}
				return nil
			}
			if len(args) != 1 {
				return badInput("simulate takes one scenario file, but got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.json, _ = cmd.Flags().GetBool("json")
			if run.report != "" {
				if err := refuseWithRun(cmd); err != nil {
					return err
				}
				cfg, err := configInForce()
				if err != nil {
					return err
				}
				run.indexDir, run.json = cfg.IndexDir, opts.json
				run.asks = cmd.Flags().Changed
				return runFromRun(cmd.Context(), run, cmd.OutOrStdout())
			}
			if cmd.Flags().Changed("memory") || cmd.Flags().Changed("nodes") {
				return badInput("--memory and --nodes need --from-run; vary a scenario with --set")
			}
			opts.file = args[0]
			opts.width, opts.colour = terminal(cmd.OutOrStdout())
			opts.memory, opts.notes = availableMemory, cmd.ErrOrStderr()
			if isTerminal(cmd.ErrOrStderr()) {
				opts.progress = cmd.ErrOrStderr()
			}
			return runSimulate(cmd.Context(), opts, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.environment, "environment", "",
		"replace what a `FILE` has, as hdmlp probe and jobs write it, of the scenario's "+
			"[environment]")
	flags.StringSliceVar(&opts.policies, "policy", nil,
		"policies to compare, or all; options follow a name, as in frequency:in_order=false "+
			"(default: the file's)")
	flags.StringArrayVar(&opts.policyFiles, "policy-file", nil,
		"simulate the table in a `FILE` (CSV) as a policy as well; may be repeated")
	flags.StringVar(&opts.profile, "profile", "", "model or thesis (default: the file's)")
	flags.StringVar(&opts.seed, "seed", "", "seed of order and sizes (default: the file's)")
	flags.StringArrayVar(&opts.set, "set", nil,
		"override a value of the file, as `KEY=VALUE`; may be repeated")
	flags.StringArrayVar(&opts.sweep, "sweep", nil,
		"simulate each value of a key, as `KEY=V1,V2,...`; may be given twice")
	flags.StringVar(&opts.scaling, "scaling", "",
		"simulate each number of nodes, such as 1,2,4,8")
	flags.BoolVar(&opts.csv, "csv", false, "print CSV")
	flags.BoolVar(&opts.batches, "batches", false, "with --json: add what every batch took and read")
	flags.StringVar(&run.report, "from-run", "",
		"simulate a finished job from the JSON of its loader.report(), and compare the two")
	flags.StringVar(&run.memory, "memory", "",
		"with --from-run: predict it with this much memory for each node's cache")
	flags.IntVar(&run.nodes, "nodes", 0, "with --from-run: predict it on this number of nodes")
	flags.StringVar(&opts.dir, "out", "",
		"write plots (PNG, SVG), a page (index.html), JSON and CSV to `DIR`")
	return cmd
}

// refuseWithRun refuses the flags that vary a scenario or choose an output which --from-run lacks.
func refuseWithRun(cmd *cobra.Command) error {
	var given []string
	for _, name := range []string{
		"policy", "policy-file", "profile", "seed", "set", "sweep", "scaling", "csv", "out", "batches",
	} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if given == nil {
		return nil
	}
	return badInput("--from-run simulates a finished job, and cannot be combined with %s, only "+
		"with --json, --memory and --nodes; to vary more, describe the machine and the job in a "+
		"scenario file (docs/SIMULATOR.md)", strings.Join(given, ", "))
}

// interrupted is the error of a simulation that the user interrupted.
type interrupted struct{}

func (interrupted) Error() string { return "interrupted" }
func (interrupted) Unwrap() error { return context.Canceled }

// runSimulate simulates what opts select, and prints the results.
func runSimulate(ctx context.Context, opts simulateOptions, out io.Writer) error {
	if opts.json && opts.csv {
		return badInput("--json and --csv are mutually exclusive; give one of them")
	}
	if opts.batches && !opts.json {
		return badInput("--batches adds to JSON; give --json as well")
	}
	plan, r, err := prepareSimulation(ctx, opts)
	if err != nil {
		return err
	}
	stopped, err := plan.run(ctx, opts.progress, r)
	if err != nil {
		return err
	}
	r.Interrupted = stopped
	switch {
	case opts.json:
		err = r.JSON(out)
	case opts.csv:
		err = r.CSV(out)
	default:
		err = r.Table(out, render.TableOptions{Width: opts.width, Colour: opts.colour})
	}
	if err != nil {
		return err
	}
	if opts.dir != "" {
		if _, err := render.Write(r, opts.dir); err != nil {
			return err
		}
	}
	if stopped {
		return interrupted{}
	}
	return nil
}

// prepareSimulation reads, validates and draws everything. It can be interrupted, because drawing
// the sizes of billions of samples takes a while.
func prepareSimulation(ctx context.Context,
	opts simulateOptions,
) (*simulationPlan, *render.Report, error) {
	type prepared struct {
		plan   *simulationPlan
		report *render.Report
		err    error
	}
	done := make(chan prepared, 1)
	go func() {
		plan, err := planSimulation(opts)
		if err != nil {
			done <- prepared{err: inputError{err}}
			return
		}
		done <- prepared{plan, plan.report(), nil}
	}()
	select {
	case p := <-done:
		return p.plan, p.report, p.err
	case <-ctx.Done():
		return nil, nil, interrupted{}
	}
}

// simulationPoint is one scenario and the values of the sweep that led to it.
type simulationPoint struct {
	values   []string
	scenario *scenario.Scenario
}

// simulationPlan is the validated description of everything to simulate.
type simulationPlan struct {
	opts    simulateOptions
	file    *scenario.File
	sweeps  []scenario.Sweep
	points  []simulationPoint
	workers int
	largest int64 // memory of the largest simulation, in bytes
}

// maxSimulations is the limit on the simulations of a sweep.
const maxSimulations = 20_000

// planSimulation reads the scenario with all its variations. Its error is caused by the user's
// input, and lists all mistakes.
func planSimulation(opts simulateOptions) (*simulationPlan, error) {
	file, err := scenario.Open(opts.file)
	if err != nil {
		return nil, err
	}
	if opts.environment != "" {
		notes, err := file.UseEnvironment(opts.environment)
		if err != nil {
			return nil, err
		}
		for _, note := range notes {
			fmt.Fprintln(opts.notes, "note: "+note)
		}
	}
	p := &simulationPlan{opts: opts, file: file}
	set, err := opts.overrides()
	if err != nil {
		return nil, err
	}
	if p.sweeps, err = opts.sweeps(); err != nil {
		return nil, err
	}
	var faults []string
	note := func(wrong scenario.Faults) {
		for _, f := range wrong {
			if len(faults) < 50 && !slices.Contains(faults, f.Error()) {
				faults = append(faults, f.Error())
			}
		}
	}
	for _, values := range combinations(p.sweeps) {
		all := slices.Clone(set)
		for k, v := range values {
			all = append(all, scenario.Override{Key: p.sweeps[k].Key, Value: v})
		}
		s, err := file.Scenario(all...)
		var wrong scenario.Faults
		switch {
		case errors.As(err, &wrong):
			note(wrong)
			continue
		case err != nil:
			return nil, err
		case len(p.sweeps) == 0:
			note(s.Unmet()) // in a sweep, the point where a policy cannot run reports it
		}
		p.points = append(p.points, simulationPoint{values, s})
		if len(p.points)*len(s.Policies) > maxSimulations {
			return nil, fmt.Errorf("--sweep needs more than %d simulations; give fewer values",
				maxSimulations)
		}
	}
	if faults == nil {
		if err := p.fitMemory(); err != nil {
			return nil, err
		}
		for _, point := range p.points {
			err := point.scenario.Fits()
			if err == nil && len(p.sweeps) == 0 { // in a sweep, the point reports it
				err = point.scenario.Placeable()
			}
			var wrong scenario.Faults
			if errors.As(err, &wrong) {
				note(wrong)
			} else if err != nil {
				return nil, err
			}
		}
	}
	if faults != nil {
		return nil, fmt.Errorf("%s:\n%s", opts.file, strings.Join(faults, "\n"))
	}
	return p, nil
}
