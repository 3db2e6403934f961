package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// program lists the files of the program, Go and Python, without tests.
func programFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, top := range []string{"cmd", "internal", "python/hdmlp"} {
		err := filepath.WalkDir(filepath.Join("../..", top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" {
				return cmpOr(err, fs.SkipDir)
			}
			if ext := filepath.Ext(path); ext == ".py" || ext == ".go" && !strings.HasSuffix(path, "_test.go") {
				files = append(files, strings.TrimPrefix(path, "../../"))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func cmpOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

var pythonText = regexp.MustCompile(`"([^"\n]*)"|'([^'\n]*)'`)

// texts are the string literals of a file, and identifiers the functions that it names.
func texts(t *testing.T, path string) (literals, identifiers map[string]bool) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	literals, identifiers = map[string]bool{}, map[string]bool{}
	if filepath.Ext(path) == ".py" {
		for _, m := range pythonText.FindAllSubmatch(data, -1) {
			literals[string(m[1])+string(m[2])] = true
		}
		return literals, identifiers
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, data, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				literals[text] = true
			}
		case *ast.Ident:
			identifiers[n.Name] = true
		}
		return true
	})
	return literals, identifiers
}

// homonyms are files in which the name of a kind means something else.
var homonyms = map[string]string{
	"internal/config/parameters.go": "the key memory",
	"internal/config/derive.go":     "the key memory",
	"internal/request/agree.go":     "the key memory",
	"internal/job/claims.go":        "the key memory",
	"internal/config/classes.go":    "memory, the machine's",
	"internal/probe/probe.go":       "a controller of control groups",
	"cmd/hdmlp/config.go":           "the flag --file",
	"cmd/hdmlp/dataset.go":          "a count of files",
	"python/hdmlp/_arguments.py":    "the key memory, as test_kinds.py compares it with the program's",
	"python/hdmlp/_oom.py":          "a controller of control groups",
	"python/hdmlp/job.py":           "a place in a report",
}

func TestKindsAreNamedWhereTheyLiveAlone(t *testing.T) {
	home := map[string]string{}
	for _, k := range sources() {
		home[k.Name] = "internal/dataset/" + k.Name + "/"
	}
	for _, k := range describedClasses() {
		home[k.Name] = "internal/storageclass/" + k.Name + "/"
	}
	used := map[string]bool{}
	for _, path := range programFiles(t) {
		literals, _ := texts(t, path)
		for _, name := range slices.Sorted(maps.Keys(home)) {
			switch {
			case !literals[name] || strings.HasPrefix(path, home[name]):
			case homonyms[path] != "":
				used[path] = true
			case path == "python/hdmlp/data.py" && name == "folder": // the class for it
			default:
				t.Errorf("%s names the kind %q: a list of kinds of its own? Take it from cmd/hdmlp/kinds.go", path, name)
			}
		}
	}
	for path := range homonyms {
		if !used[path] {
			t.Errorf("%s names no kind any more: take it from the list of homonyms", path)
		}
	}
}

func TestTransformsAreNamedInTheirFilesAlone(t *testing.T) {
	files := map[string][]string{}
	for _, path := range programFiles(t) {
		if filepath.Ext(path) != ".go" {
			continue
		}
		literals, _ := texts(t, path)
		for _, name := range transform.Names() {
			if literals[name] {
				files[name] = append(files[name], path)
			}
		}
	}
	for _, name := range transform.Names() {
		if len(files[name]) != 1 || filepath.Dir(files[name][0]) != "internal/transform" {
			t.Errorf("the transform %s is named in %q, and should be in one file of internal/transform", name, files[name])
		}
	}
}

func TestCommandsAreNamedInTheirFilesAndOneTable(t *testing.T) {
	constructor := regexp.MustCompile(`^new[A-Z]\w*Command$`)
	files := map[string][]string{}
	for _, path := range programFiles(t) {
		_, identifiers := texts(t, path)
		for name := range identifiers {
			if constructor.MatchString(name) {
				files[name] = append(files[name], path)
			}
		}
	}
	delete(files, "newRootCommand")
	if len(files) < len(commands()) {
		t.Fatalf("%d commands, and constructors %v", len(commands()), files)
	}
	for name, in := range files {
		if len(in) != 2 {
			t.Errorf("%s is named in %q: a command has a file, and a line in one table", name, in)
		}
	}
}

func TestKindsAreDescribed(t *testing.T) {
	formats, err := os.ReadFile("../../docs/FORMATS.md")
	if err != nil {
		t.Fatal(err)
	}
	operations, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range sources() {
		if k.Help == "" || k.Open == nil || !strings.Contains(string(formats), "| `"+k.Name+"` |") {
			t.Errorf("the source %q has no help, cannot be opened, or has no row in docs/FORMATS.md", k.Name)
		}
	}
	for _, k := range describedClasses() {
		if k.Help == "" || k.New == nil || !strings.Contains(string(operations), "| `"+k.Name+"` |") {
			t.Errorf("the storage class %q has no help, cannot be made, or has no row in docs/OPERATIONS.md", k.Name)
		}
		for key, kind := range map[string]config.Kind{k.SizeKey: config.Size, k.PathKey: config.Path} {
			if p, known := config.Lookup(key); key != "" && (!known || p.Kind != kind) {
				t.Errorf("the storage class %q is asked for by the key %q, which is no %s", k.Name, key, kind)
			}
		}
		if k.PathKey != "" && !k.Directory {
			t.Errorf("the storage class %q has no directory, and a key for one: %s", k.Name, k.PathKey)
		}
	}
	for _, name := range transform.Names() {
		if !regexp.MustCompile("(?m)^\\| (`\\w+`, )*`" + name + "`").Match(formats) {
			t.Errorf("the transform %s has no row in docs/FORMATS.md", name)
		}
	}
}

func TestKindsLists(t *testing.T) {
	var text, asJSON bytes.Buffer
	if err := runKinds(false, &text); err != nil {
		t.Fatal(err)
	}
	if err := runKinds(true, &asJSON); err != nil {
		t.Fatal(err)
	}
	var v kindsView
	if err := json.Unmarshal(asJSON.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Sources) != len(sources()) || len(v.Classes) != len(describedClasses()) || !slices.Equal(v.Transforms, transform.Names()) {
		t.Errorf("%+v", v)
	}
	for _, k := range slices.Concat(v.Sources, v.Classes) {
		if !strings.Contains(text.String(), k.Name) || !strings.Contains(text.String(), k.Help) {
			t.Errorf("%q and %q are not in %s", k.Name, k.Help, &text)
		}
	}
}
