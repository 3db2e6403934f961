package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// statusOf is status for a root command that the test has changed.
func statusOf(t *testing.T, cmd *cobra.Command, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	cmd.SetIn(strings.NewReader("y\n")) // which is no terminal
	cmd.SetArgs(args)
	ran, err := cmd.ExecuteContextC(t.Context())
	return exitCode(ran, err), o.String(), e.String()
}

// everyCommand calls f for each command and each command of a group, root included.
func everyCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		everyCommand(sub, f)
	}
}

// TestCommandsWithoutJSONRefuseIt runs each of them with --json: it exits with 2, reports the
// refusal in JSON, and does nothing else.
func TestCommandsWithoutJSONRefuseIt(t *testing.T) {
	var paths []string
	everyCommand(newRootCommand(), func(cmd *cobra.Command) {
		if cmd.Annotations[jsonAnnotation] == "" {
			paths = append(paths, cmd.CommandPath())
		}
	})
	if !slices.Contains(paths, "hdmlp serve") || !slices.Contains(paths, "hdmlp cache") {
		t.Fatalf("serve and cache print no JSON, and the commands without are %q", paths)
	}
	for _, path := range paths {
		root := newRootCommand()
		everyCommand(root, func(cmd *cobra.Command) {
			if cmd.CommandPath() == path {
				cmd.Args = cobra.ArbitraryArgs
				cmd.RunE = func(*cobra.Command, []string) error {
					return errors.New("it ran")
				}
			}
		})
		code, out, errs := statusOf(t, root, append(strings.Fields(path)[1:], "--json")...)
		var refused struct {
			Error  string `json:"error"`
			Status int    `json:"exit_status"`
		}
		if err := json.Unmarshal([]byte(errs), &refused); err != nil || out != "" || code != 2 ||
			refused.Status != 2 || refused.Error != path+" prints no JSON: leave out --json" {
			t.Errorf("%s --json: exit status %d, printed %q and %q", path, code, out, errs)
		}
	}
}

// TestCommandsWithJSONPrintIt runs each of them with --json. Where the exit status is 0 its output
// is JSON, otherwise its error is; of two formats it prints neither.
func TestCommandsWithJSONPrintIt(t *testing.T) {
	quiet(t)
	t.Setenv("HDMLP_SOCKET", "hdmlp-test-no-daemon")
	data, cache := tree(t, 3), t.TempDir()
	out := filepath.Join(t.TempDir(), "out")
	fillCache(t, cache, data, nil)
	type call struct {
		args   []string
		status int
	}
	calls := map[string][]call{
		"access":      {{nil, 0}, {[]string{"--sample", "3"}, 0}},
		"cache check": {{[]string{cache}, 0}},
		"cache ls":    {{[]string{cache}, 0}},
		"cache rm":    {{[]string{cache, "--all", "--yes"}, 0}},
		"cache warm":  {{[]string{data, "--cache", out + ".cache"}, 0}, {[]string{data}, 2}},
		"compare":     {{[]string{data, "--epochs", "0"}, 2}},
		"config":      {{nil, 0}, {[]string{"--example"}, 2}},
		"dataset":     {{[]string{data}, 0}, {[]string{data, "--classes"}, 0}},
		"dev cluster": {{[]string{"-n", "0", "--", "true"}, 2}},
		"dev link":    {{[]string{"0", "--run", "none"}, 2}},
		"kinds":       {{nil, 0}},
		"learn":       {{[]string{"true"}, 2}, {[]string{"--", "no such command"}, 2}},
		"pack":        {{[]string{data, out}, 0}, {[]string{data, data}, 2}},
		"probe":       {{[]string{data, "--time", "2s"}, 0}, {[]string{data, "--time", "1s"}, 2}},
		"analyze": {
			{[]string{"--from", measured}, 0}, {[]string{"--from", measured, "--price", "none"}, 2},
		},
		"simulate": {
			{[]string{tiny(t, tinyScenario)}, 0},
			{[]string{tiny(t, tinyScenario), "--csv"}, 2},
		},
		"credentials": {
			{[]string{"https://host/x"}, 0}, {[]string{"gs://bucket/x"}, 2}, {[]string{"path"}, 2},
		},
		"stats":     {{nil, 1}, {[]string{"--prometheus"}, 2}},
		"top":       {{nil, 2}},
		"verify":    {{[]string{stateFile(t)}, 0}, {[]string{data}, 2}},
		"transform": {{[]string{"nowhere.png", "--transforms", "ToTensor()", "--out", data}, 2}},
	}
	everyCommand(newRootCommand(), func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), "hdmlp ")
		if cmd.Annotations[jsonAnnotation] == "" {
			return
		}
		if len(calls[path]) == 0 {
			t.Errorf("hdmlp %s is marked withJSON, and is not run here: add its arguments to calls "+
				"in cmd/hdmlp/json_test.go", path)
		}
		for _, call := range calls[path] {
			args := append(append(strings.Fields(path), "--json"), call.args...)
			code, out, errs := status(t, args...)
			text := out
			if call.status != 0 {
				text = out + errs
			}
			if code != call.status || !json.Valid([]byte(text)) {
				t.Errorf("hdmlp %q: exit status %d, want %d; printed %q and %q", args, code,
					call.status, out, errs)
			}
		}
	})
}
