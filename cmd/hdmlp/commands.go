package main

import "github.com/spf13/cobra"

// commands lists every command: one line each.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newDatasetCommand(),
		newCacheCommand(),
		newAccessCommand(),
		newConfigCommand(),
		newKindsCommand(),
		newServeCommand(nodeOptions),
		newStatsCommand(),
		newTopCommand(),
		newStopCommand(),
		newSimulateCommand(),
		newTransformCommand(),
		newDevCommand(),
	}
}
