package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
)

func newAnalyzeCommand() *cobra.Command {
	var report analysisOptions
	var from string
	run := scriptOptions{}
	cmd := &cobra.Command{
		Use:   "analyze [flags] -- COMMAND [ARGUMENTS]",
		Short: "Say what a training job waits for, and what would help",
		Long: `Say what a training job waits for, and what would help: how fast training, the
preparation of samples and the source are, which of them limits, how much cache
and how many cores are enough, and what an epoch would take with changes.

It runs the command, such as python train.py, which need not be changed, and
measures the loader that it iterates for training: hdmlp's or torch's own. It
measures the job as it is, training with batches that are ready, and preparation
alone; then it ends the script, and measures the source, memory and the cache
directory. That takes about --time, and the time of the script until it trains.
The script does what it does, so let it write its results elsewhere.

On several nodes, start it on each of them, once, with the launcher of the
node's ranks. The nodes are measured together, and node 0 prints the analysis.

--validate then runs the script again for two epochs or more, with the change
that is advised first where that can be made here (otherwise with hdmlp's loader
in the place of torch's), and compares a later epoch with the prediction.

The script's output is passed on, and its exit status is reported. The analysis
comes on stderr, after what the script printed. With --json, the analysis is
printed on stdout, and the script's output goes to stderr.

--from draws the conclusions from rates that were measured before: from the JSON
of an earlier analysis.
` + analysisHelp + `
EXIT STATUS
  0    success
  1    failure; what was measured before a script failed or ended is printed
  2    wrong input: no command, one that iterates no loader, ...
  130  interrupted; what was measured before is printed`,
		Example: `  hdmlp analyze -- python train.py --epochs 90
  hdmlp analyze --out plots -- torchrun --nproc-per-node 4 train.py
  hdmlp analyze --from plots/result.json --what-if memory=64GB,compute=2x`,
		Args: func(cmd *cobra.Command, args []string) error {
			return checkAnalyzed(cmd, args, from)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := report.parse(cmd); err != nil {
				return err
			}
			if from != "" {
				measured, err := readMeasured(from)
				if err != nil {
					return err
				}
				return report.run(cmd.Context(), measured, cmd.OutOrStdout())
			}
			errs := cmd.ErrOrStderr()
			run.command, run.stdin = args, cmd.InOrStdin()
			run.stdout, run.stderr = fileOf(cmd.OutOrStdout()), errs
			show := errs
			if report.json {
				run.stdout, show = errs, cmd.OutOrStdout()
			}
			run.tell = func(text string) {
				fmt.Fprintln(errs, "hdmlp analyze: "+human.Text(text))
			}
			return analyzeScript(cmd.Context(), run, &report, show)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "draw the conclusions of an earlier analysis again, "+
		"from its JSON in `FILE`")
	flags.DurationVar(&run.time, "time", 90*time.Second, "time for all measurements, 2s to 1h")
	flags.StringVar(&run.cache, "cache", "",
		"`DIR` on the disk of the cache (default: cache_dir of the configuration, if it is set)")
	flags.BoolVar(&run.validate, "validate", false,
		"run the script again with the first advice, and compare an epoch with the prediction")
	report.flags(cmd)
	return cmd
}

// checkAnalyzed checks that there is a command or a file, and not both.
func checkAnalyzed(cmd *cobra.Command, args []string, from string) error {
	switch {
	case from != "" && cmd.Flags().Changed("validate"):
		return badInput("--validate runs a script, and --from does not: give one of both")
	case from != "" && len(args) > 0:
		return badInput("--from takes no command, but got %q: give one of both", args[0])
	case from != "":
		return nil
	}
	return checkScript(cmd, args, "as in: hdmlp analyze -- python train.py",
		"; or give --from, a file with the JSON of an earlier analysis")
}

// checkScript checks that there is the command of a script, after --.
func checkScript(cmd *cobra.Command, args []string, example, otherwise string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0 || args[0] == "":
		return badInput("%s takes the command of a training script after --, %s%s", cmd.Name(), example,
			otherwise)
	case dash < 0:
		return badInput("put -- before %q, so that its flags are not taken for those of %s, %s",
			args[0], cmd.CommandPath(), example)
	case dash > 0:
		return badInput("%q comes before --: put the whole command after it, %s", args[0], example)
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		return badInput("command %q: %w", args[0], err)
	}
	return nil
}

// scriptOptions say which script is measured, and how long.
type scriptOptions struct {
	command        []string
	stdin          io.Reader
	stdout, stderr io.Writer // of the script
	time           time.Duration
	cache          string
	validate       bool
	given          map[string]any // keys that the script gives hdmlp's loader; set by measure
	tell           func(text string)
}

// analyzeScript measures a script, and shows what follows.
func analyzeScript(ctx context.Context, o scriptOptions, report *analysisOptions,
	show io.Writer,
) error {
	if o.time < 2*time.Second || o.time > time.Hour {
		return badInput("--time is %v; allowed: 2s to 1h", o.time)
	}
	if _, err := jobConfig(nil, o.cache, ""); err != nil { // before anything is started
		return err
	}
	// A reader of stderr that goes away ends the measurements, and not this process, which cleans up.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGPIPE)
	defer stop()
	measuring, end := context.WithCancelCause(ctx)
	defer end(nil)
	n := &others{o: &o, end: end}
	defer n.leave()
	measured, cut, err := o.measure(measuring, n)
	if err != nil {
		return err
	}
	if err := measured.Validate(); err != nil {
		return fmt.Errorf("what was measured is not valid: %w", err)
	}
	if o.validate && cut == nil {
		if err := o.compare(measuring, n, measured); err != nil {
			cut = cmp.Or(endOf(measuring), err)
			measured.Notes = append(measured.Notes, analysis.Note{
				About: "validation", Text: "cut short: " + whyCut(cut),
			})
		}
	}
	if cut == nil && n.found() != nil && n.job.Node > 0 {
		o.tell(n.inShort())
		return nil
	}
	// What was measured is shown, also if a signal or another node ended it.
	if err := report.run(context.WithoutCancel(ctx), measured, show); err != nil {
		return err
	}
	return cut
}
