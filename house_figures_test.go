package house_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tree is another checkout whose figures are printed: go test . -run Figures -v -args -tree DIR.
var tree = flag.String("tree", ".", "the checkout whose figures TestFigures prints")

// personified matches words by which a comment has code talk, listen or want.
var personified = regexp.MustCompile(`\b(told|tells|hears|knows|wants|says|lets go)\b`)

// literal matches a text that does say something: an error, a message, a paper.
var literal = regexp.MustCompile(`\b([Aa]n?|[Tt]he|[Ii]ts) (\w+ |node.s own )?` +
	`(header|message|error|text|line|file|report|paper|thesis|sentence|warning|comment|document)s?` +
	`( \(?\w+\)?)? says\b|\.md says`)

// vague are names that say how a controller feels instead of what its constant is.
var vague = regexp.MustCompile(`^(beat|often|calm|settles|bears)$`)

// figures are what is counted of the Go files of a tree, without generated ones.
type figures struct {
	names, packages, arrows, floors int // below internal/, of files that are not tests
	lines, code, constants          int // of files that are not tests
	comments                        int // lines of comments, tests included
	packed, persons, unclear        []string
}

// count adds a file's figures.
func (f *figures) count(name string, src []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	at := func(n ast.Node) string { return fmt.Sprint(set.Position(n.Pos())) }
	for _, group := range file.Comments {
		for _, c := range group.List {
			text := strings.Split(c.Text, "\n")
			f.comments += len(text)
			for _, line := range text {
				if personified.MatchString(literal.ReplaceAllString(line, "")) {
					f.persons = append(f.persons, at(c)+": "+line)
				}
			}
		}
	}
	test := strings.HasSuffix(name, "_test.go")
	if !test {
		f.lines += strings.Count(string(src), "\n")
		f.code += code(src)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if len(n.Lhs) > 2 && len(n.Rhs) > 1 {
				f.packed = append(f.packed, at(n))
			}
		case *ast.ValueSpec:
			if len(n.Names) > 2 && len(n.Values) > 1 {
				f.packed = append(f.packed, at(n))
			}
			for _, name := range n.Names {
				if vague.MatchString(name.Name) {
					f.unclear = append(f.unclear, at(name)+": "+name.Name)
				}
			}
		case *ast.GenDecl:
			if n.Tok == token.CONST && !test && strings.HasPrefix(name, "internal/") {
				f.constants += numbers(n)
			}
		}
		return true
	})
	return nil
}

// numbers returns how many constants of a declaration have a value with a number.
func numbers(d *ast.GenDecl) (n int) {
	for _, s := range d.Specs {
		for _, value := range s.(*ast.ValueSpec).Values {
			found := false
			ast.Inspect(value, func(x ast.Node) bool {
				l, ok := x.(*ast.BasicLit)
				found = found || ok && (l.Kind == token.INT || l.Kind == token.FLOAT)
				return true
			})
			if found {
				n++
			}
		}
	}
	return n
}

// imports counts names, packages, arrows between names, and floors: the longest way of imports.
func (f *figures) imports(dir string) error {
	list := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports", "./internal/...")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return err
	}
	imports, arrows := map[string][]string{}, map[string]bool{}
	names := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			return err
		}
		if len(p.GoFiles) == 0 {
			continue
		}
		from, _ := district(p.ImportPath)
		names[from] = true
		f.packages++
		for _, path := range p.Imports {
			to, ours := district(path)
			if !ours {
				continue
			}
			imports[p.ImportPath] = append(imports[p.ImportPath], path)
			if to != from {
				arrows[from+" "+to] = true
			}
		}
	}
	f.names, f.arrows = len(names), len(arrows)
	heights := map[string]int{}
	var height func(pkg string) int
	height = func(pkg string) int {
		if heights[pkg] == 0 {
			heights[pkg] = 1
			for _, below := range imports[pkg] {
				heights[pkg] = max(heights[pkg], 1+height(below))
			}
		}
		return heights[pkg]
	}
	for pkg := range imports {
		f.floors = max(f.floors, height(pkg))
	}
	return nil
}

// measure returns the figures of the files that git has in a directory.
func measure(dir string) (*figures, error) {
	list := exec.Command("git", "ls-files", "*.go")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	f := &figures{}
	for name := range strings.FieldsSeq(string(out)) {
		src, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if generated(src) || slices.Contains(strings.Split(name, "/"), "testdata") {
			continue
		}
		if err := f.count(name, src); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// anys are the uses of Any in Python.
var anys = regexp.MustCompile(`\bAny\b`)

// pages describes the Python package and ARCHITECTURE.md of a tree.
func pages(dir string) (string, error) {
	list := exec.Command("git", "ls-files", "python/hdmlp/*.py")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return "", err
	}
	modules := strings.Fields(string(out))
	lines, found := 0, 0
	for _, name := range modules {
		src, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		lines += strings.Count(string(src), "\n")
		found += len(anys.FindAll(src, -1))
	}
	page, err := os.ReadFile(filepath.Join(dir, "ARCHITECTURE.md"))
	return fmt.Sprintf("%d modules of Python, %d lines, %.1f Any of 1,000 (%d); "+
		"ARCHITECTURE.md: %d words", len(modules), lines, 1000*float64(found)/float64(lines), found,
		len(strings.Fields(string(page)))), err
}

// TestFigures prints the figures by which the layout is judged:
// go test . -run TestFigures -v -args -tree DIR.
func TestFigures(t *testing.T) {
	f, err := measure(*tree)
	if err == nil {
		err = f.imports(*tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	python, err := pages(*tree)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("internal/: %d names, %d packages, %d arrows between names, %d floors, %d constants",
		f.names, f.packages, f.arrows, f.floors, f.constants)
	t.Logf("Go without tests: %d lines, %d of them code", f.lines, f.code)
	t.Logf("%d packed assignments, %.1f personified of 1,000 lines of comments (%d of %d)",
		len(f.packed), 1000*float64(len(f.persons))/float64(f.comments), len(f.persons), f.comments)
	t.Log(python)
	if testing.Verbose() && *places {
		t.Log(strings.Join(slices.Concat(f.packed, f.persons, f.unclear), "\n"))
	}
}

// TestAssignmentsAndWords: no assignment has more than two values, unless they are one call's
// results; names and comments describe things in the field's words.
func TestAssignmentsAndWords(t *testing.T) {
	f, err := measure(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range f.packed {
		t.Errorf("%s: assign more than two values in lines of their own", at)
	}
	for _, at := range f.unclear {
		t.Errorf("%s: name a constant by its quantity, such as checkInterval", at)
	}
	if most := f.comments * 5 / 1000; len(f.persons) > most {
		t.Errorf("%d lines of comments have code talk or want, %d are allowed:\n%s", len(f.persons),
			most, strings.Join(f.persons, "\n"))
	}
}

var places = flag.Bool("places", false, "TestFigures prints where the words and assignments are")
