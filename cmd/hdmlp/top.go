package main

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/report/top"
)

// shortestInterval keeps top from being a load on the daemon.
const shortestInterval = 100 * time.Millisecond

func newTopCommand() *cobra.Command {
	var interval time.Duration
	var name string
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch running jobs: bytes per second by tier, stalls, time left",
		Long: `Show the current state of the jobs of this node's daemon, each over all its
nodes: progress and remaining time, MiB per second by the tier they come from,
the share of time that ranks are stalled and the causes, and how full staging
buffers and storage classes are. The command can run on any node of a job.

Keys: q, Esc and Ctrl-C quit; r hides or shows ranks, which are shown at first
if they fit on the screen; up and down scroll.

If the output is not a terminal, or is one that cannot move its cursor, screens
are printed one after the other until the daemon ends. NO_COLOR=1 turns colours
off.

EXIT STATUS
  0    success
  1    failure, such as no running daemon
  2    wrong input
  130  interrupted`,
		Example: `  hdmlp top
  hdmlp top --interval 5s --job train
  hdmlp top --once > now.txt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
				return badInput("top does not print JSON; use `hdmlp stats --job NAME --json`")
			}
			if interval < shortestInterval {
				return badInput("--interval is %v; it must be at least %v", interval,
					shortestInterval)
			}
			o := top.Options{
				Interval: interval, Out: fileOf(cmd.OutOrStdout()),
				Ask: func(ctx context.Context) ([]*report.ClusterReport, error) {
					return askCluster(ctx, name)
				},
			}
			_, o.Colour = terminal(o.Out)
			if once || !isTerminal(o.Out) || !isTerminal(os.Stdin) || os.Getenv("TERM") == "dumb" {
				return top.Print(cmd.Context(), o, once)
			}
			return top.Live(cmd.Context(), os.Stdin, o)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Second,
		"time between screens, at least 100ms")
	cmd.Flags().StringVar(&name, "job", "",
		"show the job of this name, or those whose names contain it (default: all)")
	cmd.Flags().BoolVar(&once, "once", false,
		"print one screen, which covers one interval, and exit")
	return cmd
}

// askCluster gets the reports of jobs over all their nodes from the daemon, unless ctx ends before.
func askCluster(ctx context.Context, name string) ([]*report.ClusterReport, error) {
	endpoint, err := address()
	if err != nil {
		return nil, err
	}
	c, err := daemon.Find(ctx, endpoint, version)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return nil, goneError{err}
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var answer daemon.ClusterStats
	if err := c.Call("cluster", map[string]any{"job": name}, &answer); err != nil {
		if errors.Is(err, io.EOF) { // the daemon is shutting down
			return nil, goneError{errors.New("the daemon ended before it answered")}
		}
		return nil, err
	}
	return answer.Jobs, nil
}

// goneError is top.ErrGone with the reason, which is the whole message.
type goneError struct{ error }

func (e goneError) Is(target error) bool { return target == top.ErrGone }
