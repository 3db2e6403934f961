package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// key returns the key of a mutant of the Python package.
func (p *patch) key() string { return p.file + ": by hand: " + p.about }

// python tries the mutants of the Python package, which were all written by hand: each in a copy of
// the package that precedes it in the interpreter's path.
func (c *campaign) python(ctx context.Context, p *planted) ([]*outcome, error) {
	var all []*outcome
	sound := map[string]bool{}
	for _, patch := range p.python {
		text, err := os.ReadFile(filepath.Join(c.root, patch.file))
		if err != nil {
			return all, err
		}
		from, to, err := patch.find(string(text))
		if err != nil {
			return all, err
		}
		m := &Mutant{
			Key: patch.key(), Room: "python", File: patch.file,
			Kind: patch.kind, Text: patch.about, Security: patch.security, Written: true,
			Line: 1 + strings.Count(string(text[:from]), "\n"), Dir: filepath.Dir(patch.file),
		}
		if !strings.Contains(m.Key, c.only) || c.equivalents[m.Key] != "" {
			continue
		}
		o := c.results.of(m, hashOf(text))
		all = append(all, o)
		if o.killed() {
			continue
		}
		if err := c.checkTests(ctx, p, patch.tests, sound); err != nil {
			return all, err
		}
		begun := time.Now()
		mutated := patch.replaced(string(text), from, to)
		if o.By, err = c.pytest(ctx, p, patch.tests, patch.file, mutated); err != nil {
			return all, err
		}
		o.Reached, o.Suite = true, strings.Join(patch.tests, " ")
		o.Seconds += time.Since(begun).Seconds()
		fmt.Printf("%5.1fs %s:%d %s: %s\n", o.Seconds, o.File, o.Line, o.Key,
			map[bool]string{true: "found by " + o.By, false: "SURVIVED"}[o.killed()])
		if err := c.results.write(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// checkTests fails if a file of tests fails without any defect: it could find nothing. The files
// that do not are noted in sound.
func (c *campaign) checkTests(ctx context.Context, p *planted, names []string,
	sound map[string]bool,
) error {
	for _, name := range names {
		if sound[name] {
			continue
		}
		if by, err := c.pytest(ctx, p, []string{name}, "", ""); err != nil || by != "" {
			return errors.Join(err,
				fmt.Errorf("python/tests/%s fails without any defect: %s", name, by))
		}
		sound[name] = true
	}
	return nil
}

// replaced returns a file of Python with the defect: further lines are indented as the first is.
func (p *patch) replaced(text string, from, to int) string {
	line := text[strings.LastIndex(text[:from], "\n")+1 : from]
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	return text[:from] + strings.Join(p.new, "\n"+indent) + text[to:]
}

// pytest runs files of tests with another text in place of a file's own. It returns what has found
// that, or "". No file: the package is as it is.
func (c *campaign) pytest(ctx context.Context, p *planted, tests []string, file, text string) (
	string, error,
) {
	copied := filepath.Join(p.out, "python")
	original := os.DirFS(filepath.Join(c.root, "python"))
	if err := errors.Join(os.RemoveAll(copied), os.CopyFS(copied, original)); err != nil {
		return "", err
	}
	if file != "" {
		if err := os.WriteFile(filepath.Join(p.out, file), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	const limit = 5 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// pyproject.toml's own pythonpath would put the original package first.
	args := []string{
		"-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider",
		"-o", "pythonpath=" + copied + " " + filepath.Join(copied, "tests"),
	}
	for _, name := range tests {
		args = append(args, filepath.Join("python/tests", name))
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.root, ".venv/bin/python"), args...)
	cmd.Dir = p.out
	// A test that hangs fails, and is named (python/tests/timelimit.py); one that awaits an event in
	// vain fails before.
	cmd.Env = append(os.Environ(), "PYTHONPATH="+copied, "PYTHONDONTWRITEBYTECODE=1",
		"TEST_LIMIT=90")
	out, took, err := runGroup(cmd)
	_, failure, found := strings.Cut(out, "\nFAILED ")
	switch {
	case err == nil:
		return "", nil
	case took > limit:
		return "a hang", nil
	case found:
		return strings.Fields(failure)[0], nil
	case strings.Contains(out, "\nERROR "):
		return "an error", nil
	case cmd.ProcessState != nil && !cmd.ProcessState.Exited():
		return "a crash", nil
	}
	return "", fmt.Errorf("pytest %v: %w\n%s", tests, err, out)
}
