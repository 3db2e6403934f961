package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/stats"
	"github.com/hdmlp/hdmlp/internal/top"
)

// shortestInterval keeps top from being what the daemon is busy with.
const shortestInterval = 100 * time.Millisecond

func newTopCommand() *cobra.Command {
	var interval time.Duration
	var name string
	var once bool
	cmd := &cobra.Command{
		Use: "top",
		Short: "Watch running jobs over all their nodes: bytes per second by place, stalls, " +
			"caches, time left",
		Long: `Shows the jobs of this node's daemon as they are now, each over all its nodes: how
far they are and how long they take, MiB per second by the place they come from,
the share of time in which ranks are stalled and what for, and how full staging
buffers and storage classes are. It runs on any node of a job.

Keys: q, Esc and Ctrl-C leave; r hides or shows ranks, which are shown at first
if there is room for them; up and down scroll.
Where the output is no terminal, or one that can not move its cursor, screens
are printed one after the other, until the daemon ends. NO_COLOR=1 leaves colours
out.`,
		Example: `  hdmlp top
  hdmlp top --interval 5s --job train
  hdmlp top --once > now.txt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
				return badInput("top prints no JSON: `hdmlp stats --job NAME --json` does")
			}
			if interval < shortestInterval {
				return badInput("--interval %v: at least %v", interval, shortestInterval)
			}
			o := top.Options{
				Interval: interval, Out: cmd.OutOrStdout(),
				Ask: func(ctx context.Context) ([]*stats.ClusterReport, error) {
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
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "between screens, at least 100ms")
	cmd.Flags().StringVar(&name, "job", "",
		"the job of this name, or those with this in their name (default: all)")
	cmd.Flags().BoolVar(&once, "once", false,
		"print one screen, with what happened within the interval, and end")
	return cmd
}

// askCluster asks the daemon for jobs over all their nodes, and gives up when ctx ends.
func askCluster(ctx context.Context, name string) ([]*stats.ClusterReport, error) {
	endpoint, err := address()
	if err != nil {
		return nil, err
	}
	c, err := daemon.Find(ctx, endpoint, version)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return nil, fmt.Errorf("%w: %w", top.ErrGone, err)
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var answer daemon.ClusterStats
	if err := c.Call("cluster", map[string]any{"job": name}, &answer); err != nil {
		if errors.Is(err, io.EOF) { // it ends just now
			return nil, fmt.Errorf("%w: %w", top.ErrGone, err)
		}
		return nil, err
	}
	return answer.Jobs, nil
}
