package main

import (
	"github.com/spf13/cobra"
)

func newAnalyzeCommand() *cobra.Command {
	var report analysisOptions
	var from string
	cmd := &cobra.Command{
		Use:   "analyze --from FILE",
		Short: "Say what a training job waits for, and what would help",
		Long: `Say what a training job waits for, and what would help: how fast training, the
preparation of samples and the source are, which of them limits, how much cache
and how many cores are enough, and what an epoch would take with changes.

--from draws the conclusions from rates that were measured before: from the JSON
of an earlier analysis.
` + analysisHelp + `
EXIT STATUS
  0    success
  1    failure
  2    wrong input`,
		Example: `  hdmlp analyze --from result.json
  hdmlp analyze --from result.json --what-if memory=64GB,compute=2x --out plots
  hdmlp analyze --from result.json --price prices.toml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return badInput("give --from, a file with the JSON of an earlier analysis")
			}
			if err := report.parse(cmd); err != nil {
				return err
			}
			measured, err := readMeasured(from)
			if err != nil {
				return err
			}
			return report.run(cmd.Context(), measured, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "draw the conclusions of an earlier analysis again, "+
		"from its JSON in `FILE`")
	report.flags(cmd)
	return cmd
}
