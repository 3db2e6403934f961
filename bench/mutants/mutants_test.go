package main

import (
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/bench/mutants/equivalent"
	"github.com/hdmlp/hdmlp/bench/mutants/room"
)

const example = `package p

import "sync"

type T struct {
	mu sync.Mutex
	n  int
}

func (t *T) Take(most int) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := check(most); err != nil {
		return 0, err
	}
	for k := 0; k < most && t.n > 0; k++ {
		t.n = t.n-1
	}
	return most - t.n, nil
}

func check(n int) error {
	if n < 0 { // a comment
		return errNegative
	}
	return nil
}
`

func TestMutantsOfAFile(t *testing.T) {
	s, err := parse("p/p.go", example)
	if err != nil {
		t.Fatal(err)
	}
	s.mutate()
	var got []string
	for n, m := range s.mutants {
		m.id = n
		got = append(got, strings.TrimPrefix(m.Key, "p/p.go: "))
	}
	want := []string{
		"T.Take: unlocked: t.mu",
		"T.Take: never: if err != nil",
		"T.Take: error: return err",
		"T.Take: operand: k < most && t.n > 0 without k < most",
		"T.Take: operand: k < most && t.n > 0 without t.n > 0",
		"T.Take: bound: k < most",
		"T.Take: bound: t.n > 0",
		"T.Take: drop: t.n = t.n-1",
		"T.Take: one: t.n-1",
		"T.Take: swap: most - t.n",
		"check: never: if n < 0",
		"check: negate: if n < 0",
		"check: bound: n < 0",
		"check: error: return errNegative",
	}
	if !slices.Equal(got, want) {
		t.Errorf("mutants:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	text := s.render(nil)
	if strings.Count(text, "\n") != strings.Count(example, "\n") {
		t.Error("lines were added or removed")
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "", text, 0); err != nil {
		t.Errorf("%v:\n%s", err, text)
	}
	all := map[*Mutant]bool{}
	for _, m := range s.mutants {
		all[m] = true
	}
	if s.render(all) != example {
		t.Error("a file whose mutants are all discarded differs from the original")
	}
}

// TestPatchesAndEquivalents checks that every patch applies to the program as it is, and that every
// mutant of the list of equivalents is there.
func TestPatchesAndEquivalents(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plant(root, t.TempDir(), room.All())
	if err != nil {
		t.Fatal(err)
	}
	c := campaign{}
	if c.equivalents, err = equivalent.Read("equivalent.txt"); err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, m := range p.mutants {
		if keys[m.Key] {
			t.Errorf("two mutants are called %q", m.Key)
		}
		keys[m.Key] = true
	}
	for _, r := range p.rooms {
		if err := c.checkEquivalents([]room.Room{r}, p.mutants); err != nil {
			t.Error(err)
		}
	}
	const python = "/usr/bin/python3"
	for _, patch := range p.python {
		text, err := os.ReadFile(filepath.Join(root, patch.file))
		if err != nil {
			t.Fatal(err)
		}
		from, to, err := patch.find(string(text))
		if err == nil {
			mutated := patch.replaced(string(text), from, to)
			err = checkSyntax(python, patch, mutated)
		}
		if err != nil {
			t.Error(err)
		}
		for _, name := range patch.tests {
			if _, err := os.Stat(filepath.Join(root, "python/tests", name)); err != nil {
				t.Errorf("%s: %v", patch.where, err)
			}
		}
	}
}

// TestPatchesCompile: make mutants ends at a defect by hand that does not.
func TestPatchesCompile(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plant(root, t.TempDir(), room.All())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range p.mutants {
		p.discarded[m] = !m.Written
	}
	if err := p.write(); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-tags", tags, "-overlay", p.overlay()}
	for dir := range p.sources {
		args = append(args, "./"+dir)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// checkSyntax fails if a text is no program in Python: any test would find such a defect.
func checkSyntax(python string, p *patch, text string) error {
	cmd := exec.Command(python, "-c", "import ast, sys; ast.parse(sys.stdin.read())")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: the defect cannot be parsed: %w\n%s", p.where, err, out)
	}
	return nil
}

// TestRoom runs a room of a small module: some mutants are found, others are not, one hangs, and a
// second call runs nothing again.
func TestRoom(t *testing.T) {
	root := files(t, map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"p/p.go": `package p

func Sum(n int) (sum int) {
	for n > 0 {
		sum += n
		n--
	}
	return sum
}

func Same(a, b string) string { return "a" + b }

func unused() bool { return true }
`,
		"p/p_test.go": `package p

import "testing"

func TestSum(t *testing.T) {
	if Sum(3) < 6 || Same("a", "b") != "ab" {
		t.Fail()
	}
}
`,
		"bench/mutants/patches/p.txt": `value: the wrong letter
p/p.go
- "a" + b
+ b + b

loop: counts twice
p/p.go
- sum += n
+ sum += 2 * n
`,
	})
	r := room.Room{Name: "p", Packages: []string{"p"}}
	want := map[string]string{
		"by hand: the wrong letter":   "TestSum",
		"by hand: counts twice":       "", // the test is too weak
		"Sum: bound: n > 0":           "", // equivalent
		"Sum: drop: sum += n":         "TestSum",
		"Sum: drop: n--":              "a hang",
		"unused: result: return true": "",
	}
	for call := range 2 {
		results, err := readResults(filepath.Join(root, "results.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range results.Outcomes {
			if o.killed() && call == 1 {
				o.By += " before"
			}
		}
		c := campaign{root: root, out: filepath.Join(root, "build"), n: 100, results: results}
		c.patience = time.Second
		if err := c.group(context.Background(), r.Name, []room.Room{r}); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for key, o := range results.Outcomes {
			got[strings.TrimPrefix(key, "p/p.go: ")] = o.By
		}
		if !maps.Equal(got, want) {
			t.Errorf("call %d: %v, want %v", call, got, want)
		}
		if c.tallies[0].killed != 3 || c.tallies[0].survived != 3 {
			t.Errorf("call %d: %+v", call, c.tallies)
		}
		if err := results.write(); err != nil {
			t.Fatal(err)
		}
		for key, by := range want {
			if by != "" {
				want[key] += " before"
			}
		}
	}
}

// TestPython runs a room of a small package in Python, whose project puts the package itself first
// in the path: the tests run with a copy that has the defect.
func TestPython(t *testing.T) {
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(repository, ".venv/bin/python")); err != nil {
		t.Skip(err)
	}
	const tests = "import p\n\ndef test_same():\n    assert p.same('a', 'b') == 'ab'\n"
	root := files(t, map[string]string{
		"pyproject.toml":         "[tool.pytest.ini_options]\npythonpath = [\"python\"]\n",
		"python/p.py":            "def same(a, b):\n    c = a\n    return c + b\n",
		"python/tests/test_p.py": tests,
		"python/tests/test_q.py": "def test_other():\n    assert False\n",
		"bench/mutants/patches/python.txt": `value: the wrong letter
python/p.py
tests test_p.py
- c = a
- return c + b
+ c = b
+ return c + b

value: another copy
python/p.py
tests test_p.py
- c = a
+ c = str(a)

tests: fail even so
python/p.py
tests test_p.py test_q.py
- c = a
+ c = b
`,
	})
	err = os.Symlink(filepath.Join(repository, ".venv"), filepath.Join(root, ".venv"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := readResults(filepath.Join(root, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	for only, want := range map[string]string{
		"the wrong letter": "", "another copy": "",
		"fail even so": "test_q.py fails without any defect",
	} {
		c := campaign{root: root, out: filepath.Join(root, "build"), only: only, results: results}
		if err := c.group(t.Context(), "python",
			[]room.Room{{Name: "python"}}); (err != nil) != (want != "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", only, err, want)
		}
	}
	for about, by := range map[string]string{
		"the wrong letter": "python/tests/test_p.py::test_same", "another copy": "",
	} {
		if o := results.Outcomes["python/p.py: by hand: "+about]; o == nil || o.By != by {
			t.Errorf("%s: %+v, want to be found by %q", about, o, by)
		}
	}
}

// files makes a directory with files of these names and contents.
func files(t *testing.T, contents map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range contents {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
