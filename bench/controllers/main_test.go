package main

import (
	"strings"
	"testing"
)

// TestChanges checks that every change applies to the program's text, and that a scenario runs.
func TestChanges(t *testing.T) {
	t.Chdir("../..")
	changes, err := allChanges()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range changes {
		if c.name == "" || seen[c.name] || strings.Count(c.text, "package ") == 0 {
			t.Errorf("%s of %s: no text, or twice", c.name, c.file)
		}
		seen[c.name] = true
	}
	for _, name := range []string{"limits.go slowFactor / 2", "fit.go clip * 2"} {
		if !seen[name] {
			t.Errorf("%s is not tried", name)
		}
	}
	if o, err := scenarios[0].run(1, nil); err != nil || o.Seconds < o.Later || o.Later <= 0 {
		t.Errorf("%s: %+v, %v", scenarios[0].name, o, err)
	}
}
