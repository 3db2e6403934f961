package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/job"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

func newStatsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Show the running daemon's jobs: stall by cause, bytes by place, caches",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var stats daemon.Stats
			if err := ask("stats", nil, &stats); err != nil {
				return err
			}
			if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(stats)
			}
			return printStats(&stats, cmd.OutOrStdout())
		},
	}
}

func newStopCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "End the running daemon",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			var none map[string]any
			err := ask("shutdown", map[string]any{"force": force}, &none)
			if errors.Is(err, io.EOF) {
				return nil // it ended before it could answer
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "even if jobs are running: their processes get an error")
	return cmd
}

// ask calls the running daemon.
func ask(method string, params, result any) error {
	c, err := daemon.Dial(daemon.Address(os.Getenv), version)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Call(method, params, result)
	var refused *protocol.ErrorMessage
	if errors.As(err, &refused) && refused.Kind == protocol.KindConfig {
		return inputError{err}
	}
	return err
}

func printStats(s *daemon.Stats, out io.Writer) error {
	fmt.Fprintf(out, "daemon %s, pid %d, %d connection(s), %d job(s)\n", s.Version, s.PID, s.Connections, len(s.Jobs))
	for _, j := range s.Jobs {
		if err := printJob(j, out); err != nil {
			return err
		}
	}
	return nil
}

func printJob(j *job.Report, out io.Writer) error {
	if j.Assembling {
		_, err := fmt.Fprintf(out, "\njob %s: %s, %d rank(s)\n%s\n", j.Job, j.Dataset, j.WorldSize, j.Sentence)
		return err
	}
	fmt.Fprintf(out, "\njob %s: %s, %d samples, %s, policy %s, %d rank(s), global batch %d\n",
		j.Job, j.Dataset, j.Samples, size.Format(j.Bytes), j.Policy, j.WorldSize, j.GlobalBatch)
	fmt.Fprintf(out, "%s\n", j.Sentence)
	if j.Waiting != nil && j.Waiting.Seconds > 1 {
		fmt.Fprintf(out, "waiting for sample %d (%s) since %.1f s\n", j.Waiting.Sample, j.Waiting.Path, j.Waiting.Seconds)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "epoch\tbatches\tsamples\tseconds\tstall s\tsource\t\t  stall by cause\n")
	for _, e := range j.Epochs {
		fmt.Fprintf(w, "%d\t%d\t%d\t%.2f\t%.3f\t%s\t\t  %s\n", e.Epoch, e.Batches, e.Samples, e.Seconds, e.StallSeconds, size.Format(e.Source.Bytes), causes(e.EpochReport.Stall))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range j.Classes {
		fmt.Fprintf(out, "class %s: %s of %s\n", c.Name, size.Format(c.Used), size.Format(c.Room))
	}
	for _, f := range j.Faults {
		fmt.Fprintf(out, "unreadable: sample %d (%s): %s, %s, %d time(s)\n", f.Sample, f.Path, f.Reason, f.Policy, f.Count)
	}
	return nil
}

// causes lists stalls, the longest first.
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
