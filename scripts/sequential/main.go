// Sequential lists the packages whose tests run no two goroutines of this module's at a time. The
// race detector finds nothing in them and makes them many times slower, so the Makefile tests them
// without it. All others it tests with it: -raced lists these.
//
// A package is sequential if none of its files, tests included, starts a goroutine, and if no
// package of this module that these files import, directly or not, does. Those of `joining` count
// as if they started none.
//
// Usage: go run ./scripts/sequential [-raced] [-why]
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// tags are those with which tests run.
const tags = "invariants"

// joining packages start goroutines that have ended when the call returns that started them, and
// that share nothing with the caller but what the call reads. Their own tests run with the race
// detector; those of a package that imports them need not.
var joining = []string{
	"internal/plan/access",  // Stream.Orders: an order each
	"internal/plan/builder", // Builder.Finish: an epoch each
}

// concurrent packages run code of their callers in goroutines of their own.
var concurrent = []string{
	"net/http", "net/http/httptest", "os/signal", "testing/synctest",
	"golang.org/x/sync/errgroup",
}

// starters are methods and functions that run a function in another goroutine, or let a test run
// beside others.
var starters = []string{
	"Go", "Parallel", "RunParallel", "AfterFunc", "AddCleanup", "SetFinalizer", "HandleFunc",
}

// A listed package is one of `go list`.
type listed struct {
	ImportPath                                   string
	Dir                                          string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports           []string
	Module                                       struct{ Path string }
}

// module is what is known of all packages, by import path.
type module struct {
	packages map[string]*listed
	reasons  map[string]string // why a package's product starts goroutines; empty: it does not
}

func main() {
	raced := flag.Bool("raced", false, "list the packages to test with the race detector instead")
	why := flag.Bool("why", false, "say of each why it is to be tested with the race detector")
	flag.Parse()
	if err := list(os.Stdout, *raced, *why); err != nil {
		fmt.Fprintln(os.Stderr, "sequential:", err)
		os.Exit(1)
	}
}

func list(w io.Writer, raced, why bool) error {
	cmd := exec.Command("go", "list", "-tags", tags, "-json", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	m := module{packages: map[string]*listed{}, reasons: map[string]string{}}
	var paths []string
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		m.packages[p.ImportPath] = &p
		paths = append(paths, p.ImportPath)
	}
	for _, name := range joining {
		if m.packages[path.Join(m.packages[paths[0]].Module.Path, name)] == nil {
			return fmt.Errorf("there is no package %s: change `joining`", name)
		}
	}
	for _, path := range paths {
		reason, err := m.reason(m.packages[path])
		switch {
		case err != nil:
			return err
		case why:
			fmt.Fprintf(w, "%s: %s\n", path, reason)
		case raced == (reason != ""):
			fmt.Fprintln(w, path)
		}
	}
	return nil
}

// reason returns why a package's tests may run several goroutines; "" if they do not.
func (m *module) reason(p *listed) (string, error) {
	files := slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles)
	if start, err := inFiles(p.Dir, files); start != "" || err != nil {
		return start, err
	}
	for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		if imported == p.ImportPath {
			continue
		}
		if start, err := m.product(imported); start != "" || err != nil {
			return start, err
		}
	}
	return "", nil
}

// product returns where a package, or one that it imports, starts goroutines outside of tests.
func (m *module) product(path string) (string, error) {
	p := m.packages[path]
	if p == nil { // not of this module
		return "", nil
	}
	if reason, ok := m.reasons[path]; ok {
		return reason, nil
	}
	reason, err := "", error(nil)
	if !slices.Contains(joining, strings.TrimPrefix(path, p.Module.Path+"/")) {
		reason, err = inFiles(p.Dir, slices.Concat(p.GoFiles, p.CgoFiles))
	}
	for _, imported := range p.Imports {
		if reason == "" && err == nil {
			reason, err = m.product(imported)
		}
	}
	m.reasons[path] = reason
	return reason, err
}

// inFiles returns where one of the files starts a goroutine.
func inFiles(dir string, names []string) (string, error) {
	for _, name := range names {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		if start := inFile(set, f); start != "" {
			return start, nil
		}
	}
	return "", nil
}

// inFile returns where a file starts a goroutine, or "".
func inFile(set *token.FileSet, f *ast.File) string {
	start := ""
	found := func(n ast.Node, what string) {
		if start == "" {
			start = fmt.Sprintf("%s: %s", set.Position(n.Pos()), what)
		}
	}
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err == nil && slices.Contains(concurrent, path) {
			found(i, "imports "+path)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found(n, "go")
		case *ast.SelectorExpr: // also where it is not called at once
			if slices.Contains(starters, n.Sel.Name) {
				found(n, n.Sel.Name)
			}
		}
		return true
	})
	return start
}
