package policies

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

const root = "../../../"

// parsed returns the Go files below a directory of the repository, without tests and fixtures, by
// their paths in the repository.
func parsed(t *testing.T, dir string) map[string]*ast.File {
	files := map[string]*ast.File{}
	err := filepath.WalkDir(root+dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		files[strings.TrimPrefix(filepath.ToSlash(path), root)] = f
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files in %s: %v", len(files), dir, err)
	}
	return files
}

// TestEveryPolicyIsInTheTable checks that each type with a method Plan has a line in the table, or
// is what the options of one make of it.
func TestEveryPolicyIsInTheTable(t *testing.T) {
	var lines []string
	for _, p := range All() {
		lines = append(lines, strings.TrimPrefix(fmt.Sprintf("%T", p), "policies."))
		o, ok := p.(plan.Optional)
		if !ok {
			continue
		}
		for _, of := range o.Options() {
			if of.Kind == option.Switch {
				with := o.With(option.Values{of.Key: of.Default == "false"})
				lines = append(lines, strings.TrimPrefix(fmt.Sprintf("%T", with), "policies."))
			}
		}
	}
	for path, f := range parsed(t, "internal/plan/policies") {
		for _, d := range f.Decls {
			plan, ok := d.(*ast.FuncDecl)
			if !ok || plan.Recv == nil || plan.Name.Name != "Plan" {
				continue
			}
			if of, ok := plan.Recv.List[0].Type.(*ast.Ident); ok &&
				!slices.Contains(lines, of.Name) {
				t.Errorf("%s: policy %s has no line in the table", path, of.Name)
			}
		}
	}
}

// TestOnlyTheTableListsPolicies checks that the name of a policy appears only in its own file.
// Other code takes it from the table.
func TestOnlyTheTableListsPolicies(t *testing.T) {
	names := Names(All())
	// the staging buffer's name as well
	names = slices.DeleteFunc(names, func(name string) bool { return name == "staging" })
	for _, dir := range []string{"internal", "cmd"} {
		for path, f := range parsed(t, dir) {
			if strings.HasPrefix(path, "internal/plan/policies/") ||
				strings.HasSuffix(path, "test/"+filepath.Base(path)) {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if text, err := strconv.Unquote(l.Value); err == nil &&
						slices.Contains(names, text) {
						t.Errorf("%s names policy %q: use package policies instead", path, text)
					}
				}
				return true
			})
		}
	}
	quoted := regexp.MustCompile(`["'](` + strings.Join(names, "|") + `)["']`)
	python, err := filepath.Glob(root + "python/hdmlp/*.py")
	deeper, _ := filepath.Glob(root + "python/hdmlp/*/*.py")
	if err != nil || len(python) == 0 {
		t.Fatalf("no Python package: %v", err)
	}
	for _, path := range append(python, deeper...) {
		if found := quoted.FindString(text(t, strings.TrimPrefix(path, root))); found != "" {
			t.Errorf("%s names policy %s: the daemon has the list", path, found)
		}
	}
}

func text(t *testing.T, path string) string {
	b, err := os.ReadFile(root + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEveryPolicyIsDocumented checks that every policy has a row, those that the engine runs in
// OPERATIONS.md, those of the simulator alone in SIMULATOR.md, and that every row has a policy.
func TestEveryPolicyIsDocumented(t *testing.T) {
	for file, c := range map[string]struct {
		heading  string
		policies []plan.Policy
	}{
		"docs/OPERATIONS.md": {"\n### Who caches what\n", Engine()},
		"docs/SIMULATOR.md":  {"\n## Policies of the simulator\n", simulatorOnly()},
	} {
		_, section, ok := strings.Cut(text(t, file), c.heading)
		if !ok {
			t.Fatalf("%s has no section %q", file, strings.TrimSpace(c.heading))
		}
		section, _, _ = strings.Cut(section, "\n#")
		var rows []string
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)`( "+
			"\\(default\\))? \\| .{20,}").FindAllStringSubmatch(section, -1) {
			rows = append(rows, row[1])
			if (row[2] != "") != (row[1] == Default().Name()) {
				t.Errorf("%s: %s is the default, and the row of %s says %q", file, Default().Name(),
					row[1], row[2])
			}
		}
		for _, p := range c.policies {
			if !slices.Contains(rows, p.Name()) {
				t.Errorf("%s: policy %q has no row", file, p.Name())
			}
		}
		for _, name := range rows {
			if !slices.Contains(Names(c.policies), name) {
				t.Errorf("%s has a row for %q, which is not a policy there", file, name)
			}
		}
	}
	var without []string
	for _, p := range All() {
		if _, ok := p.(simulated.Original); !ok {
			without = append(without, "`"+p.Name()+"`")
		}
	}
	if want := "| policies that are not in the thesis | " + strings.Join(without, ", ") +
		" |"; !strings.Contains(text(t, "docs/SIMULATOR.md"), want) {
		t.Errorf("docs/SIMULATOR.md lacks %q", want)
	}
}
