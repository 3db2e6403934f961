package house_test

import (
	"bytes"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
var skippedDirs = []string{"build", "dist", "testdata", "__pycache__", "bin"}

// columns is the width of a line. A byte that is not UTF-8 counts as one column.
func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// checked are the files whose lines are checked, by their names' ends. JSON is data.
var checked = []string{
	".go", ".py", ".pyi", ".c", ".h", ".md", ".html", ".css", ".toml", ".yml", ".yaml", ".txt",
	".proto", "Makefile",
}

// link matches what cannot be wrapped in prose: a link of Markdown, or an address.
var link = regexp.MustCompile(`\[[^\]]*\]\([^)]*\)|https?://\S+`)

// longLines returns the numbers, from 1, of the lines of src that are too long for a file of this
// name. Exceptions are a table's row and a link in Markdown, what a Go raw string of several lines
// holds, since it is mostly a program's output, and a go:generate directive.
func longLines(name string, src []byte) []int {
	exempt := func(int, string) bool { return false }
	switch filepath.Ext(name) {
	case ".go":
		raw := rawStringLines(src)
		exempt = func(n int, line string) bool {
			return raw[n] || strings.HasPrefix(line, "//go:generate ")
		}
	case ".md":
		exempt = func(_ int, line string) bool {
			// A change that is shown has a + before each line.
			return strings.HasPrefix(strings.TrimLeft(line, " +"), "|") ||
				columns(link.ReplaceAllString(line, "")) <= maxColumns
		}
	}
	var long []int
	n := 0
	for line := range strings.Lines(string(src)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if columns(line) > maxColumns && !exempt(n, line) {
			long = append(long, n)
		}
	}
	return long
}

// rawStringLines returns the lines of Go source on which raw strings of several lines stand.
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
		more := strings.Count(text, "\n")
		if tok == token.STRING && text[0] == '`' && more > 0 {
			first := file.Line(pos)
			for k := range more + 1 {
				lines[first+k] = true
			}
		}
	}
}

func TestNoLineHasMoreThan100Columns(t *testing.T) {
	files := 0
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
		known := slices.ContainsFunc(checked, func(end string) bool {
			return strings.HasSuffix(base, end)
		}) || filepath.Dir(name) == "scripts"
		if !known || !d.Type().IsRegular() {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if generated(src) {
			return nil
		}
		files++
		if long := longLines(name, src); len(long) > 0 {
			t.Errorf("%s: lines of more than %d columns (a tab counts %d): %v; wrap them", name,
				maxColumns, tabColumns, long)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 500 {
		t.Errorf("only %d files were checked", files)
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
		{"a.go", lines("var a = `" + x + "`"), []int{1}},
		{"a.go", lines("\t"+x[2:], "\t"+x[1:]), []int{2}},
		{"a.c", lines(x, x+"x", strings.Repeat("é", maxColumns)), []int{2}},
		{"a.md", lines("| "+x, " | "+x, "+| "+x, "```", x+"x", "```", x+"x", "    "+x), []int{5, 7, 8}},
		{"a.md", lines("[l](l)"+x, "[l]("+x+")", "https://"+x, "[l](l) "+x), []int{4}},
		{"a.py", bytes.Repeat([]byte(x+"x\n"), 2), []int{1, 2}},
	} {
		if got := longLines(c.name, c.src); !slices.Equal(got, c.want) {
			t.Errorf("%s: long lines %v, want %v:\n%s", c.name, got, c.want, c.src)
		}
	}
}
