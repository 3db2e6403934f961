// Package interleave makes text of a program whose goroutines may yield before each of their
// statements, so that one that has begun a step and another one meet in the middle of it. In a
// process with one processor and without preemption they otherwise run until they block.
package interleave

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is the module whose packages get points.
const module = "github.com/hdmlp/hdmlp/internal/"

// own are the packages, and those below them, that simulate, or that points would only slow down.
var own = []string{"clustersim", "networktest", "invariants", "cluster/clusterpb"}

// Points returns a file's text with a point before each statement. It adds no line.
func Points(name, text string) (string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var at []int
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Doc != nil && slices.ContainsFunc(f.Doc.List, func(c *ast.Comment) bool {
			return strings.HasPrefix(c.Text, "//go:")
		}) {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			var list []ast.Stmt
			switch n := n.(type) {
			case *ast.BlockStmt:
				list = n.List
			case *ast.CaseClause:
				list = n.Body
			case *ast.CommClause:
				list = n.Body
			}
			for _, s := range list {
				switch s.(type) {
				case *ast.CaseClause, *ast.CommClause, *ast.EmptyStmt:
				default:
					at = append(at, set.Position(s.Pos()).Offset)
				}
			}
			return true
		})
	}
	if len(at) == 0 {
		return text, nil
	}
	slices.SortFunc(at, func(a, b int) int { return cmp.Compare(b, a) })
	for _, i := range at {
		text = text[:i] + "point__.Here(); " + text[i:]
	}
	after := set.Position(file.Name.End()).Offset
	return text[:after] + `; import point__ "` + module + `clustersim/interleave/point"` +
		text[after:], nil
}

// Overlay adds to replace, as the go command's -overlay has it, the files with points of all
// packages that a package of the module at root consists of; dir is where they are written.
func Overlay(root, pkg, tags, dir string, replace map[string]string) error {
	list := exec.Command("go", "list", "-deps", "-test", "-tags", tags,
		"-json=ImportPath,Dir,GoFiles", pkg)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for all := json.NewDecoder(strings.NewReader(string(out))); all.More(); {
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
		}
		if err := all.Decode(&p); err != nil {
			return err
		}
		short, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok || slices.ContainsFunc(own, func(o string) bool {
			return short == o || strings.HasPrefix(short, o+"/")
		}) || strings.Contains(p.ImportPath, " ") || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(cmp.Or(replace[path], path))
			if err != nil {
				return err
			}
			with, err := Points(path, string(text))
			if err != nil {
				return err
			}
			to := filepath.Join(dir, strings.ReplaceAll(short, "/", "-")+"-"+name)
			if have, err := os.ReadFile(to); err != nil || string(have) != with {
				if err := os.WriteFile(to, []byte(with), 0o644); err != nil {
					return err
				}
			}
			replace[path] = to
		}
	}
	return nil
}
