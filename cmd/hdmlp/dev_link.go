package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
)

// devLinkOptions are the options of `hdmlp dev link`. Empty strings change nothing.
type devLinkOptions struct {
	run, node   string
	down, up    bool
	rate, delay string
	json        bool
}

func newDevLinkCommand() *cobra.Command {
	var opts devLinkOptions
	cmd := &cobra.Command{
		Use:   "link NODE [flags]",
		Short: "Cut, restore or limit a node's link while `hdmlp dev cluster` runs",
		Long: `Change a node's link while hdmlp dev cluster runs, and show its state.
Properties that are not given stay as they are. A link that is down drops all
packets without notice, as if its cable were cut.

EXIT STATUS
  0  success
  1  failure
  2  wrong input: no such run or node, nodes without links, or a kernel that
     lacks what is needed`,
		Example: `  hdmlp dev link 1 --down
  hdmlp dev link 1 --up --rate 10mbit --delay 1ms
  hdmlp dev link 1 --rate unlimited`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badInput("link takes one argument, the number of a node, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.node = args[0]
			opts.json, _ = cmd.Flags().GetBool("json")
			return runDevLink(opts, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.down, "down", false, "cut the link")
	flags.BoolVar(&opts.up, "up", false, "restore the link")
	flags.StringVar(&opts.rate, "rate", "", "rate each way: 10mbit, 1.5gbit, unlimited")
	flags.StringVar(&opts.delay, "delay", "", "delay each way: 1ms, 250us, 0")
	flags.StringVar(&opts.run, "run", "", "name of the run (default: the only one)")
	return cmd
}

// change returns the state s with the options applied.
func (o devLinkOptions) change(s devcluster.LinkState) (devcluster.LinkState, error) {
	var err error
	if o.down && o.up {
		return s, badInput("--down and --up are mutually exclusive")
	}
	s.Down = o.down || s.Down && !o.up
	if o.rate != "" {
		if s.Rate, err = devcluster.ParseRate(o.rate); err != nil {
			return s, badInput("--rate: %w", err)
		}
	}
	if o.delay != "" {
		if s.Delay, err = devcluster.ParseDelay(o.delay); err != nil {
			return s, badInput("--delay: %w", err)
		}
	}
	return s, nil
}

func runDevLink(o devLinkOptions, out io.Writer) error {
	if _, err := o.change(devcluster.LinkState{}); err != nil {
		return err // wrong flags are reported before a missing run
	}
	r, err := devcluster.Find(o.run)
	if err != nil {
		return devError(err)
	}
	node, err := nodeOf(o.node, r)
	if err != nil {
		return err
	}
	link := r.Link(node)
	before, err := link.State()
	if err != nil {
		return devError(err)
	}
	after, err := o.change(before)
	if err != nil {
		return err
	}
	if after != before {
		if err := link.Set(after); err != nil {
			return devError(err)
		}
	}
	if o.json {
		return printJSONLine(out, map[string]any{
			"run": r.Name(), "node": node, "down": after.Down, "bits_per_second": int64(after.Rate),
			"delay_seconds": after.Delay.Seconds(),
		})
	}
	upOrDown := "up"
	if after.Down {
		upOrDown = "down"
	}
	_, err = fmt.Fprintf(out, "run %s: link of node %d is %s, rate %s, delay %v\n", r.Name(), node,
		upOrDown, after.Rate, after.Delay)
	return err
}
