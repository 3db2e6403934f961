package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/report/top"
)

// TestTopReportsWrongInputAndAMissingDaemon without a terminal, where it must not wait for a
// daemon.
func TestTopReportsWrongInputAndAMissingDaemon(t *testing.T) {
	t.Setenv("HDMLP_SOCKET", "hdmlp-test-nobody")
	for args, words := range map[string]string{
		"top --json":           "hdmlp stats --job NAME --json",
		"top --interval 1ms":   "at least 100ms",
		"top --interval never": "never",
		"top now":              "takes no arguments",
	} {
		root := newRootCommand()
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); !errors.As(err, new(inputError)) ||
			!strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", args, err)
		}
	}
	root := newRootCommand()
	root.SetArgs([]string{"top", "--once"})
	if err := root.Execute(); !errors.Is(err, top.ErrGone) || exitCode(root, err) != 1 {
		t.Errorf("without a daemon: %v", err)
	}
}
