package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/bench/mutants/usage"
)

// TestWrongCommandLines: what cannot be tried is refused as an error of the command line, before
// anything runs.
func TestWrongCommandLines(t *testing.T) {
	t.Chdir("../..")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-n", "-5"}, "N=-5"},
		{[]string{"-seeds", "0"}, "SEEDS=0"},
		{[]string{"-scripts", "0"}, "SCRIPTS=0"},
		{[]string{"-room", "nosuchroom"}, "access (or plan/access)"},
		{[]string{"-room", "cache,"}, "ROOM=: no such room"},
		{[]string{"-suites", "internal/nosuch"}, "SUITES=internal/nosuch"},
		{[]string{"-room", "planner", "-only", "nosuchword"}, "ONLY=nosuchword"},
		{[]string{"planner"}, `"planner"`},
	} {
		err := run(context.Background(), append(c.args, "-out", t.TempDir()))
		if !errors.As(err, new(usage.Error)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}
