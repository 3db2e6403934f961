// Package house_test checks the module as a whole: which packages may import which, their sizes,
// their comments and the width of lines.
package house_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hdmlp/hdmlp/"

// pure packages only compute: they do no I/O and use neither the network nor the operating system.
var pure = []string{
	"internal/printable", "internal/access", "internal/audit", "internal/perfmodel",
	"internal/placement", "internal/placement/builder", "internal/placement/simulated",
	"internal/placement/policies", "internal/simulate", "internal/words",
	"internal/stats", "internal/lockstep",
}

// forbidden packages may be imported only by the packages named.
var forbidden = map[string][]string{
	"github.com/prometheus/client_golang": {"internal/stats/prometheus"},
	"github.com/spf13/cobra":              {"cmd/hdmlp"},
	"github.com/pelletier/go-toml/v2": {
		"internal/config", "internal/environment", "internal/scenario",
	},
	"gonum.org/v1/plot": {
		"internal/drawing", "internal/drawing/drawingtest", "internal/simulate/render/page",
	},
	"github.com/hanwen/go-fuse/v2":    {"bench/throttle"},
	"google.golang.org/grpc":          {"bench/exchange"},
	"github.com/hashicorp/memberlist": {"internal/cluster"},
	"charm.land/bubbletea/v2":         {"internal/top"},
	"connectrpc.com/connect":          {"internal/cluster", "internal/cluster/clusterpb"},
	"golang.org/x/image/webp":         {"internal/transform/codec"},
	"github.com/vishvananda/netlink":  {"internal/devcluster"},
	"github.com/vishvananda/netns":    {"internal/devcluster"},
	"runtime/cgo":                     {},
	"C": {
		"internal/transform/pixels",
		"internal/transform/codec",
	},
}

type listed struct {
	ImportPath                         string
	Dir                                string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

func packages(t *testing.T) []listed {
	out, err := exec.Command("go", "list", "-json", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// TestImportsAreAllowed checks that packages import only packages above them, and only those
// listed.
func TestImportsAreAllowed(t *testing.T) {
	may, testsOnly := map[string][]string{}, map[string][]string{}
	for _, r := range entries(t, allowedInTests) {
		testsOnly[r.name] = r.may
	}
	var above []string
	for _, r := range entries(t, allowedImports) {
		for _, to := range r.may {
			if !slices.Contains(above, to) {
				t.Errorf("%s may import %s, which is not above it in allowedImports",
					r.name, to)
			}
		}
		may[r.name] = r.may
		above = append(above, r.name)
	}
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		allowed, known := may[pkg]
		if !known && pkg != "cmd/hdmlp" && len(p.GoFiles) > 0 {
			t.Errorf("%s is not listed: add a line to allowedImports in house_rooms_test.go, "+
				"below the packages that it imports, with their names", pkg)
		}
		check := func(imports, allowed []string, list string) {
			for _, to := range imports {
				to, ours := strings.CutPrefix(to, module)
				if ours && pkg != "cmd/hdmlp" && to != pkg && !slices.Contains(allowed, to) {
					t.Errorf("%s imports %s, which is not listed: add %s to the line of %s in %s "+
						"in house_rooms_test.go if the package is meant to import it", pkg, to,
						strings.TrimPrefix(to, "internal/"), strings.TrimPrefix(pkg, "internal/"),
						list)
				}
			}
		}
		check(p.Imports, allowed, "allowedImports")
		inTests := slices.Concat(allowed, testsOnly[pkg])
		check(p.TestImports, inTests, "allowedInTests")
		check(p.XTestImports, inTests, "allowedInTests")
	}
}

// TestForbiddenImports checks that restricted packages are imported only where allowed, and that
// pure packages are pure.
func TestForbiddenImports(t *testing.T) {
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			for banned, but := range forbidden {
				if (imported == banned || strings.HasPrefix(imported, banned+"/")) &&
					!slices.Contains(but, pkg) {
					t.Errorf("%s imports %s, which only %v may import", pkg, imported, but)
				}
			}
			if slices.Contains(pure, pkg) &&
				slices.Contains([]string{
					"net", "os", "syscall", "time", "log/slog",
					"golang.org/x/sys/unix",
				}, imported) {
				t.Errorf("%s imports %s, but has to be pure", pkg, imported)
			}
		}
	}
}

// TestSequentialPackagesStartNoGoroutines checks the packages that the Makefile tests without the
// race detector.
func TestSequentialPackagesStartNoGoroutines(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(makefile), "\nSEQUENTIAL := ")
	line, _, _ := strings.Cut(strings.ReplaceAll(rest, "\\\n", " "), "\n")
	if !found || line == "" {
		t.Fatal("the Makefile has no SEQUENTIAL packages")
	}
	for pkg := range strings.FieldsSeq(line) {
		files, err := filepath.Glob(filepath.Join(pkg, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no such package (%v)", pkg, err)
		}
		for _, name := range files {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				starts := false
				switch n := n.(type) {
				case *ast.GoStmt:
					starts = true
				case *ast.CallExpr: // of a sync.WaitGroup or an errgroup.Group
					method, ok := n.Fun.(*ast.SelectorExpr)
					starts = ok && method.Sel.Name == "Go"
				}
				if starts {
					t.Errorf("%s starts a goroutine: test the package with the race detector",
						set.Position(n.Pos()))
				}
				return true
			})
		}
	}
}

// TestEveryPackageHasOnePackageComment checks files without tests.
func TestEveryPackageHasOnePackageComment(t *testing.T) {
	for _, p := range packages(t) {
		comments := 0
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil,
				parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				comments++
			}
		}
		if len(p.GoFiles) > 0 && comments != 1 {
			t.Errorf("%s has %d package comments; it must have one", p.ImportPath, comments)
		}
	}
}
