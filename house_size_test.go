package house_test

import (
	"bytes"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	mostCode    = 1500 // lines of a package that are neither blank, comment nor test
	mostImports = 10   // packages of this module that a package imports
	mostLines   = 400  // of a file
)

// large are the packages that may have more code: the program, which has a file per command, and
// three with one large subject.
var large = []string{"cmd/hdmlp", "internal/cluster", "internal/simulate", "internal/transform"}

func generated(src []byte) bool {
	return bytes.Contains(src, []byte("\n// Code generated ")) ||
		bytes.HasPrefix(src, []byte("// Code generated "))
}

// code returns the number of lines with a token.
func code(src []byte) int {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue
		}
		first := file.Line(pos)
		for k := range strings.Count(text, "\n") + 1 {
			lines[first+k] = true
		}
	}
}

func TestPackagesAreSmall(t *testing.T) {
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, name := range files {
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if generated(src) {
				continue
			}
			if n := bytes.Count(src, []byte("\n")); n > mostLines {
				t.Errorf("%s/%s has %d lines, %d are allowed: split it by subject", pkg,
					filepath.Base(name), n, mostLines)
			}
			if !strings.HasSuffix(name, "_test.go") {
				sum += code(src)
			}
		}
		if sum > mostCode && !slices.Contains(large, pkg) {
			t.Errorf("%s has %d lines of code, %d are allowed: split the package", pkg, sum,
				mostCode)
		}
		ours := 0
		for _, to := range p.Imports {
			if strings.HasPrefix(to, module) {
				ours++
			}
		}
		if ours > mostImports && pkg != "cmd/hdmlp" {
			t.Errorf("%s imports %d packages of this module, %d are allowed", pkg, ours,
				mostImports)
		}
	}
}

func TestLinesOfCodeAreThoseWithTokens(t *testing.T) {
	src := "// Package p.\npackage p\n\n/* a\nb */\nvar x = `1\n2\n` // c\n\nfunc f() " +
		"{\n\t// d\n}\n"
	if n := code([]byte(src)); n != 6 {
		t.Errorf("%d lines of code, want 6", n)
	}
}
