package house_test

import (
	"bytes"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxColumns = 100
	tabColumns = 2
)

// skippedDirs are folders whose files are built, fetched or test data.
var skippedDirs = []string{"build", "dist", "testdata", "site", "__pycache__", "bin"}

// columns is the width of a line. A byte that is not UTF-8 counts as one column.
func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// longLines returns the numbers, from 1, of the lines of src that are too long for a file of this
// name.
func longLines(name string, src []byte) []int {
	exempt := func(int, string) bool { return false }
	switch filepath.Ext(name) {
	case ".go":
		raw := rawStringLines(src)
		exempt = func(n int, line string) bool {
			return raw[n] || strings.HasPrefix(line, "//go:generate ")
		}
	case ".md":
		fenced := false
		exempt = func(_ int, line string) bool {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				fenced = !fenced
			}
			return fenced || strings.HasPrefix(line, "    ") || strings.HasPrefix(text, "|") ||
				strings.Contains(text, "](") || strings.Contains(text, "://")
		}
	}
	var long []int
	n := 0
	for line := range strings.Lines(string(src)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if !exempt(n, line) && columns(line) > maxColumns {
			long = append(long, n)
		}
	}
	return long
}

// rawStringLines returns the lines of Go source on which raw strings stand.
func rawStringLines(src []byte) map[int]bool {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && text[0] == '`' {
			first := file.Line(pos)
			for k := range strings.Count(text, "\n") + 1 {
				lines[first+k] = true
			}
		}
	}
}

func TestNoLineHasMoreThan100Columns(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			hidden := strings.HasPrefix(base, ".") && base != "." && base != ".github"
			if hidden || slices.Contains(skippedDirs, base) {
				return fs.SkipDir
			}
			return nil
		}
		checks := slices.Contains([]string{".go", ".py", ".pyi", ".c", ".h", ".md"},
			filepath.Ext(name))
		if !checks || !d.Type().IsRegular() {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if generated(src) {
			return nil
		}
		checked++
		long := longLines(name, src)
		switch listed := slices.Contains(wide, name); {
		case len(long) > 0 && !listed:
			t.Errorf("%s: lines of more than %d columns (a tab counts %d): %v", name, maxColumns,
				tabColumns, long)
		case len(long) == 0 && listed:
			t.Errorf("%s has no long line any more: remove it from the list", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range wide {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("a file in the list cannot be found: %v", err)
		}
	}
	if checked < 500 {
		t.Errorf("only %d files were checked", checked)
	}
}

func TestLongLinesOfCodeAndProseAreFound(t *testing.T) {
	x := strings.Repeat("x", maxColumns)
	lines := func(l ...string) []byte { return []byte(strings.Join(l, "\n") + "\n") }
	for _, c := range []struct {
		name string
		src  []byte
		want []int
	}{
		{"a.go", lines("package a", "// "+x, "//go:generate "+x, "var _ = 0 // end"), []int{2}},
		{"a.go", lines("var a = `", x+"x", "`", "var b = \""+x+"\"", "// `", x+"x"), []int{4, 6}},
		{"a.go", lines("\t"+x[2:], "\t"+x[1:]), []int{2}},
		{"a.c", lines(x, x+"x", strings.Repeat("é", maxColumns)), []int{2}},
		{"a.md", lines("| "+x, "```", x+"x", "```", x+"x", "[l](l) "+x, "    "+x), []int{5}},
		{"a.py", bytes.Repeat([]byte(x+"x\n"), 2), []int{1, 2}},
	} {
		if got := longLines(c.name, c.src); !slices.Equal(got, c.want) {
			t.Errorf("%s: long lines %v, want %v:\n%s", c.name, got, c.want, c.src)
		}
	}
}

// wide are the files that still have lines of more than maxColumns columns. The list is exact: a
// file whose last long line is wrapped leaves it, and no file is to be added.
var wide = strings.Fields(`
bench/faults/api.py
bench/faults/floods.py
bench/faults/processes.py
bench/newest.py
bench/tests/conftest.py
cmd/hdmlp/simulate_test.go
docs/PERFORMANCE.md
internal/config/directory_test.go
internal/exchange/turns.go
internal/simulate/property_test.go
internal/transform/codec/codec.go
internal/transform/codec/fuzz_test.go
internal/transform/codec/hostile_test.go
internal/transform/codec/limits_test.go
internal/transform/codec/webp_cgo_test.go
internal/transform/color_jitter.go
internal/transform/pixels/pack.c
internal/transform/statistics_test.go
internal/transform/worker.go
python/frameworks/conftest.py
python/frameworks/test_readme.py
python/hdmlp/_source.py
python/tests/conftest.py
python/tests/identities.py
python/tests/launched.py
python/tests/test_foreign.py
python/tests/test_groups.py
python/tests/test_limits.py
python/tests/test_nodes_parts.py
python/tests/test_nodes_samplers.py
python/tests/test_ranks.py
python/tests/test_socket.py
python/tests/test_socket_versions.py
python/tests/test_timelimit.py
`)
