package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// planned is a mutant of the Python package that is to be tried.
type planned struct {
	*patch
	text    string // the file with the defect
	outcome *outcome
}

// python tries the mutants of the Python package, which were all written by hand: each in a copy of
// the package that precedes it in the interpreter's path.
func (c *campaign) python(ctx context.Context, p *planted) ([]*outcome, error) {
	var all []*outcome
	var left []planned
	for _, patch := range p.python {
		text, err := os.ReadFile(filepath.Join(c.root, patch.file))
		if err != nil {
			return all, err
		}
		from, to, err := patch.find(string(text))
		if err != nil {
			return all, err
		}
		hash, err := hashOf(filepath.Join(c.root, patch.file))
		if err != nil {
			return all, err
		}
		m := &Mutant{
			Key: patch.file + ": by hand: " + patch.about, Room: "python", File: patch.file,
			Kind: patch.kind, Text: patch.about, Security: patch.security, Written: true,
			Line: 1 + strings.Count(string(text[:from]), "\n"), Dir: filepath.Dir(patch.file),
		}
		if !strings.Contains(m.Key, c.only) || c.equivalents[m.Key] != "" {
			continue
		}
		o := c.results.of(m, hash)
		all = append(all, o)
		if o.killed() {
			continue
		}
		mutated := patch.replaced(string(text), from, to)
		if err := checkSyntax(ctx, c.interpreter(), patch, mutated); err != nil {
			return all, err
		}
		left = append(left, planned{patch, mutated, o})
	}
	if err := c.checkTests(ctx, p, left); err != nil {
		return all, err
	}
	for _, m := range left {
		o, begun := m.outcome, time.Now()
		var err error
		if o.By, err = c.pytest(ctx, p, m.tests, m.file, m.text); err != nil {
			return all, err
		}
		o.Reached, o.Suite = true, strings.Join(m.tests, " ")
		o.Seconds += time.Since(begun).Seconds()
		fmt.Printf("%5.1fs %s:%d %s: %s\n", o.Seconds, o.File, o.Line, o.Key,
			map[bool]string{true: "found by " + o.By, false: "SURVIVED"}[o.killed()])
		if err := c.results.write(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// checkTests fails if a file of tests fails without any defect: it could find nothing.
func (c *campaign) checkTests(ctx context.Context, p *planted, mutants []planned) error {
	checked := map[string]bool{}
	for _, m := range mutants {
		for _, name := range m.tests {
			if checked[name] {
				continue
			}
			checked[name] = true
			by, err := c.pytest(ctx, p, []string{name}, "", "")
			if err != nil {
				return err
			}
			if by != "" {
				return fmt.Errorf("python/tests/%s fails without any defect: %s", name, by)
			}
		}
	}
	return nil
}

func (c *campaign) interpreter() string { return filepath.Join(c.root, ".venv/bin/python") }

// replaced returns a file of Python with the defect: further lines are indented as the first is.
func (p *patch) replaced(text string, from, to int) string {
	line := text[strings.LastIndex(text[:from], "\n")+1 : from]
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	return text[:from] + strings.Join(p.new, "\n"+indent) + text[to:]
}

// checkSyntax fails if a text is no program in Python: any test would find such a defect.
func checkSyntax(ctx context.Context, python string, p *patch, text string) error {
	cmd := exec.CommandContext(ctx, python, "-c", "import ast, sys; ast.parse(sys.stdin.read())")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: the defect cannot be parsed: %w\n%s", p.where, err, out)
	}
	return nil
}

// pytest runs files of tests with another text in place of a file's own. It returns what has found
// that, or "". No file: the package is as it is.
func (c *campaign) pytest(ctx context.Context, p *planted, tests []string, file, text string) (
	string, error,
) {
	copied := filepath.Join(p.out, "python")
	if err := os.RemoveAll(copied); err != nil {
		return "", err
	}
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(c.root, "python"))); err != nil {
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
	cmd := exec.CommandContext(ctx, c.interpreter(), args...)
	cmd.Dir = p.out
	// A test that hangs fails after a minute, and is named (python/tests/timelimit.py).
	cmd.Env = append(os.Environ(), "PYTHONPATH="+copied, "PYTHONDONTWRITEBYTECODE=1",
		"TEST_LIMIT=60")
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
	}
	return "", fmt.Errorf("pytest %v: %w\n%s", tests, err, out)
}
