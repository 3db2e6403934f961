// Command hdmlp is the daemon that feeds training processes, and the tools
// around it. One file per command: flags, wiring and printing, nothing else.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// version is set by the linker, from python/hdmlp/_version.py.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A write beyond RLIMIT_FSIZE is to return its error, and not to end the process. Caught, and
	// not ignored: programs that commands start would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ)
	root := newRootCommand()
	cmd, err := root.ExecuteContextC(ctx)
	stop()
	os.Exit(exitCode(cmd, err))
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "hdmlp",
		Short: "Feed training samples to machine-learning jobs so that accelerators never wait " +
			"for storage",
		Long: `HDMLP feeds training samples to machine-learning jobs so that accelerators
never wait for storage. Training scripts use the Python package hdmlp, which
starts the daemon by itself; the commands here look at datasets, at what the
seed says, and at what a running job waits for.

EXIT STATUS
  0  success
  1  it was tried and failed
  2  wrong input: arguments, files, configuration; nothing was started
  130  interrupted`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // so that RunE, not cobra, names an unknown command
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badInput("there is no command %q; `hdmlp --help` lists them", args[0])
			}
			return cmd.Help()
		},
		PersistentPreRunE: refuseJSON,
	}
	root.PersistentFlags().Bool("json", false,
		"print JSON, errors included; a command that has none to print refuses it")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return inputError{err} })
	root.AddCommand(commands()...)
	return root
}

// inputError marks an error that the user's input caused: exit status 2.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

// statusError is the failure of another program, with its exit status.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

// badInput makes an inputError.
func badInput(format string, args ...any) error {
	return inputError{fmt.Errorf(format, args...)}
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return badInput("%s takes no arguments: %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// wrongInput are the kinds of a daemon's errors that are wrong input, as in python/hdmlp/errors.py.
var wrongInput = []string{
	protocol.KindConfig, protocol.KindDataset, protocol.KindMismatch,
	protocol.KindBusy, protocol.KindVersion,
}

// exitCode prints err, as the user asked, and gives the exit status.
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
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		text, _ := json.Marshal(map[string]any{"error": err.Error(), "exit_status": code})
		fmt.Fprintln(cmd.ErrOrStderr(), visibleJSON(string(text)))
	} else {
		// which may name files
		fmt.Fprintf(cmd.ErrOrStderr(), "hdmlp: %s\n", printable.Text(err.Error()))
	}
	return code
}
