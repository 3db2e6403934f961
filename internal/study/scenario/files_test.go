package scenario_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/study/scenario"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	head, rest, _ := strings.Cut(small, "[dataset]")
	_, tail, _ := strings.Cut(rest, "[job]")
	with := func(source, order string) (*scenario.Scenario, error) {
		f, err := scenario.New(filepath.Join(dir, "s.toml"),
			[]byte(head+"[dataset]\n"+source+"\n[job]\n"+order+tail))
		if err != nil {
			t.Fatal(err)
		}
		return f.Scenario(overrides(t, []string{"job.epochs=2", "global_batch_size=2"})...)
	}
	write("sizes.txt", "# MB\n0.5\n\n 1.25\n2e0\n")
	write("order.txt", "0 1 2\n2,0,1\n")
	s, err := with(`sizes = "sizes.txt"`, `order = "order.txt"`+"\n")
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.Job()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{0.5, 1.25, 2}, job.Sizes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]int32{{0, 1, 2}, {2, 0, 1}}, job.Order); diff != "" {
		t.Error(diff)
	}
	if s.Bytes() != 3.75 {
		t.Errorf("%v MB, want 3.75", s.Bytes())
	}
	for text, want := range map[string]string{
		"0 1 2\n":          "the order of 1 epochs",
		"0 1 2\n0 1 1\n":   "line 2 has sample 1 twice",
		"0 1 2\n0 1 3\n":   "line 2 has sample 3 twice, or there is no such sample",
		"0 1 2\n0 1\n":     "line 2 has 2 samples",
		"0 1 2\n0 one 2\n": `line 2 has "one"`,
	} {
		write("bad.txt", text)
		if _, err := with(`sizes = "sizes.txt"`, `order = "bad.txt"`+"\n"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("order %q: got %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"0.5\n-1\n": `line 2 is "-1"`,
		"":          "no samples",
		"0.5\ninf":  "not a size",
		"x":         "a number of MB above 0 per line",
	} {
		write("bad.txt", text)
		if _, err := with(`sizes = "bad.txt"`, ""); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("sizes %q: got %v, want %q", text, err, want)
		}
	}
	if _, err := with("sizes = \"sizes.txt\"\nmu = 3", ""); err == nil ||
		!strings.Contains(err.Error(), "dataset.mu is 3") {
		t.Errorf("sizes beside mu: got %v", err)
	}
	testIndex(t, dir, with, write)
}

func testIndex(t *testing.T, dir string,
	with func(source, order string) (*scenario.Scenario, error), write func(name, text string),
) {
	image, err := os.ReadFile(filepath.Join("..", "..", "source", "testdata", "index-1.golden"))
	if err != nil {
		t.Fatal(err)
	}
	write("data.index", string(image))
	index, err := source.Decode(strings.NewReader(string(image)), int64(len(image)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := with(`index = "data.index"`, "")
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.Job()
	if err != nil {
		t.Fatal(err)
	}
	if len(job.Sizes) != index.Len() || math.Abs(s.Bytes()-float64(index.Bytes())/1e6) > 1e-5 {
		t.Errorf("%d samples, %v MB; want %v", len(job.Sizes), s.Bytes(), index)
	}
	other := append([]byte{}, image...)
	other[8] = 99
	write("other.index", string(other))
	if _, err := with(`index = "other.index"`, ""); err == nil ||
		!strings.Contains(err.Error(), "version") ||
		!strings.Contains(err.Error(), "hdmlp dataset") {
		t.Errorf("an index of another version: got %v", err)
	}
	write("cut.index", string(image[:len(image)/2]))
	if _, err := with(`index = "cut.index"`, ""); err == nil ||
		!strings.Contains(err.Error(), "dataset.index") {
		t.Errorf("half an index: got %v", err)
	}
}
