// Package house_test checks the module as a whole: which districts may import which, sizes,
// comments and the width of lines.
package house_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/scanner"
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

// districts lists the names in internal/, each with those that it may import: below it in the
// house, that is above it in this list. ARCHITECTURE.md says what each is for.
var districts = []struct{ name, may string }{
	{"lib", ""},
	{"model", "lib"},
	{"store", "lib"},
	{"source", "model lib"},
	{"plan", "model lib"},
	{"report", "plan model lib"},
	{"transform", "report model lib"},
	{"engine", "store source report plan model lib"},
	{"peers", "report model lib"},
	{"node", "peers engine transform report plan source store model lib"},
	{"study", "peers transform report plan source store model lib"},
	{"daemon", "node engine source report lib"},
	{"lab", "daemon node peers engine transform report plan source store model lib"},
}

const (
	mostLines = 600  // of a file
	mostCode  = 3000 // lines of a package that are neither blank, comment nor test
)

// large are packages that may have more code: the program, which has a file per command.
var large = []string{"cmd/hdmlp"}

// impure lists what packages of pure districts do not import.
var impure = []string{"net", "os", "os/exec", "syscall", "log/slog", "golang.org/x/sys/unix"}

// pure districts and packages compute: they do no I/O, and use neither the network nor the
// operating system. clocks may use package time besides.
var (
	pure = []string{
		"plan", "model", "lib/human", "report", "node/lockstep", "study/simulate",
		"study/sizes", "study/policyfile",
	}
	mixed  = []string{"report/top", "report/prometheus", "study/simulate/render"}
	clocks = []string{"model/meter", "model/routing", "model/tune"}
)

// forbidden packages may be imported only by the packages named.
var forbidden = map[string][]string{
	"github.com/prometheus/client_golang": {"internal/report/prometheus"},
	"github.com/spf13/cobra":              {"cmd/hdmlp"},
	"github.com/pelletier/go-toml/v2": {
		"internal/node/config", "internal/model/envfile", "internal/study/scenario",
	},
	"gonum.org/v1/plot": {
		"internal/study/drawing", "internal/study/drawing/drawingtest",
		"internal/study/simulate/render",
	},
	"github.com/hanwen/go-fuse/v2":    {"bench/throttle"},
	"google.golang.org/grpc":          {"bench/exchange"},
	"github.com/hashicorp/memberlist": {"internal/peers/cluster/gossip"},
	"charm.land/bubbletea/v2":         {"internal/report/top"},
	"connectrpc.com/connect": {
		"internal/peers/cluster/session", "internal/peers/cluster/clusterpb",
	},
	"golang.org/x/image/webp":        {"internal/transform/codec"},
	"github.com/vishvananda/netlink": {"internal/lab/devcluster"},
	"github.com/vishvananda/netns":   {"internal/lab/devcluster"},
	"runtime/cgo":                    {},
	"C":                              {"internal/transform/pixels", "internal/transform/codec"},
}

type listed struct {
	ImportPath                         string
	Dir                                string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// district returns the district of a package of internal/, and whether it is one.
func district(path string) (name string, ours bool) {
	below, ours := strings.CutPrefix(path, module+"internal/")
	name, _, _ = strings.Cut(below, "/")
	return name, ours
}

// TestDistrictsImportOnlyThoseBelow checks the imports of files that are not tests. What tests
// import is checked by the compiler: there is no circle.
func TestDistrictsImportOnlyThoseBelow(t *testing.T) {
	may := map[string][]string{}
	for _, d := range districts {
		for _, to := range strings.Fields(d.may) {
			if may[to] == nil {
				t.Errorf("%s may import %s, which is not above it in the list of districts", d.name, to)
			}
		}
		may[d.name] = append(strings.Fields(d.may), d.name)
	}
	for _, p := range packages(t) {
		from, ours := district(p.ImportPath)
		if ours && may[from] == nil && len(p.GoFiles) > 0 {
			t.Errorf("%s is in no district: internal/ has %d names and no others "+
				"(ARCHITECTURE.md, Districts)", p.ImportPath, len(districts))
		}
		for _, path := range p.Imports {
			to, theirs := district(path)
			switch {
			case !theirs:
			case ours && !slices.Contains(may[from], to):
				t.Errorf("%s imports %s: %s may import only %v (the list of districts in house_test.go)",
					p.ImportPath, path, from, may[from])
			case !ours && to == "lab" && strings.HasPrefix(p.ImportPath, module+"cmd/") &&
				path != module+"internal/lab/devcluster":
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, path)
			}
		}
	}
}

// within reports whether a package is one of these, or below one of them.
func within(pkg string, of []string) bool {
	return slices.ContainsFunc(of, func(o string) bool {
		return pkg == o || strings.HasPrefix(pkg, o+"/")
	})
}

// TestForbiddenImports checks that restricted packages are imported only where allowed, and that
// pure packages are pure.
func TestForbiddenImports(t *testing.T) {
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		below := strings.TrimPrefix(pkg, "internal/")
		for _, imported := range p.Imports {
			for banned, but := range forbidden {
				if within(imported, []string{banned}) && !slices.Contains(but, pkg) {
					t.Errorf("%s imports %s, which only %v may import", pkg, imported, but)
				}
			}
			if within(below, pure) && !within(below, mixed) && (slices.Contains(impure, imported) ||
				imported == "time" && !within(below, clocks)) {
				t.Errorf("%s imports %s, but has to be pure", pkg, imported)
			}
		}
	}
}

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

func TestFilesAndPackagesAreSmall(t *testing.T) {
	for _, p := range packages(t) {
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
				t.Errorf("%s has %d lines, %d are allowed: split it by subject", name, n, mostLines)
			}
			if !strings.HasSuffix(name, "_test.go") {
				sum += code(src)
			}
		}
		if sum > mostCode && !slices.Contains(large, strings.TrimPrefix(p.ImportPath, module)) {
			t.Errorf("%s has %d lines of code, %d are allowed: split the package", p.ImportPath, sum,
				mostCode)
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

// largest is how many bytes a file may have that git has: all are text, or pictures of the docs.
const largest = 1 << 20

// TestNoBinaries checks that git has no large file, such as a program that was built in the tree.
func TestNoBinaries(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(name)
		if err == nil && info.Size() > largest {
			t.Errorf("%s has %d bytes, more than %d", name, info.Size(), largest)
		}
	}
}
