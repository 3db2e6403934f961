package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/devcluster"
)

// devClusterOptions are what `hdmlp dev cluster` is asked for.
type devClusterOptions struct {
	cluster           devcluster.Options
	rate, delay       string
	rateOf, delayOf   []string
	ranksPerNodeGiven bool
	args              []string
	json              bool
}

func newDevClusterCommand() *cobra.Command {
	var opts devClusterOptions
	cmd := &cobra.Command{
		Use:   "cluster -n NODES [flags] -- COMMAND [ARGUMENTS]",
		Short: "Run a command on several nodes of this machine",
		Long: `Run a command on several nodes of this machine, once per rank, with the
variables that torchrun sets. Every node has an HDMLP daemon of its own.

As root a node is a network namespace with an address of its own; its link to
the others can be limited (--rate, --delay), and changed or cut while the
command runs (hdmlp dev link). The machine's own network is not touched.
Otherwise nodes are loopback addresses, 127.0.0.1 and up, without limits.

Each line of output is marked [node.rank]. When a rank fails, the others get
SIGTERM, and SIGKILL after 5 s; Ctrl-C ends everything within a second. Nothing
is left behind: what ranks have started ends with them.

In values of --env, {node}, {rank} and {address} stand for the process's own, and
in --mount {node}. Give each node a cache directory of its own, if it has one.

EXIT STATUS
  0    every rank ended with 0
  2    wrong input, or this machine can not do what was asked for; nothing was run
  130  interrupted
  any other, and 2 from a rank: that of the rank that failed first, 128 and the
       signal's number if a signal ended it`,
		Example: `  hdmlp dev cluster -n 4 -- python train.py --epochs 3
  hdmlp dev cluster -n 4 --rate 1gbit --delay 1ms --rate-of 2=10mbit -- python train.py
  hdmlp dev cluster -n 2 --env 'HDMLP_CACHE_DIR=/tmp/cache-{node}' -- python train.py
  hdmlp dev cluster -n 2 --run cut -- python train.py &
  hdmlp dev link 1 --down --run cut; sleep 5; hdmlp dev link 1 --up --run cut`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.json, _ = cmd.Flags().GetBool("json")
			opts.ranksPerNodeGiven = cmd.Flags().Changed("ranks-per-node")
			opts.args = args
			return runDevCluster(cmd.Context(), opts, os.Stdout, os.Stderr)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is the command's
	flags.IntVarP(&opts.cluster.Nodes, "nodes", "n", 0, "how many nodes; must be given")
	flags.IntVar(&opts.cluster.RanksPerNode, "ranks-per-node", 1, "processes on each node")
	flags.StringVar(&opts.rate, "rate", "unlimited",
		"of every node's link, each way: 10mbit, 1.5gbit, unlimited")
	flags.StringVar(&opts.delay, "delay", "0",
		"of every node's link, each way; between two nodes lie two links: 1ms, 250us")
	flags.StringArrayVar(&opts.rateOf, "rate-of", nil, "NODE=RATE: of one node's link")
	flags.StringArrayVar(&opts.delayOf, "delay-of", nil, "NODE=DELAY: of one node's link")
	flags.StringArrayVar(&opts.cluster.Env, "env", nil,
		"KEY=VALUE: an environment variable for every process")
	flags.StringArrayVar(&opts.cluster.Mounts, "mount", nil,
		"SOURCE:TARGET: a bind mount that only the node sees")
	flags.StringVar(&opts.cluster.Name, "run", "", "the run's name (default: a new one)")
	flags.IntVar(&opts.cluster.MasterPort, "master-port", 0, "MASTER_PORT (default: a free one)")
	flags.BoolVar(&opts.cluster.Loopback, "loopback", false, "loopback addresses, as root too")
	return cmd
}

// validate puts the flags together: one error for each fault.
func (o *devClusterOptions) validate() error {
	var faults []error
	var err error
	if o.cluster.Link.Rate, err = devcluster.ParseRate(o.rate); err != nil {
		faults = append(faults, fmt.Errorf("--rate: %w", err))
	}
	if o.cluster.Link.Delay, err = devcluster.ParseDelay(o.delay); err != nil {
		faults = append(faults, fmt.Errorf("--delay: %w", err))
		o.cluster.Link.Delay = 0
	}
	o.cluster.LinkOf = map[int]devcluster.LinkState{}
	change := func(node int, f func(*devcluster.LinkState)) {
		s, ok := o.cluster.LinkOf[node]
		if !ok {
			s = o.cluster.Link
		}
		f(&s)
		o.cluster.LinkOf[node] = s
	}
	faults = append(faults,
		perNode("rate-of", o.rateOf, devcluster.ParseRate, func(node int, r devcluster.Rate) {
			change(node, func(s *devcluster.LinkState) { s.Rate = r })
		}),
		perNode("delay-of", o.delayOf, devcluster.ParseDelay, func(node int, d time.Duration) {
			change(node, func(s *devcluster.LinkState) { s.Delay = d })
		}))
	if o.ranksPerNodeGiven && o.cluster.RanksPerNode == 0 {
		o.cluster.RanksPerNode = -1
		faults = append(faults, errors.New("--ranks-per-node is 0; it must be 1 or more"))
	} else {
		faults = append(faults, o.cluster.Check())
	}
	if len(o.args) == 0 {
		faults = append(faults,
			errors.New("no command is given: hdmlp dev cluster -n 4 -- python train.py"))
	} else if _, err := exec.LookPath(o.args[0]); err != nil {
		faults = append(faults, fmt.Errorf("command %q: %w", o.args[0], err))
	}
	return errors.Join(faults...)
}

// runDevCluster runs the command. With JSON, standard output is for the summary alone.
func runDevCluster(ctx context.Context, o devClusterOptions, stdout, stderr *os.File) (err error) {
	if err := o.validate(); err != nil {
		return inputError{err}
	}
	c, err := devcluster.New(o.cluster)
	if err != nil {
		return devError(err)
	}
	var reaper *exec.Cmd
	defer func() {
		err = errors.Join(err, c.Close())
		if reaper != nil {
			_ = reaper.Wait() // Close has let it go
		}
	}()
	if reaper, err = startReaper(c.StateFile()); err != nil {
		return err
	}
	if !o.json {
		fmt.Fprintf(stderr, "hdmlp: run %s: %d node(s), %s to %s\n", c.Name(), c.Len(),
			c.Node(0).Address(), c.Node(c.Len()-1).Address())
		if why := c.OnLoopback(); why != nil {
			fmt.Fprintf(stderr, "hdmlp: nodes are loopback addresses: %v\n", why)
		}
	}
	run := devcluster.RunOptions{
		Args:   o.args,
		Stdout: stdout,
		Stderr: stderr,
		Colour: isTerminal(stdout) && os.Getenv("NO_COLOR") == "",
	}
	if o.json {
		run.Stdout = stderr
	}
	summary, err := c.Run(ctx, run)
	if o.json {
		if e := json.NewEncoder(stdout).Encode(summary); e != nil {
			return e
		}
	}
	if err != nil {
		return err
	}
	if summary.ExitStatus == 0 {
		return nil
	}
	if !o.json && len(summary.Ranks) > 1 {
		printSummary(summary, stderr)
	}
	first := summary.Ranks[*summary.FirstFailed]
	how := fmt.Sprintf("ended with status %d", first.ExitStatus)
	if first.Signal != "" {
		how = fmt.Sprintf("was ended by signal %d (%s)", first.ExitStatus-128, first.Signal)
	}
	return statusError{
		summary.ExitStatus,
		fmt.Errorf("rank %d on node %d %s", first.Rank, first.Node, how),
	}
}

// startReaper starts the process that ends the run's processes should this one be killed.
func startReaper(stateFile string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", "dev", "reap", stateFile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for it
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that cleans up: %w", err)
	}
	return cmd, nil
}

func printSummary(s *devcluster.Summary, out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "rank\tnode\tstatus\tseconds\t\n")
	for _, r := range s.Ranks {
		fmt.Fprintf(w, "%d\t%d\t%d\t%.1f\t\n", r.Rank, r.Node, r.ExitStatus, r.Seconds)
	}
	w.Flush()
}

func newDevReapCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "reap STATE-FILE",
		Short:  "Wait for the end of a cluster, and end what it left",
		Hidden: true, // `hdmlp dev cluster` starts it
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return devcluster.Reap(args[0])
		},
	}
}
