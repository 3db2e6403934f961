package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands returns all commands, one line each. Those marked withJSON accept the flag --json.
func commands() []*cobra.Command {
	return []*cobra.Command{
		withJSON(newDatasetCommand()),
		withJSON(newPackCommand()),
		newCacheCommand(),
		withJSON(newAccessCommand()),
		withJSON(newVerifyCommand()),
		withJSON(newConfigCommand()),
		withJSON(newKindsCommand()),
		withJSON(newCredentialsCommand()),
		newServeCommand(nodeOptions),
		withJSON(newStatsCommand()),
		withJSON(newTopCommand()), // refuses it, and names a command that prints JSON
		newStopCommand(),
		withJSON(newProbeCommand()),
		withJSON(newSimulateCommand()),
		withJSON(newCompareCommand()),
		withJSON(newTransformCommand()),
		withJSON(newAnalyzeCommand()),
		withJSON(newLearnCommand()),
		newDevCommand(),
		newVersionCommand(),
	}
}

// jsonAnnotation is the key of the annotation that withJSON leaves.
const jsonAnnotation = "json"

// withJSON marks a command that evaluates --json; every other command refuses the flag.
func withJSON(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{jsonAnnotation: "evaluated"}
	return cmd
}

// refuseFlags runs before each command, and refuses --json where it would be ignored, and flags
// whose text is empty, as that of a shell's unset variable is.
func refuseFlags(cmd *cobra.Command, args []string) error {
	var faults []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			faults = append(faults, badInput("--%s is empty; give a value, or omit it", f.Name))
		}
	})
	return errors.Join(append(faults, refuseJSON(cmd, args))...)
}

// refuseJSON refuses --json where it would be ignored.
func refuseJSON(cmd *cobra.Command, args []string) error {
	given, _ := cmd.Flags().GetBool("json")
	if !given || cmd.Annotations[jsonAnnotation] != "" {
		return nil
	}
	if cmd.HasSubCommands() && len(args) > 0 {
		return nil // not a command of the group, which its RunE reports
	}
	return badInput("%s prints no JSON: leave out --json", cmd.CommandPath())
}
