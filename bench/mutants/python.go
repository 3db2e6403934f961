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

// python tries the mutants of the Python package, which were all written by hand: each in a copy of
// the package that precedes it in the interpreter's path.
func (c *campaign) python(ctx context.Context, p *planted) ([]*outcome, error) {
	var all []*outcome
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
		mutated := string(text[:from]) + strings.Join(patch.new, "\n") + string(text[to:])
		begun := time.Now()
		if o.By, err = c.pytest(ctx, p, patch, mutated); err != nil {
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

// pytest runs the files of tests that a patch names, with its file's text replaced.
func (c *campaign) pytest(ctx context.Context, p *planted, patch *patch, text string) (
	string, error,
) {
	copied := filepath.Join(p.out, "python")
	if err := os.RemoveAll(copied); err != nil {
		return "", err
	}
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(c.root, "python"))); err != nil {
		return "", err
	}
	name := filepath.Join(p.out, patch.file)
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return "", err
	}
	const limit = 5 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := []string{"-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"}
	for _, name := range patch.tests {
		args = append(args, filepath.Join("python/tests", name))
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.root, ".venv/bin/python"), args...)
	cmd.Dir = p.out
	cmd.Env = append(os.Environ(), "PYTHONPATH="+copied, "PYTHONDONTWRITEBYTECODE=1")
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
	return "", fmt.Errorf("pytest %v: %w\n%s", patch.tests, err, out)
}
