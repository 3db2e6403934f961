package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
)

func newDevExecCommand() *cobra.Command {
	var run string
	cmd := &cobra.Command{
		Use:   "exec NODE [flags] -- COMMAND [ARGUMENTS]",
		Short: "Run a command on a node while `hdmlp dev cluster` runs",
		Long: `Run a command on a node while hdmlp dev cluster runs, for example to inspect the
node's daemon (hdmlp stats) or its network. The command is part of the run, and
ends with it.

EXIT STATUS
  2  wrong input: no such run, node or command
  Otherwise, the status of the command.`,
		Example: `  hdmlp dev exec 1 -- hdmlp stats
  hdmlp dev exec 1 -- ip -s addr`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return badInput("exec takes the number of a node and a command, as in: hdmlp dev " +
					"exec 1 -- hdmlp stats")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return runDevExec(run, args) },
	}
	cmd.Flags().StringVar(&run, "run", "", "name of the run (default: the only one)")
	return cmd
}

// runDevExec replaces this process by the command. It returns only if that fails.
func runDevExec(run string, args []string) error {
	r, err := devcluster.Find(run)
	if err != nil {
		return devError(err)
	}
	node, err := nodeOf(args[0], r)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return badInput("command %q: %w", args[1], err)
	}
	added, err := r.Enter(node)
	if err != nil {
		return devError(err)
	}
	if err := unix.Exec(path, args[1:], withVariables(os.Environ(), added)); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}

// withVariables returns the environment with variables added or replaced.
func withVariables(environment, added []string) []string {
	var out []string
	for _, kv := range environment {
		key, _, _ := strings.Cut(kv, "=")
		replaced := false
		for _, a := range added {
			replaced = replaced || strings.HasPrefix(a, key+"=")
		}
		if !replaced {
			out = append(out, kv)
		}
	}
	return append(out, added...)
}
