package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
)

// TestLostOutputIsAnError prints to a full device: the exit status is 1, and stderr has the reason,
// also for commands that print with fmt.Fprintf.
func TestLostOutputIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, command := range []string{
		"--help", "--version", "kinds", "kinds --json", "config",
		"access --samples 100 --nodes 2 --epochs 3 --batch 4 --seed 1",
	} {
		root := newRootCommand()
		var errs bytes.Buffer
		root.SetErr(&errs)
		root.SetArgs(strings.Fields(command))
		code := run(t.Context(), root, full)
		if code != 1 || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%s: exit status %d, printed %q", command, code, errs.String())
		}
	}
}

// TestOutputIsTheFile checks that a terminal is recognised, and that programs which a command
// starts get the file itself.
func TestOutputIsTheFile(t *testing.T) {
	terminalFile, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminalFile.Close()
	out := &output{file: terminalFile}
	if !isTerminal(out) {
		t.Error("an output to a terminal is not recognised as one")
	}
	if fileOf(out) != io.Writer(terminalFile) {
		t.Error("fileOf does not return the file of an output")
	}
	var other bytes.Buffer
	if fileOf(&other) != io.Writer(&other) {
		t.Error("fileOf changes a writer that is no output")
	}
}
