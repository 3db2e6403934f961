package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
)

// devClusterOptions are the options of `hdmlp dev cluster`.
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
environment variables that torchrun sets. Each node has an HDMLP daemon of its
own.

As root, a node is a network namespace with an address of its own. Its link to
the others can be limited (--rate, --delay), and changed or cut while the
command runs (hdmlp dev link). The machine's own network is not changed.
Otherwise, nodes are loopback addresses, 127.0.0.1 and up, without limits.

Each line of output has a prefix [node.rank]. When a rank fails, the others get
SIGTERM, and SIGKILL after 5 s; Ctrl-C ends everything within a second.
Processes that ranks have started end with them, so that none is left.

In values of --env, {node}, {rank} and {address} stand for those of the process,
and in --mount {node} does. If nodes use cache directories, give each one of its
own.

EXIT STATUS
  0    all ranks exited with status 0
  2    wrong input, or not supported on this machine; nothing was run
  130  interrupted
  Otherwise, the status of the rank that failed first: 128 plus the signal's
  number if a signal killed it.`,
		Example: `  hdmlp dev cluster -n 4 -- python train.py --epochs 3
  hdmlp dev cluster -n 4 --rate 1gbit --delay 1ms --rate-of 2=10mbit -- \
      python train.py
  hdmlp dev cluster -n 2 --env 'HDMLP_CACHE_DIR=/tmp/cache-{node}' -- \
      python train.py
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
	flags.SetInterspersed(false) // flags after the command belong to the command
	flags.IntVarP(&opts.cluster.Nodes, "nodes", "n", 0, "number of nodes (required)")
	flags.IntVar(&opts.cluster.RanksPerNode, "ranks-per-node", 1, "processes on each node")
	flags.StringVar(&opts.rate, "rate", "unlimited",
		"rate of each node's link, each way, such as 10mbit or 1.5gbit")
	flags.StringVar(&opts.delay, "delay", "0",
		"delay of each node's link, each way, such as 1ms or 250us; there are two links "+
			"between two nodes")
	flags.StringArrayVar(&opts.rateOf, "rate-of", nil,
		"rate of one node's link, as `NODE=RATE`; may be repeated")
	flags.StringArrayVar(&opts.delayOf, "delay-of", nil,
		"delay of one node's link, as `NODE=DELAY`; may be repeated")
	flags.StringArrayVar(&opts.cluster.Env, "env", nil,
		"environment variable of each process, as `KEY=VALUE`; may be repeated")
	flags.StringArrayVar(&opts.cluster.Mounts, "mount", nil,
		"bind mount that only the node sees, as `SOURCE:TARGET`; may be repeated")
	flags.StringVar(&opts.cluster.Name, "run", "", "name of the run (default: a new one)")
	flags.IntVar(&opts.cluster.MasterPort, "master-port", 0,
		"value of MASTER_PORT (default: a free port)")
	flags.BoolVar(&opts.cluster.Loopback, "loopback", false,
		"use loopback addresses, even as root")
	return cmd
}

// validate combines the flags. Its error joins one for each mistake.
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
			errors.New("no command is given; for example: hdmlp dev cluster -n 4 -- "+
				"python train.py"))
	} else if _, err := exec.LookPath(o.args[0]); err != nil {
		faults = append(faults, fmt.Errorf("command %q: %w", o.args[0], err))
	}
	return errors.Join(faults...)
}

// runDevCluster runs the command. With JSON, only the summary goes to standard output.
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
			_ = reaper.Wait() // Close has made it end
		}
	}()
	if reaper, err = startReaper(c.StateFile()); err != nil {
		return err
	}
	if !o.json {
		fmt.Fprintf(stderr, "hdmlp: run %s: %s, %s to %s\n", c.Name(), count(c.Len(), "node"),
			c.Node(0).Address(), c.Node(c.Len()-1).Address())
		if why := c.OnLoopback(); why != nil && !o.cluster.Loopback {
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
		if e := printJSONLine(stdout, summary); e != nil {
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
	how := fmt.Sprintf("exited with status %d", first.ExitStatus)
	if first.Signal != "" {
		how = fmt.Sprintf("was killed by signal %d (%s)", first.ExitStatus-128, first.Signal)
	}
	return statusError{
		summary.ExitStatus,
		fmt.Errorf("rank %d on node %d %s", first.Rank, first.Node, how),
	}
}

// startReaper starts the process that kills the run's processes if this one is killed, and then
// removes directories; "": none.
func startReaper(stateFile string, dirs ...string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", append([]string{"dev", "reap", stateFile}, dirs...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // so that Ctrl-C does not reach it
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that cleans up after the run: %w", err)
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
		Use:    "reap STATE-FILE [DIR...]",
		Short:  "Wait for the end of a cluster, and kill the processes that it left",
		Hidden: true, // `hdmlp dev cluster` and `hdmlp compare` start it
		Args:   cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			err := devcluster.Reap(args[0])
			for _, dir := range args[1:] {
				err = errors.Join(err, os.RemoveAll(dir)) // of an empty name: none
			}
			return err
		},
	}
}
