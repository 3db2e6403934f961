package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
)

func newDevCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run several nodes on this machine, for development and tests",
		Args:  cobra.ArbitraryArgs, // so that RunE, not cobra, reports an unknown command
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badInput("unknown command %q of dev; `hdmlp dev --help` lists the commands",
					args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(withJSON(newDevClusterCommand()), withJSON(newDevLinkCommand()),
		newDevExecCommand(), newDevReapCommand(), newDevNodeCommand())
	return cmd
}

// devError marks those errors of devcluster as wrong input that are.
func devError(err error) error {
	if errors.Is(err, devcluster.ErrUnsupported) || errors.Is(err, devcluster.ErrNoRun) {
		return inputError{err}
	}
	return err
}

// nodeOf parses the number of a node of a run.
func nodeOf(text string, r *devcluster.Running) (int, error) {
	node, err := strconv.Atoi(text)
	if err != nil || node < 0 || node >= r.Len() {
		return 0, badInput("run %s has no node %q; its nodes are 0 to %d", r.Name(), text, r.Len()-1)
	}
	return node, nil
}

// perNode parses NODE=VALUE flags.
func perNode[T any](flag string, texts []string, parse func(string) (T, error),
	set func(node int, value T),
) error {
	var faults []error
	for _, text := range texts {
		node, value, ok := strings.Cut(text, "=")
		n, err := strconv.Atoi(node)
		if !ok || err != nil {
			faults = append(faults, fmt.Errorf("--%s %q is not of the form NODE=VALUE", flag, text))
			continue
		}
		v, err := parse(value)
		if err != nil {
			faults = append(faults, fmt.Errorf("--%s %q: %w", flag, text, err))
			continue
		}
		set(n, v)
	}
	return errors.Join(faults...)
}
