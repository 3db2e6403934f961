package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/report/prometheus"
)

func newStatsCommand() *cobra.Command {
	var name, whatIf, from, dir string
	var asMetrics bool
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show running jobs: stalls by cause, bytes by tier, caches",
		Long: `Show the jobs of this node's running daemon: what their ranks waited for, where
bytes were read from, what the caches hold. With --job, show a job over all its
nodes, as reported to this node's daemon; for a node that does not answer within
2 seconds, its last report is shown.

With --what-if, predict how epochs after the first one would go if the machine
or the job were different, beside how they go today, by what the running job has
measured. Keys, of which some can be combined:
  memory=SIZE        of the memory class, per node
  cache=SIZE[@RATE]  of the cache directory, per node, and its disk's MB/s
  nodes=N
  threads=N          that transform samples, per node
  source=RATE        of the source, for all nodes together
  network=RATE       that a node gets from the other nodes
  compute=RATE       of samples that the training of a node consumes
RATE is in MB/s, or has a unit, such as 10Gbit/s.

With --out, draw how a job went: the stall of each step, and bytes by tier,
processors and memory over time; of a running job (--job), or of what
loader.report() returned, saved as JSON (--from).

EXIT STATUS
  0  success
  1  failure, such as no running daemon
  2  wrong input, or no such job`,
		Example: `  hdmlp stats
  hdmlp stats --job train --json
  hdmlp stats --job train --prometheus
  hdmlp stats --job train --what-if memory=64GB,nodes=8
  hdmlp stats --job train --out plots
  hdmlp stats --from report.json --out plots`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, _ := cmd.Flags().GetBool("json")
			if asJSON && asMetrics {
				return badInput("--json and --prometheus are mutually exclusive; give one of them")
			}
			form := printForm{asJSON, asMetrics}
			out := cmd.OutOrStdout()
			if cmd.Flags().Changed("out") || cmd.Flags().Changed("from") {
				for _, other := range []string{"json", "prometheus", "what-if"} {
					if cmd.Flags().Changed(other) {
						return badInput("--out and --%s are mutually exclusive; give one of them", other)
					}
				}
				return runPlot(cmd.Context(), name, from, dir, cmd.InOrStdin(), out)
			}
			if cmd.Flags().Changed("what-if") {
				if asMetrics {
					return badInput("--what-if and --prometheus are mutually exclusive; " +
						"give one of them")
				}
				return runWhatIf(cmd.Context(), name, whatIf, asJSON, out)
			}
			if cmd.Flags().Changed("job") {
				var answer daemon.ClusterStats
				if err := ask(cmd.Context(), "cluster", map[string]any{"job": name},
					&answer); err != nil {
					return err
				}
				return form.print(out, answer, answer.Jobs, func() error {
					return printCluster(answer.Jobs, out)
				})
			}
			var answer daemon.Stats
			if err := ask(cmd.Context(), "stats", nil, &answer); err != nil {
				return err
			}
			return form.print(out, answer, summaries(answer.Jobs), func() error {
				return printStats(&answer, out)
			})
		},
	}
	cmd.Flags().StringVar(&name, "job", "",
		"show jobs over all their nodes: the job of this name, or those whose names contain it")
	cmd.Flags().StringVar(&whatIf, "what-if", "",
		"predict epochs with these changes, such as memory=64GB,nodes=8")
	cmd.Flags().StringVar(&dir, "out", "",
		"draw how the job went into `DIR`: index.html, and each plot as PNG and SVG")
	cmd.Flags().StringVar(&from, "from", "",
		"draw the report in this `FILE` instead of a running job's; -: standard input")
	cmd.Flags().BoolVar(&asMetrics, "prometheus", false, "print Prometheus's text format")
	return cmd
}

// printForm is the form in which statistics are printed: JSON, metrics, or text.
type printForm struct{ json, metrics bool }

func (f printForm) print(out io.Writer, value any, reports []*report.ClusterReport,
	text func() error,
) error {
	switch {
	case f.json:
		return printJSON(out, value)
	case f.metrics:
		return prometheus.Write(out, reports)
	}
	return text()
}

// summaries returns reports of this node alone in the form of reports over all nodes.
func summaries(reports []*report.Report) []*report.ClusterReport {
	out := make([]*report.ClusterReport, len(reports))
	for i, r := range reports {
		out[i] = r.Summary()
	}
	return out
}

func newStopCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the running daemon",
		Long: `Stop this user's running daemon, and wait until its process has ended. Unless
--force is given, a daemon with open jobs is not stopped.

EXIT STATUS
  0  success
  1  failure, such as no running daemon, or one that does not end within 30 s
  2  jobs are running or being closed, or wrong input`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			endpoint, err := address()
			if err != nil {
				return err
			}
			return daemon.Stop(cmd.Context(), endpoint, version, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false,
		"stop it even if jobs are running; their processes fail with an error")
	return cmd
}

// address returns where the user's daemon listens.
func address() (socket.Endpoint, error) {
	endpoint, err := socket.Address(os.Getenv)
	if err != nil {
		return endpoint, inputError{err}
	}
	return endpoint, nil
}

// ask calls a method of the running daemon.
func ask(ctx context.Context, method string, params, result any) error {
	endpoint, err := address()
	if err != nil {
		return err
	}
	c, err := daemon.Find(ctx, endpoint, version)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(method, params, result)
}

func printStats(s *daemon.Stats, out io.Writer) error {
	fmt.Fprintf(out, "daemon %s, pid %d, %s, %s\n", s.Version, s.PID,
		count(s.Connections, "connection"), count(len(s.Jobs), "job"))
	for _, j := range s.Jobs {
		if err := printJob(j, out); err != nil {
			return err
		}
	}
	return nil
}

func printJob(j *report.Report, out io.Writer) error {
	if j.Assembling {
		_, err := fmt.Fprintf(out, "\njob %s: %s, %s\n%s\n", human.Name(j.Job),
			human.Name(j.Dataset), count(j.WorldSize, "rank"), j.Sentence)
		return err
	}
	fmt.Fprintf(out, "\njob %s: %s, %s, %s, policy %s, %s, global batch %d\n",
		human.Name(j.Job), human.Name(j.Dataset), count(j.Samples, "sample"),
		human.Format(j.Bytes), j.Policy, count(j.WorldSize, "rank"), j.GlobalBatch)
	fmt.Fprintf(out, "%s\n", j.Sentence)
	if j.Waiting != nil && j.Waiting.Seconds > 1 {
		fmt.Fprintf(out, "waiting %.1f s for sample %d (%s)\n", j.Waiting.Seconds, j.Waiting.Sample,
			human.Name(j.Waiting.Path))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "epoch\tbatches\tsamples\tseconds\tstall s\tsource\t\t  stall by cause\n")
	for _, e := range j.Epochs {
		fmt.Fprintf(w, "%d\t%d\t%d\t%.2f\t%.3f\t%s\t\t  %s\n", e.Epoch, e.Batches, e.Samples,
			e.Seconds, e.StallSeconds, human.Format(e.Source.Bytes), causes(e.Stall))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range j.Classes {
		fmt.Fprintf(out, "class %s: %s of %s%s\n", human.Name(c.Name), human.Format(c.Used),
			human.Format(c.Capacity), returned(c))
	}
	printRemedies(j.Limit, j.Remedies, out)
	if err := printEnvironment(j.Known, j.Bytes, j.Samples, out); err != nil {
		return err
	}
	for _, f := range j.Faults {
		fmt.Fprintf(out, "unreadable: sample %d (%s): %s; on_error %s, %s\n", f.Sample,
			human.Name(f.Path), human.Text(f.Reason), f.Policy, times(f.Count))
	}
	return nil
}

// printEnvironment prints what is known of a job's machine; nothing if known is nil.
func printEnvironment(known *model.Node, bytes int64, samples int, out io.Writer) error {
	if known == nil {
		return nil
	}
	return printKnown(known, float64(bytes)/float64(max(samples, 1))/1e6, out)
}

// causes lists stalls by cause, the longest first.
func causes(stall map[string]float64) string {
	names := make([]string, 0, len(stall))
	for name := range stall {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		switch {
		case stall[a] > stall[b]:
			return -1
		case stall[a] < stall[b]:
			return 1
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %.3f", name, stall[name])
	}
	return strings.Join(names, ", ")
}

func printCluster(jobs []*report.ClusterReport, out io.Writer) error {
	for i, j := range jobs {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "job %s: %s, %s, %s, policy %s, %s, %s, global batch %d\n",
			human.Name(j.Job), human.Name(j.Dataset), count(j.Samples, "sample"),
			human.Format(j.Bytes), j.Policy, count(len(j.Nodes), "node"),
			count(j.WorldSize, "rank"), j.GlobalBatch)
		fmt.Fprintf(out, "%s\n", j.Sentence)
		if err := printNodes(j, out); err != nil {
			return err
		}
	}
	return nil
}

// printNodes prints a table with a row per node, and after it what does not fit into the table.
func printNodes(j *report.ClusterReport, out io.Writer) error {
	tiers := readTiers(j)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "node\tbatches\tsamples\tfrom source\t%sstaging\tstall s\t\t  stall by cause\n",
		strings.Join(append(tiers, ""), "\t"))
	row := func(name string, t *report.Tally, staging report.Staging) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t", name, t.Batches, t.Samples, human.Format(t.Source.Bytes))
		for _, tier := range tiers {
			fmt.Fprintf(w, "%s\t", human.Format(t.Reads[tier].Bytes))
		}
		fmt.Fprintf(w, "%.0f %%\t%.3f\t\t  %s\n",
			share(staging.Used+staging.Extra, staging.Size+staging.Extra),
			t.StallSeconds(), causes(t.Stall))
	}
	for i := range j.Nodes {
		n := &j.Nodes[i]
		name := strconv.Itoa(n.Node)
		switch {
		case n.Age < 0 || n.Assembling:
			continue // it has no numbers; the job's sentence mentions it
		case !n.Responding:
			name = fmt.Sprintf("%d, %.0f s ago", n.Node, n.Age)
		}
		row(name, &n.Tally, n.Staging)
	}
	row("all", &j.Total, j.Staging)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range j.Classes {
		fmt.Fprintf(out, "class %s: %s of %s", human.Name(c.Name), human.Format(c.Used),
			human.Format(c.Capacity))
		between := ", by node: "
		for _, n := range j.Nodes {
			for _, own := range n.Classes {
				if len(j.Nodes) > 1 && own.Name == c.Name {
					fmt.Fprintf(out, "%s%d: %.0f %%", between, n.Node, share(own.Used, own.Capacity))
					between = ", "
				}
			}
		}
		fmt.Fprintln(out, returned(c))
	}
	printRemedies(j.Limit, j.Remedies, out)
	if err := printEnvironment(j.Known, j.Bytes, j.Samples, out); err != nil {
		return err
	}
	for _, n := range j.Nodes {
		if n.Waiting != nil && n.Waiting.Seconds > 1 {
			fmt.Fprintf(out, "node %d: waiting %.1f s for sample %d (%s)\n", n.Node,
				n.Waiting.Seconds, n.Waiting.Sample, human.Name(n.Waiting.Path))
		}
		for _, p := range n.Bypassed {
			fmt.Fprintf(out, "node %d bypasses node %d, %s so far: %s\n", n.Node, p.Node,
				count(int(p.Failed), "sample"), cmp.Or(p.Reason, "the source is faster"))
		}
		for _, f := range n.Faults {
			fmt.Fprintf(out, "unreadable on node %d: sample %d (%s): %s; on_error %s, %s\n", n.Node,
				f.Sample, human.Name(f.Path), human.Text(f.Reason), f.Policy,
				times(f.Count))
		}
		if more := n.Unreadable - len(n.Faults); more > 0 {
			fmt.Fprintf(out, "unreadable on node %d: %d more\n", n.Node, more)
		}
	}
	return nil
}

// returned describes what a class gave back, after a comma; it is empty if it gave back nothing.
func returned(c report.Class) string {
	if said := c.Returned.String(); said != "" {
		return ", " + human.Text(said)
	}
	return ""
}

// readTiers lists the tiers that samples were read from, other than the source: other nodes first,
// then the classes.
func readTiers(j *report.ClusterReport) []string {
	out := []string{}
	if len(j.Nodes) > 1 {
		out = append(out, "peer")
	}
	for _, c := range j.Classes {
		out = append(out, c.Name)
	}
	return out
}

// share returns a part in per cent.
func share(part, whole int64) float64 { return 100 * float64(part) / float64(max(whole, 1)) }
