// Package house_test checks the house as a whole: which rooms may know which,
// and that every package says what it is for.
package house_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
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
	{"internal/simulate", []string{"internal/access", "internal/perfmodel", "internal/placement"}},
	{"internal/config/size", nil},
	{"internal/config/suggest", nil},
	{"internal/stats", []string{"internal/config/size", "internal/placement"}},
	{"internal/inputfile", nil},
	{"internal/config", []string{"internal/config/size", "internal/config/suggest", "internal/inputfile"}},
	{"internal/probe", nil},
	{"internal/dataset", []string{"internal/printable"}},
	{"internal/digest", nil},
	{"internal/dataset/sourcetest", []string{"internal/dataset"}},
	{"internal/dataset/retry", []string{"internal/dataset"}},
	{"internal/dataset/folder", []string{"internal/printable", "internal/dataset", "internal/config/size"}},
	{"internal/storageclass", []string{"internal/printable", "internal/config/size"}},
	{"internal/storageclass/arena", nil},
	{"internal/storageclass/storageclasstest", []string{"internal/digest", "internal/storageclass"}},
	{"internal/storageclass/memory", []string{"internal/storageclass", "internal/storageclass/arena", "internal/config/size"}},
	{"internal/storageclass/file", []string{"internal/digest", "internal/storageclass", "internal/storageclass/arena", "internal/config/size"}},
	{"internal/staging", nil},
	{"internal/protocol", []string{"internal/printable"}},
	{"internal/transform/pixels", nil},
	{"internal/transform/codec", []string{"internal/transform/pixels"}},
	{"internal/transform", []string{"internal/config/suggest", "internal/transform/pixels", "internal/transform/codec"}},
	{"internal/preprocess", []string{"internal/config/size", "internal/stats", "internal/transform"}},
	{"internal/prefetch", []string{"internal/printable", "internal/digest", "internal/access", "internal/dataset", "internal/stats", "internal/storageclass", "internal/staging"}},
	{"internal/failure", []string{"internal/printable", "internal/config", "internal/dataset", "internal/storageclass", "internal/staging", "internal/prefetch"}},
	{"internal/catalog", []string{"internal/config", "internal/dataset", "internal/failure", "internal/stats", "internal/storageclass", "internal/prefetch"}},
	{"internal/request/requesttest", nil},
	{"internal/request", []string{"internal/printable", "internal/access", "internal/config", "internal/dataset", "internal/transform", "internal/failure"}},
	{"internal/planner", []string{"internal/access", "internal/failure", "internal/placement"}},
	{"internal/lockstep", []string{"internal/invariants", "internal/failure"}},
	{"internal/admission", nil},
	{"internal/exchange", []string{"internal/digest", "internal/admission"}},
	{"internal/peer", []string{"internal/stats", "internal/exchange"}},
	{"internal/certificate", []string{"internal/inputfile"}},
	{"internal/cluster/clusterpb", nil},
	{"internal/cluster", []string{"internal/admission", "internal/cluster/clusterpb"}},
	{"internal/order", []string{"internal/invariants", "internal/printable", "internal/access", "internal/placement", "internal/dataset", "internal/failure", "internal/request", "internal/cluster"}},
	{"internal/coordinator", []string{"internal/audit", "internal/placement", "internal/dataset", "internal/stats", "internal/failure", "internal/lockstep", "internal/exchange", "internal/peer", "internal/certificate", "internal/cluster"}},
	{"internal/budget", []string{"internal/config", "internal/config/size", "internal/staging", "internal/failure", "internal/request"}},
	{"internal/job", []string{"internal/audit", "internal/stats", "internal/staging", "internal/prefetch", "internal/failure", "internal/request", "internal/lockstep", "internal/planner", "internal/order"}},
	{"internal/assembly", []string{"internal/config", "internal/config/size", "internal/preprocess", "internal/catalog", "internal/request", "internal/planner", "internal/order", "internal/coordinator", "internal/budget", "internal/job"}},
	{"internal/node", []string{"internal/audit", "internal/config", "internal/dataset", "internal/failure", "internal/catalog", "internal/request", "internal/stats", "internal/order", "internal/job", "internal/assembly"}},
	{"internal/scenario", []string{"internal/access", "internal/perfmodel", "internal/simulate", "internal/stats", "internal/config/size", "internal/config/suggest", "internal/dataset", "internal/inputfile"}},
	{"internal/report", []string{"internal/config/size", "internal/simulate"}},
	{"internal/report/prometheus", []string{"internal/stats"}},
	{"internal/daemon/socket", nil},
	{"internal/daemon", []string{"internal/daemon/socket", "internal/dataset", "internal/protocol", "internal/failure", "internal/request", "internal/prefetch", "internal/catalog", "internal/job", "internal/node", "internal/stats"}},
	{"internal/top", []string{"internal/printable", "internal/config/size", "internal/stats"}},
	{"internal/devcluster", nil},
	{"bench/throttle", nil},
	{"bench/exchange", []string{"internal/digest", "internal/dataset", "internal/certificate", "internal/exchange"}},
}

// testsOnly are arrows that tests alone may add: they assemble real parts.
var testsOnly = map[string][]string{
	"internal/dataset/retry":       {"internal/dataset/sourcetest"},
	"internal/dataset/folder":      {"internal/dataset/sourcetest", "internal/dataset/retry"},
	"internal/storageclass/memory": {"internal/storageclass/storageclasstest"},
	"internal/storageclass/file":   {"internal/storageclass/storageclasstest"},
	"internal/prefetch":            {"internal/storageclass/memory", "internal/storageclass/file"},
	"internal/catalog":             {"internal/storageclass/memory", "internal/storageclass/file"},
	"internal/request":             {"internal/request/requesttest"},
	"internal/order":               {"internal/request/requesttest"},
	"internal/coordinator":         {"internal/digest"},
	"internal/job":                 {"internal/dataset"},
	"internal/node":                {"internal/access", "internal/placement", "internal/storageclass", "internal/storageclass/memory", "internal/storageclass/file", "internal/dataset/folder", "internal/prefetch", "internal/request/requesttest", "internal/budget"},
	"internal/daemon":              {"internal/budget", "internal/assembly", "internal/config", "internal/dataset", "internal/storageclass", "internal/storageclass/memory", "internal/dataset/folder"},
}

// pure rooms compute: they do no I/O and know neither the network nor the system.
var pure = []string{"internal/printable", "internal/access", "internal/audit", "internal/perfmodel", "internal/placement", "internal/simulate", "internal/stats", "internal/lockstep"}

// forbidden packages, but for the rooms named.
var forbidden = map[string][]string{
	"github.com/prometheus/client_golang": {"internal/report/prometheus"},
	"github.com/spf13/cobra":              {"cmd/hdmlp"},
	"github.com/pelletier/go-toml/v2":     {"internal/config", "internal/scenario"},
	"gonum.org/v1/plot":                   {"internal/report"},
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
