package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func TestHelpFitsTheTerminal(t *testing.T) {
	root := newRootCommand()
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpColumns {
				t.Errorf("%s --help has %d columns, more than %d: %s", cmd.CommandPath(), n,
					helpColumns, line)
			}
			if strings.Contains(line, "stringArray") {
				t.Errorf("%s --help: a flag's description needs its value's form between `: %s",
					cmd.CommandPath(), line)
			}
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
}

func TestHelpOnWhatIsNoCommandIsRefused(t *testing.T) {
	for args, want := range map[string]string{
		"help bogus":         "no help on \"bogus\": it is no command; `hdmlp --help` lists the",
		"help cache bogus":   "no help on \"cache bogus\": it is no command; `hdmlp cache --help` ",
		"help cache rm more": "it is no command; `hdmlp cache --help` lists the commands",
	} {
		if code, out, errs := status(t, strings.Fields(args)...); code != 2 || out != "" ||
			!strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %q, %q; want %q", args, code, out, errs, want)
		}
	}
	for args, want := range map[string]string{
		"help":          "Available Commands:",
		"help cache rm": "hdmlp cache rm ",
	} {
		if code, out, errs := status(t, strings.Fields(args)...); code != 0 || errs != "" ||
			!strings.Contains(out, want) {
			t.Errorf("%s: status %d, %q, %q; want %q", args, code, out, errs, want)
		}
	}
}
