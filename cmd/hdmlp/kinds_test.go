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

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// programFiles lists the files of the program, Go and Python, without tests.
func programFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, top := range []string{"cmd", "internal", "python/hdmlp"} {
		err := filepath.WalkDir(filepath.Join("../..", top),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() && d.Name() == "testdata" {
					return cmpOr(err, fs.SkipDir)
				}
				if ext := filepath.Ext(path); ext == ".py" ||
					ext == ".go" && !strings.HasSuffix(path, "_test.go") {
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

var (
	pythonText = regexp.MustCompile(`"([^"\n]*)"|'([^'\n]*)'`)
	pythonKind = regexp.MustCompile(`\bkind\b["']?\s*(?:[=!]=|[=:]|in)[\s(\[{]*["'](\w+)["']`)
)

// quoted holds the string literals of a file, those of them that are kinds judging by the code
// around them, and the file's identifiers.
type quoted struct{ literals, kinds, identifiers map[string]bool }

func wordsOf(t *testing.T, path string) quoted {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	w := quoted{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	if filepath.Ext(path) == ".py" {
		for _, m := range pythonText.FindAllSubmatch(data, -1) {
			w.literals[string(m[1])+string(m[2])] = true
		}
		for _, m := range pythonKind.FindAllSubmatch(data, -1) {
			w.kinds[string(m[1])] = true
		}
		return w
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, data, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, ok := literal(n); ok {
				w.literals[text] = true
			}
		case *ast.Ident:
			w.identifiers[n.Name] = true
		case *ast.BinaryExpr: // class.Kind == "file"
			w.kind(n.X, n.Y)
			w.kind(n.Y, n.X)
		case *ast.KeyValueExpr: // Kind: "file"
			w.kind(n.Key, n.Value)
		case *ast.SwitchStmt: // switch class.Kind { case "file":
			for _, clause := range n.Body.List {
				for _, value := range clause.(*ast.CaseClause).List {
					w.kind(n.Tag, value)
				}
			}
		}
		return true
	})
	return w
}

// kind records value if it is a literal and name indicates a kind.
func (w quoted) kind(name, value ast.Expr) {
	if selector, ok := name.(*ast.SelectorExpr); ok {
		name = selector.Sel
	}
	if id, ok := name.(*ast.Ident); ok && strings.EqualFold(id.Name, "kind") {
		if text, ok := literal(value); ok {
			w.kinds[text] = true
		}
	}
}

func literal(e ast.Expr) (string, bool) {
	b, ok := e.(*ast.BasicLit)
	if !ok || b.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(b.Value)
	return text, err == nil
}

// homonyms lists where the name of a kind means something else. Names that are also configuration
// keys need no entry: they count only next to something called a kind.
var homonyms = map[string]string{
	"cmd/hdmlp/config.go file":          "the flag --file",
	"cmd/hdmlp/dataset.go file":         "a count of files",
	"cmd/hdmlp/dataset_records.go file": "a count of files",
	"cmd/hdmlp/learn_report.go file":    "a count of files",
	"cmd/hdmlp/dataset_view.go file":    "a count of files",
	"cmd/hdmlp/place.go file":           "a count of files",
	"python/hdmlp/data.py folder":       "the class for folders",

	"python/hdmlp/torch/_engine/content.py webdataset": "the library's module",

	"python/hdmlp/_records/lmdb.py lmdb":             "the class for LMDB environments",
	"python/hdmlp/_records/opens.py file":            "the argument of open",
	"python/hdmlp/_records/records.py records":       "the base of lists of records",
	"python/hdmlp/_records/webdataset.py webdataset": "the class for tar shards",
}

func TestKindsAreNamedOnlyWhereTheyAreDefined(t *testing.T) {
	home := map[string]string{}
	for _, k := range sources() {
		home[k.Name] = "internal/source/" + k.Name + "/"
	}
	for kind, format := range map[string]string{
		"webdataset": "tar", "lmdb": "lmdb", "records": "manifest",
	} {
		home[kind] = "internal/source/formats/" + format + "/"
	}
	for _, k := range describedClasses() {
		home[k.Name] = "internal/store/" + k.Name + "/"
	}
	used := map[string]bool{}
	for _, path := range programFiles(t) {
		w := wordsOf(t, path)
		for _, name := range slices.Sorted(maps.Keys(home)) {
			named := w.literals[name]
			if _, isKey := config.Lookup(name); isKey {
				named = w.kinds[name]
			}
			switch {
			case !named || strings.HasPrefix(path, home[name]):
			case homonyms[path+" "+name] != "":
				used[path+" "+name] = true
			default:
				t.Errorf("%s names the kind %q; instead of a list of its own it should use "+
					"cmd/hdmlp/kinds.go", path, name)
			}
		}
	}
	for where := range homonyms {
		if !used[where] {
			t.Errorf("%s: the name is gone; remove the entry from homonyms", where)
		}
	}
}

func TestTransformsAreNamedOnlyInTheirFiles(t *testing.T) {
	files := map[string][]string{}
	for _, path := range programFiles(t) {
		// Operations of policies have names of their own, of which some are those of transforms.
		if filepath.Ext(path) != ".go" || filepath.Base(filepath.Dir(path)) == "policy" {
			continue
		}
		w := wordsOf(t, path)
		for _, name := range transform.Names() {
			if w.literals[name] {
				files[name] = append(files[name], path)
			}
		}
	}
	for _, name := range transform.Names() {
		if len(files[name]) != 1 || !strings.HasPrefix(files[name][0], "internal/transform/") {
			t.Errorf("the transform %s is named in %q, and should be in one file below "+
				"internal/transform", name, files[name])
		}
	}
}

func TestCommandsAreNamedOnlyInTheirFilesAndOneTable(t *testing.T) {
	constructor := regexp.MustCompile(`^new[A-Z]\w*Command$`)
	files := map[string][]string{}
	for _, path := range programFiles(t) {
		w := wordsOf(t, path)
		for name := range w.identifiers {
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

func TestKindsHaveHelpAndDocumentation(t *testing.T) {
	formats, err := os.ReadFile("../../docs/FORMATS.md")
	if err != nil {
		t.Fatal(err)
	}
	operations, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	semantics, err := os.ReadFile("../../docs/SEMANTICS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range sources() {
		if k.Help == "" || k.Open == nil {
			t.Errorf("the source %q lacks Help or Open: set both in its Kind", k.Name)
		}
		if row := "| `" + k.Name + "` |"; !strings.Contains(string(formats), row) {
			t.Errorf("the source %q is not described: add a row %q to the table of sources in "+
				"docs/FORMATS.md", k.Name, row+" ...")
		}
	}
	checkSourceOptions(t)
	for _, k := range describedClasses() {
		if k.Help == "" || k.New == nil {
			t.Errorf("the storage class %q lacks Help or New: set both in its Kind", k.Name)
		}
		if row := "| `" + k.Name + "` |"; !strings.Contains(string(operations), row) {
			t.Errorf("the storage class %q is not described: add a row %q to the table of storage "+
				"classes in docs/OPERATIONS.md", k.Name, row+" ...")
		}
		checkOptions(t, k)
	}
	ours := []string{"Reshape", "ScaleShift16", "Pixels", "Ragged"} // which torchvision does not have
	for _, name := range transform.Names() {
		if !regexp.MustCompile("(?m)^\\| (`\\w+`, )*`" + name + "`").Match(formats) {
			t.Errorf("the transform %s is not described: add a row to the table of transforms in "+
				"docs/FORMATS.md", name)
		}
		if !strings.Contains(string(semantics), name) && !slices.Contains(ours, name) {
			t.Errorf("docs/SEMANTICS.md does not name the transform %s: add a row for what it draws, "+
				"or add it to what equals torchvision", name)
		}
	}
}

// checkSourceOptions checks the options of the kinds of sources, as checkOptions those of storage
// classes.
func checkSourceOptions(t *testing.T) {
	t.Helper()
	types := map[string]option.Kind{
		source.ExtensionsKey: option.List, source.IndexDirKey: option.Path,
		source.RescanKey: option.Switch,
	}
	for _, k := range sources() {
		for _, o := range k.Options {
			p, known := config.Lookup(o.Job)
			switch kind := types[o.Key]; {
			case o.Help == "" || o.Kind == "":
				t.Errorf("the option %q of the source %q lacks Help or Kind", o.Key, k.Name)
			case kind != "" && o.Kind != kind:
				t.Errorf("the option %q of the source %q is of type %s, not %s", o.Key, k.Name, o.Kind,
					kind)
			case o.Job != "" && (!known || p.Kind != o.Kind):
				t.Errorf("the source %q names the key %q, which is not of type %s", k.Name, o.Job,
					o.Kind)
			}
			if _, _, err := o.Read(o.Default); err != nil && !o.Required {
				t.Errorf("the default of a source: %v", err)
			}
		}
	}
}

// checkOptions checks the options of a storage class: those with keys of the same meaning in all
// kinds are of the same type, and a key of a job is one of the configuration, of the option's type.
func checkOptions(t *testing.T, k store.Kind) {
	t.Helper()
	if !k.Has(store.CapacityKey) {
		t.Errorf("the storage class %q lacks the option %q", k.Name, store.CapacityKey)
	}
	if !slices.ContainsFunc(k.Options, func(o store.Option) bool { return o.Required }) {
		t.Errorf("the storage class %q requires no option: nothing says whether a job has one", k.Name)
	}
	types := map[string]option.Kind{
		store.CapacityKey: option.Size, store.PathKey: option.Path, store.ReserveKey: option.Size,
	}
	for _, o := range k.Options {
		p, known := config.Lookup(o.Job)
		switch kind := types[o.Key]; {
		case o.Help == "" || o.Kind == "":
			t.Errorf("the option %q of the storage class %q lacks Help or Kind", o.Key, k.Name)
		case kind != "" && o.Kind != kind:
			t.Errorf("the option %q of the storage class %q is of type %s, not %s", o.Key, k.Name,
				o.Kind, kind)
		case o.Job != "" && (!known || p.Kind != o.Kind):
			t.Errorf("the storage class %q names the key %q, which is not of type %s", k.Name,
				o.Job, o.Kind)
		case o.Shared && o.Job == "" || !o.Shared && o.Example == "":
			t.Errorf("the option %q of the storage class %q lacks Job or Example", o.Key, k.Name)
		}
	}
}

func TestKindsListsAllKinds(t *testing.T) {
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
	if len(v.Sources) != len(sources()) || len(v.Classes) != len(describedClasses()) ||
		!slices.Equal(v.Transforms, transform.Names()) {
		t.Errorf("%+v", v)
	}
	for _, k := range slices.Concat(v.Sources, v.Classes) {
		if !strings.Contains(text.String(), k.Name) || !strings.Contains(text.String(), k.Help) {
			t.Errorf("%q and %q are not in %s", k.Name, k.Help, &text)
		}
		for _, o := range k.Options {
			if !strings.Contains(text.String(), o.Key) || !strings.Contains(text.String(), o.Help) {
				t.Errorf("the option %q of %q is not in %s", o.Key, k.Name, &text)
			}
		}
	}
	for i, k := range sources() {
		if len(v.Sources[i].Options) != len(k.Options) {
			t.Errorf("%q has %d options, and %d are listed", k.Name, len(k.Options),
				len(v.Sources[i].Options))
		}
	}
}
