package compare_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/compare"
)

// compared returns a comparison of policies, of which those in ran are measured as twice what is
// simulated.
func compared(t *testing.T, names, ran []string) *compare.Comparison {
	t.Helper()
	return comparedWith(t, work(), names, ran)
}

func comparedWith(t *testing.T, w compare.Work, names, ran []string) *compare.Comparison {
	t.Helper()
	k := compare.NewKept(compare.Settings{Epochs: w.Epochs, Nodes: w.Nodes})
	mb, share := compare.Part(nil, sizes(800), 800)
	c := &compare.Comparison{
		Title: "Policies on /data", Settings: k.Settings, Samples: 800, Of: 800, Shared: true,
		Facts: []compare.Fact{{Name: "dataset", Value: "/data"}}, Dir: "/out",
		Left: []compare.Left{{Policy: "pagecache", Why: strings.Repeat("for some reason ", 12)}},
	}
	for _, name := range names {
		c.Rows = append(c.Rows, compare.Row{Policy: name})
	}
	simulate := func() {
		if err := c.Simulate(t.Context(), &w, mb, share, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	simulate()
	for i, name := range names {
		for _, r := range ran {
			if s := c.Rows[i].Simulated; r == name && s != nil {
				c.Rows[i].Measured = &compare.Run{
					Policy: name, Runtime: 2 * s.Runtime, Stall: s.Stall, Epochs: make([]float64, 3),
					Tiers: s.Tiers, SourceMB: s.SourceMB, Seen: s.Seen, Distance: s.Distance,
					Before: s.Before, Opening: 0.25, Audited: true,
					Replayed: &compare.Replayed{Runtime: 1, Tiers: s.Tiers, SourceMB: 1},
				}
			}
		}
	}
	simulate() // with what follows from the runs
	return c
}

// TestPropertiesAreThoseOfTheThesis: table 2.1, for its approaches that are policies, on a source
// that is the bottleneck. Its authors' judgement of configuration independence is that none has it.
func TestPropertiesAreThoseOfTheThesis(t *testing.T) {
	for name, want := range map[string]struct{ dataset, nodes, storage, accuracy bool }{
		"staging":              {true, false, false, true}, // double buffering
		"deepio_ordered":       {true, true, false, true},
		"deepio_opportunistic": {false, true, false, true}, // the memory of both nodes holds all
		"sharded":              {false, true, false, false},
		"lbann_dynamic":        {false, true, false, true},
		"lbann_preloading":     {false, true, false, true},
		"cooperative":          {true, true, true, true},
		"frequency":            {true, true, true, true},
		"naive":                {true, false, false, true},
		"minio":                {true, false, true, true},
	} {
		row := compared(t, []string{name}, []string{name}).Rows[0]
		p := row.Properties
		got := struct{ dataset, nodes, storage, accuracy bool }{
			p.Dataset.Holds, p.Nodes.Holds, p.Configuration.Holds, p.Accuracy.Holds,
		}
		if got != want {
			t.Errorf("%s: %+v; want %+v: %+v", name, got, want, *p)
		}
		if early := row.Simulated.Before > 0; p.Ease.Holds == early {
			t.Errorf("%s takes %v s before training, and is easy: %v", name, row.Simulated.Before,
				p.Ease.Holds)
		}
	}
}

// TestAccuracyDependsOnMemory: an order of what memory holds is no full shuffle if that is a part.
func TestAccuracyDependsOnMemory(t *testing.T) {
	w := work()
	w.Capacity = []float64{20}
	names := []string{"deepio_opportunistic", "cooperative"}
	c := comparedWith(t, w, names, names)
	if p := c.Rows[0].Properties.Accuracy; p.Holds || !p.Known {
		t.Errorf("deepio_opportunistic: %+v", p)
	}
	if p := c.Rows[1].Properties.Accuracy; !p.Holds {
		t.Errorf("cooperative: %+v", p)
	}
	if best := c.Best(); best == nil || best.Policy != "cooperative" {
		t.Errorf("the best of those that keep the full shuffle is %+v", best)
	}
}

// TestOtherRanksOfTheSameBatchesAreAccurate: footnote b of table 2.1.
func TestOtherRanksOfTheSameBatchesAreAccurate(t *testing.T) {
	w := work()
	w.Capacity = []float64{20}
	c := comparedWith(t, w, []string{"locality"}, []string{"locality"})
	if p := c.Rows[0].Properties.Accuracy; p.Holds {
		t.Errorf("with batches of its own: %+v", p)
	}
	c.Rows[0].Measured.SameBatches = true
	mb, share := compare.Part(nil, sizes(800), 800)
	if err := c.Simulate(t.Context(), &w, mb, share, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if p := c.Rows[0].Properties.Accuracy; !p.Holds || !strings.HasSuffix(p.Value, " b") {
		t.Errorf("with those of the full shuffle: %+v", p)
	}
}

// TestTextFitsTheWidth, with all names and each column, and without what was not measured.
func TestTextFitsTheWidth(t *testing.T) {
	all := policies.Names(policies.All()[1:])
	c := compared(t, all, []string{"naive", "cooperative", "deepio_ordered"})
	for _, width := range []int{60, 80, 110, 120} {
		var b bytes.Buffer
		if err := c.Text(&b, compare.TextOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns of %d: %s", n, width, line)
			}
		}
		for _, want := range append([]string{
			"left source", "measured", "replay", "simulated", "perfect (bound)", "yes", "no ",
			"~", "for some reason", "-50 %", "node scalability", "accuracy",
		}, all...) {
			if !strings.Contains(b.String(), want) {
				t.Errorf("width %d: %q is missing in\n%s", width, want, b.String())
			}
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Error("it has colours")
		}
	}
	c.Interrupted = true
	if text := strings.Join(c.Summary(), "\n"); !strings.Contains(text,
		fmt.Sprintf("3 of %d policies ran to the end", len(all))) {
		t.Errorf("of an interrupted comparison it says %s", text)
	}
	ran := compared(t, []string{"naive"}, []string{"naive"})
	ran.Interrupted = true
	if text := ran.Summary()[0]; !strings.Contains(text, "not all were simulated") {
		t.Errorf("if only simulations are missing, it says %s", text)
	}
	if best := c.Best(); best == nil || best.Policy != "cooperative" &&
		best.Policy != "deepio_ordered" {
		t.Errorf("the best is %+v", best)
	}
}

// TestWriteMakesASelfContainedPage, with its plots, and JSON that has what was measured.
func TestWriteMakesASelfContainedPage(t *testing.T) {
	c := compared(t, []string{"naive", "cooperative"}, []string{"naive"})
	c.Rows[1].Failed = "the network <failed>"
	dir := filepath.Join(t.TempDir(), "out")
	names, err := c.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"index.html", "result.json", "runtime.png", "runtime.svg", "reads.png", "reads.svg",
	} {
		if info, err := os.Stat(filepath.Join(dir, want)); err != nil || info.Size() == 0 {
			t.Errorf("%s of %v: %v", want, names, err)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	if links := regexp.MustCompile(`(src|href)="|url\(|@import`).FindAll(page, -1); links != nil {
		t.Errorf("the page needs other files: %q", links)
	}
	for _, want := range []string{"cooperative", "&lt;failed&gt;", "table 2.1", "<svg"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page has no %q", want)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back compare.Comparison
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if back.Rows[0].Measured.Runtime != c.Rows[0].Measured.Runtime || back.Rows[1].Measured != nil ||
		back.Rows[1].Failed == "" || back.Perfect == nil {
		t.Errorf("the JSON is %s", data)
	}
}

// TestStepsTakeTheirTime, although samples differ in size.
func TestStepsTakeTheirTime(t *testing.T) {
	c := compared(t, []string{"naive"}, nil)
	if got, want := c.Perfect.Runtime, 100*3*0.01; got < want*0.999 || got > want*1.001 {
		t.Errorf("300 steps of 10 ms take %v s", got)
	}
}

// TestStallIsTheRuntimeLessTheComputation, also where something is loaded before training.
func TestStallIsTheRuntimeLessTheComputation(t *testing.T) {
	for _, row := range compared(t, []string{"cooperative", "deepio_ordered"}, nil).Rows {
		s := row.Simulated
		if got, want := s.Stall, s.Runtime-100*3*0.01; math.Abs(got-want) > 1e-3*s.Runtime {
			t.Errorf("%s: of %v s, of which %v are before training, %v are stall; want %v",
				row.Policy, s.Runtime, s.Before, got, want)
		}
	}
}

// TestUnableSaysWhyWithBothNumbers: what there is, and what the policy needs.
func TestUnableSaysWhyWithBothNumbers(t *testing.T) {
	w := work()
	mb, share := compare.Part(nil, sizes(2000), 2000)
	able, unable, err := compare.Unable(w.Job(mb, share), policies.All()[1:])
	if err != nil {
		t.Fatal(err)
	}
	if len(able)+len(unable) != len(policies.All())-1 || len(unable) == 0 {
		t.Fatalf("%d can run, %d cannot", len(able), len(unable))
	}
	sizes := regexp.MustCompile(`[0-9.]+ Mi?B`)
	for _, l := range unable {
		if n := len(sizes.FindAllString(l.Why, -1)); strings.HasPrefix(l.Policy, "lbann") && n != 2 {
			t.Errorf("%s: it says %d sizes: %s", l.Policy, n, l.Why)
		}
	}
}

func TestSimulateEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := work()
	mb, share := compare.Part(nil, sizes(800), 800)
	c := &compare.Comparison{Rows: []compare.Row{{Policy: "naive"}}}
	if err := c.Simulate(ctx, &w, mb, share, func(string) {}); err == nil {
		t.Error("no error")
	}
}
