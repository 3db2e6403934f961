// Package house_test checks the house as a whole: which rooms may know which,
// and that every package says what it is for.
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

// rooms lists, for every room, the rooms of ours that it may import. Arrows run
// down only: a room may import those that stand above it in this list, of
// them those that are named. A new room, or a new arrow, is a new word here.
var rooms = []struct {
	name string
	may  []string
}{
	{"internal/invariants", nil},
	{"internal/printable", nil},
	{"internal/access", nil},
	{"internal/audit", []string{"internal/access"}},
	{"internal/perfmodel", nil},
	{"internal/placement", []string{"internal/access", "internal/perfmodel"}},
	{"internal/placement/builder", []string{"internal/access", "internal/placement"}},
	{"internal/placement/simulated", []string{"internal/access", "internal/placement"}},
	{"internal/placement/policies", []string{"internal/access", "internal/placement", "internal/placement/builder", "internal/placement/simulated"}},
	{"internal/placement/policytest", []string{"internal/access", "internal/perfmodel", "internal/placement", "internal/placement/simulated"}},
	{"internal/placement/policytest/example", []string{"internal/access", "internal/placement", "internal/placement/builder"}},
	{"internal/simulate", []string{"internal/access", "internal/perfmodel", "internal/placement", "internal/placement/simulated", "internal/placement/policies"}},
	{"internal/size", nil},
	{"internal/suggest", nil},
	{"internal/stats", []string{"internal/placement", "internal/size"}},
	{"internal/inputfile", nil},
	{"internal/stats/prometheus", []string{"internal/stats"}},
	{"internal/probe", nil},
	{"internal/dataset", []string{"internal/printable"}},
	{"internal/digest", nil},
	{"internal/dataset/sourcetest", []string{"internal/dataset"}},
	{"internal/dataset/tree", []string{"internal/dataset"}},
	{"internal/dataset/retry", []string{"internal/dataset"}},
	{"internal/dataset/folder/indexfile", []string{"internal/size", "internal/dataset", "internal/dataset/tree"}},
	{"internal/dataset/folder", []string{"internal/printable", "internal/dataset", "internal/dataset/tree", "internal/dataset/folder/indexfile"}},
	{"internal/storageclass", []string{"internal/printable", "internal/size"}},
	{"internal/config", []string{"internal/placement/policies", "internal/size", "internal/suggest", "internal/inputfile", "internal/storageclass"}},
	{"internal/storageclass/arena", []string{"internal/invariants"}},
	{"internal/storageclass/storageclasstest", []string{"internal/digest", "internal/storageclass"}},
	{"internal/storageclass/memory", []string{"internal/invariants", "internal/size", "internal/storageclass", "internal/storageclass/arena"}},
	{"internal/storageclass/file/disk", []string{"internal/storageclass"}},
	{"internal/storageclass/file", []string{"internal/invariants", "internal/size", "internal/digest", "internal/storageclass", "internal/storageclass/arena", "internal/storageclass/file/disk"}},
	{"internal/staging", []string{"internal/invariants"}},
	{"internal/protocol", []string{"internal/printable"}},
	{"internal/transform/pixels", nil},
	{"internal/transform/codec", []string{"internal/transform/pixels"}},
	{"internal/transform", []string{"internal/suggest", "internal/transform/pixels", "internal/transform/codec"}},
	{"internal/networktest", nil},
	{"internal/transform/runner", []string{"internal/size", "internal/stats", "internal/transform"}},
	{"internal/cache/cachetest", []string{"internal/dataset", "internal/storageclass", "internal/storageclass/memory", "internal/storageclass/file"}},
	{"internal/cache", []string{"internal/invariants", "internal/printable", "internal/stats", "internal/dataset", "internal/digest", "internal/storageclass"}},
	{"internal/stage", []string{"internal/invariants", "internal/access", "internal/stats", "internal/dataset", "internal/staging", "internal/cache"}},
	{"internal/failure", []string{"internal/printable", "internal/dataset", "internal/storageclass", "internal/config", "internal/staging", "internal/cache"}},
	{"internal/catalog", []string{"internal/invariants", "internal/stats", "internal/dataset", "internal/storageclass", "internal/config", "internal/cache", "internal/failure"}},
	{"internal/request/requesttest", nil},
	{"internal/request", []string{"internal/printable", "internal/access", "internal/dataset", "internal/config", "internal/transform", "internal/failure"}},
	{"internal/planner", []string{"internal/access", "internal/placement", "internal/placement/policies", "internal/failure"}},
	{"internal/lockstep", []string{"internal/invariants", "internal/failure"}},
	{"internal/admission", nil},
	{"internal/identity", []string{"internal/inputfile"}},
	{"internal/exchange/wire", []string{"internal/digest"}},
	{"internal/exchange/link", []string{"internal/invariants", "internal/digest", "internal/identity", "internal/exchange/wire"}},
	{"internal/exchange", []string{"internal/invariants", "internal/digest", "internal/admission", "internal/identity", "internal/exchange/wire", "internal/exchange/link"}},
	{"internal/breaker", []string{"internal/stats", "internal/exchange"}},
	{"internal/cluster/clusterpb", nil},
	{"internal/cluster", []string{"internal/invariants", "internal/admission", "internal/identity", "internal/cluster/clusterpb"}},
	{"internal/scenario", []string{"internal/access", "internal/perfmodel", "internal/placement", "internal/placement/policies", "internal/simulate", "internal/suggest", "internal/stats", "internal/inputfile", "internal/dataset"}},
	{"internal/simulate/render/words", nil},
	{"internal/simulate/render", []string{"internal/placement/policies", "internal/simulate", "internal/simulate/render/words"}},
	{"internal/simulate/render/rendertest", []string{"internal/simulate", "internal/simulate/render"}},
	{"internal/simulate/render/page", []string{"internal/placement/policies", "internal/simulate/render/words", "internal/simulate/render"}},
	{"internal/order", []string{"internal/invariants", "internal/printable", "internal/access", "internal/placement", "internal/dataset", "internal/failure", "internal/request", "internal/cluster"}},
	{"internal/job", []string{"internal/audit", "internal/stats", "internal/staging", "internal/cache", "internal/stage", "internal/failure", "internal/request", "internal/planner", "internal/lockstep", "internal/order"}},
	{"internal/coordinator", []string{"internal/audit", "internal/placement", "internal/stats", "internal/dataset", "internal/failure", "internal/lockstep", "internal/identity", "internal/exchange", "internal/breaker", "internal/cluster"}},
	{"internal/budget", []string{"internal/size", "internal/config", "internal/staging", "internal/failure", "internal/request"}},
	{"internal/assembly", []string{"internal/size", "internal/config", "internal/transform/runner", "internal/catalog", "internal/request", "internal/planner", "internal/order", "internal/job", "internal/coordinator", "internal/budget"}},
	{"internal/node", []string{"internal/audit", "internal/stats", "internal/dataset", "internal/config", "internal/failure", "internal/catalog", "internal/request", "internal/order", "internal/job", "internal/assembly"}},
	{"internal/daemon/socket", nil},
	{"internal/daemon", []string{"internal/stats", "internal/dataset", "internal/protocol", "internal/stage", "internal/failure", "internal/catalog", "internal/request", "internal/job", "internal/node", "internal/daemon/socket"}},
	{"internal/top", []string{"internal/printable", "internal/size", "internal/stats"}},
	{"internal/devcluster", nil},
	{"bench/throttle", nil},
	{"bench/exchange", []string{"internal/digest", "internal/identity", "internal/exchange"}},
}

// testsOnly are arrows that tests alone may add: they assemble real parts.
var testsOnly = map[string][]string{
	"internal/placement":                    {"internal/placement/policies", "internal/placement/policytest"},
	"internal/placement/builder":            {"internal/placement/policytest"},
	"internal/placement/policies":           {"internal/perfmodel", "internal/placement/policytest"},
	"internal/placement/policytest/example": {"internal/perfmodel", "internal/placement/policytest", "internal/simulate"},
	"internal/dataset/folder/indexfile":     {"internal/dataset/folder"},
	"internal/dataset/folder":               {"internal/dataset/sourcetest", "internal/dataset/retry"},
	"internal/storageclass/memory":          {"internal/storageclass/storageclasstest"},
	"internal/storageclass/file":            {"internal/storageclass/storageclasstest"},
	"internal/cache":                        {"internal/storageclass/memory", "internal/cache/cachetest"},
	"internal/stage":                        {"internal/digest", "internal/storageclass", "internal/storageclass/memory", "internal/cache/cachetest"},
	"internal/catalog":                      {"internal/storageclass/memory", "internal/storageclass/file"},
	"internal/request":                      {"internal/request/requesttest"},
	"internal/cluster":                      {"internal/digest", "internal/networktest", "internal/exchange"},
	"internal/simulate/render":              {"internal/simulate/render/rendertest"},
	"internal/simulate/render/page":         {"internal/simulate/render/rendertest"},
	"internal/order":                        {"internal/request/requesttest"},
	"internal/job":                          {"internal/dataset"},
	"internal/coordinator":                  {"internal/digest"},
	"internal/node":                         {"internal/access", "internal/placement", "internal/placement/policies", "internal/storageclass", "internal/storageclass/memory", "internal/storageclass/file", "internal/networktest", "internal/stage", "internal/request/requesttest", "internal/budget"},
	"internal/daemon":                       {"internal/storageclass", "internal/storageclass/memory", "internal/budget", "internal/assembly"},
}

// pure rooms compute: they do no I/O and know neither the network nor the system.
var pure = []string{"internal/printable", "internal/access", "internal/audit", "internal/perfmodel", "internal/placement", "internal/placement/builder", "internal/placement/simulated", "internal/placement/policies", "internal/simulate", "internal/simulate/render/words", "internal/stats", "internal/lockstep"}

// forbidden packages, but for the rooms named.
var forbidden = map[string][]string{
	"github.com/prometheus/client_golang": {"internal/stats/prometheus"},
	"github.com/spf13/cobra":              {"cmd/hdmlp"},
	"github.com/pelletier/go-toml/v2":     {"internal/config", "internal/scenario"},
	"gonum.org/v1/plot":                   {"internal/simulate/render/page"},
	"github.com/hanwen/go-fuse/v2":        {"bench/throttle"},
	"google.golang.org/grpc":              {"bench/exchange"},
	"github.com/hashicorp/memberlist":     {"internal/cluster"},
	"charm.land/bubbletea/v2":             {"internal/top"},
	"connectrpc.com/connect":              {"internal/cluster", "internal/cluster/clusterpb"},
	"golang.org/x/image/webp":             {"internal/transform/codec"},
	"github.com/vishvananda/netlink":      {"internal/devcluster"},
	"github.com/vishvananda/netns":        {"internal/devcluster"},
	"runtime/cgo":                         {},
	"C":                                   {"internal/transform/pixels", "internal/transform/codec"},
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

// TestArrows: arrows run down, and only where they are drawn.
func TestArrows(t *testing.T) {
	may := map[string][]string{}
	var above []string
	for _, r := range rooms {
		for _, to := range r.may {
			if !slices.Contains(above, to) {
				t.Errorf("%s may import %s, which does not stand above it: that arrow runs up", r.name, to)
			}
		}
		may[r.name] = r.may
		above = append(above, r.name)
	}
	for _, p := range packages(t) {
		room := strings.TrimPrefix(p.ImportPath, module)
		allowed, known := may[room]
		if !known && room != "cmd/hdmlp" && len(p.GoFiles) > 0 {
			t.Errorf("%s is a room that nobody has drawn: add it to the list, with its arrows", room)
		}
		check := func(imports, allowed []string) {
			for _, to := range imports {
				to, ours := strings.CutPrefix(to, module)
				if ours && room != "cmd/hdmlp" && to != room && !slices.Contains(allowed, to) {
					t.Errorf("%s imports %s: that arrow is not drawn", room, to)
				}
			}
		}
		check(p.Imports, allowed)
		inTests := slices.Concat(allowed, testsOnly[room])
		check(p.TestImports, inTests)
		check(p.XTestImports, inTests)
	}
}

// TestForbidden: some packages are for one room only, and pure rooms are pure.
func TestForbidden(t *testing.T) {
	for _, p := range packages(t) {
		room := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			for banned, but := range forbidden {
				if (imported == banned || strings.HasPrefix(imported, banned+"/")) && !slices.Contains(but, room) {
					t.Errorf("%s imports %s, which is for %v alone", room, imported, but)
				}
			}
			if slices.Contains(pure, room) && slices.Contains([]string{"net", "os", "syscall", "time", "log/slog", "golang.org/x/sys/unix"}, imported) {
				t.Errorf("%s imports %s, and is to be pure", room, imported)
			}
		}
	}
}

// TestSequentialRoomsStartNoGoroutines: the rooms that the Makefile tests without the race detector hold nothing for it.
func TestSequentialRoomsStartNoGoroutines(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(makefile), "\nSEQUENTIAL := ")
	line, _, _ := strings.Cut(rest, "\n")
	if !found || line == "" {
		t.Fatal("the Makefile names no SEQUENTIAL rooms")
	}
	for room := range strings.FieldsSeq(line) {
		files, err := filepath.Glob(filepath.Join(room, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no such room (%v)", room, err)
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
					t.Errorf("%s starts a goroutine: test the room with the race detector", set.Position(n.Pos()))
				}
				return true
			})
		}
	}
}

// TestPackageComments: every package has exactly one package comment.
func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		comments := 0
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				comments++
			}
		}
		if len(p.GoFiles) > 0 && comments != 1 {
			t.Errorf("%s has %d package comments, and needs one", p.ImportPath, comments)
		}
	}
}
