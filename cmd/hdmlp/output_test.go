package main

import (
	"bytes"
	"io"
	"os"
	"slices"
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
	out := newOutput(terminalFile)
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

// TestOutputEscapesWhatATerminalActsOn checks that it does so wherever a write ends, and keeps
// colours only where they are shown.
func TestOutputEscapesWhatATerminalActsOn(t *testing.T) {
	const text = "\x1b[1mbold\x1b[0m ü \x1b]0;t\a \u009b2J \xff é\xe2\x82"
	const plain = `\x1b[1mbold\x1b[0m ü \x1b]0;t\a \u009b2J \xff é\xe2\x82`
	coloured := "\x1b[1mbold\x1b[0m" + plain[len(`\x1b[1mbold\x1b[0m`):]
	for _, c := range []struct {
		colour bool
		step   int
		want   string
	}{
		{false, 1, plain},
		{false, 2, plain},
		{false, 3, plain},
		{false, 5, plain},
		{false, len(text), plain},
		{true, len(text), coloured},
	} {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		out := &output{file: file, colour: c.colour}
		for part := range slices.Chunk([]byte(text), c.step) {
			if n, err := out.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := out.end(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file.Name()); err != nil || string(got) != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}
