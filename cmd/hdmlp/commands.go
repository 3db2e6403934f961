package main

import "github.com/spf13/cobra"

// commands returns all commands, one line each.
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
