package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/source"
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
			asJSON, _ := cmd.Flags().GetBool("json")
			return runLargest(cmd.Context(), kind, args[0], asJSON, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kind, "kind", sources()[0].Name,
		"kind of the source; hdmlp kinds lists them")
	return cmd
}

// sampleSize is a sample as `hdmlp largest --json` prints it.
type sampleSize struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

func runLargest(ctx context.Context, name, dir string, asJSON bool, out io.Writer) error {
	kind, err := sourceKind(name)
	if err != nil {
		return err
	}
	silent := func(string) {}
	source, err := kind.Open(ctx, dir, source.OpenOptions{Warn: silent, Tell: silent})
	if err != nil {
		return openError(err)
	}
	defer source.Close()
	x, all := source.Index(), []sampleSize{}
	for id := range x.Len() {
		all = append(all, sampleSize{x.Name(id), x.Size(id)})
	}
	slices.SortStableFunc(all, func(a, b sampleSize) int { return int(b.Bytes - a.Bytes) })
	largest := all[:min(len(all), 10)]
	if asJSON {
		return printJSON(out, largest)
	}
	for _, s := range largest {
		fmt.Fprintf(out, "%12d  %s\n", s.Bytes, s.Name)
	}
	return nil
}
