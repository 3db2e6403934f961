package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/dataset"
)

func newLargestCommand() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "largest DIR",
		Short: "List the largest samples of a dataset",
		Long: `List the ten largest samples of a dataset, the largest first.

EXIT STATUS
  0  success
  2  wrong input: no such directory, ...`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badInput("largest takes one directory, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLargest(cmd.Context(), kind, args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kind, "kind", sources()[0].Name,
		"kind of the source; hdmlp kinds lists them")
	return cmd
}

func runLargest(ctx context.Context, name, dir string, out io.Writer) error {
	kind, err := sourceKind(name)
	if err != nil {
		return err
	}
	silent := func(string) {}
	source, err := kind.Open(ctx, dir, dataset.OpenOptions{Warn: silent, Tell: silent})
	if err != nil {
		return inputError{err}
	}
	defer source.Close()
	x, ids := source.Index(), []int{}
	for id := range x.Len() {
		ids = append(ids, id)
	}
	slices.SortStableFunc(ids, func(a, b int) int { return int(x.Size(b) - x.Size(a)) })
	for _, id := range ids[:min(len(ids), 10)] {
		fmt.Fprintf(out, "%12d  %s\n", x.Size(id), x.Name(id))
	}
	return nil
}
