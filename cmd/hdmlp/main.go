// Command hdmlp is the daemon that feeds training processes, and the tools around it. Each command
// has one file with flags, wiring and printing, and nothing else.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// version is set by the linker, from python/hdmlp/_lib/version.py.
var version = "devel"

// helpColumns is the width of the help: that of a terminal by default.
const helpColumns = 80

func main() {
	interrupts := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		interrupts = append(interrupts, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), interrupts...)
	// A write beyond RLIMIT_FSIZE must return an error instead of killing the process. The signal
	// is caught, not ignored, because programs that commands start would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ)
	code := run(ctx, newRootCommand(), os.Stdout)
	stop()
	os.Exit(code)
}

// run carries out the command that root's arguments name, with stdout as its standard output, and
// returns the exit status. A command whose text could not be written has failed.
func run(ctx context.Context, root *cobra.Command, stdout *os.File) int {
	out := newOutput(stdout)
	root.SetOut(out)
	cmd, err := root.ExecuteContextC(ctx)
	if e := out.end(); err == nil {
		err = e
	}
	return exitCode(cmd, err)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "hdmlp",
		Short: "Feed training samples to machine-learning jobs so that accelerators never wait " +
			"for storage",
		Long: `HDMLP feeds training samples to machine-learning jobs so that accelerators never
wait for storage. Training scripts use the Python package hdmlp, which starts
the daemon by itself. The commands here inspect datasets, the accesses that
follow from a seed, caches and running jobs.

EXIT STATUS
  0    success
  1    failure
  2    wrong input (arguments, files or configuration); nothing was started
  130  interrupted`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // so that RunE, not cobra, reports an unknown command
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badInput("unknown command %q; `hdmlp --help` lists the commands", args[0])
			}
			return cmd.Help()
		},
		PersistentPreRunE: refuseFlags,
	}
	root.PersistentFlags().Bool("json", false,
		"print JSON, also for errors; commands without JSON output refuse it")
	root.SetFlagErrorFunc(flagError)
	// Cobra's own template, with descriptions of flags that fit a terminal.
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages",
		fmt.Sprint("FlagUsagesWrapped ", helpColumns)))
	root.AddCommand(commands()...)
	root.InitDefaultHelpCmd()
	root.SetHelpCommand(refusingUnknown(root))
	return root
}

// refusingUnknown returns cobra's help command, which refuses what is no command: cobra itself
// shows the help of the group that it would be in.
func refusingUnknown(root *cobra.Command) *cobra.Command {
	help, _, _ := root.Find([]string{"help"})
	show := help.Run
	help.Run = nil
	help.RunE = func(cmd *cobra.Command, args []string) error {
		of, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			for of.HasParent() && !of.HasAvailableSubCommands() {
				of = of.Parent()
			}
			return badInput("no help on %q: it is no command; `%s --help` lists the commands",
				strings.Join(args, " "), of.CommandPath())
		}
		show(cmd, args)
		return nil
	}
	return help
}

// inputError marks an error caused by the user's input: exit status 2.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

// statusError is an error with the exit status of another program.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

// badInput returns an inputError.
func badInput(format string, args ...any) error {
	return inputError{fmt.Errorf(format, args...)}
}

// noArgs rejects arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return badInput("%s takes no arguments, but got %q", cmd.Name(), args[0])
	}
	return nil
}

// wrongInput lists the kinds of a daemon's errors that count as wrong input, as in
// python/hdmlp/errors.py.
var wrongInput = []string{
	protocol.KindConfig, protocol.KindDataset, protocol.KindMismatch,
	protocol.KindBusy, protocol.KindVersion,
}

// exitCode prints err, as text or JSON, and returns the exit status.
func exitCode(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	code := 1
	var input inputError
	var status statusError
	var refused *protocol.ErrorMessage
	switch {
	case errors.As(err, &status):
		code = status.status
	case errors.As(err, &input):
		code = 2
	case errors.As(err, &refused) && slices.Contains(wrongInput, refused.Kind):
		code = 2
	case errors.Is(err, context.Canceled):
		code = 130
	}
	message := strings.ReplaceAll(err.Error(), context.Canceled.Error(), "interrupted")
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		text, _ := json.Marshal(map[string]any{"error": message, "exit_status": code})
		fmt.Fprintln(cmd.ErrOrStderr(), human.JSON(string(text)))
	} else {
		// The text may contain file names. Indented, what follows a line break cannot pass for
		// another message.
		fmt.Fprintf(cmd.ErrOrStderr(), "hdmlp: %s\n",
			strings.ReplaceAll(human.Text(message), "\n", "\n  "))
	}
	return code
}
