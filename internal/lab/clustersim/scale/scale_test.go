package scale

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

var (
	sizes = flag.String("sizes", "4,16", "numbers of nodes, ascending")
	out   = flag.String("out", "", "a file that the figures are written to, as JSON")
)

// fewest is how many nodes a job has at least: one is killed, another one is silent, and there are
// more than node 0 besides. A node's address has room for most.
const (
	fewest = 4
	most   = 200 << 8
)

// numbersOf returns the numbers of nodes in a list with commas.
func numbersOf(text string) (all []int, err error) {
	for number := range strings.SplitSeq(text, ",") {
		nodes, err := strconv.Atoi(number)
		if err != nil || nodes < fewest || nodes > most {
			return nil, fmt.Errorf("SIZES=%s: %q; allowed are numbers of nodes of %d to %d, with commas",
				text, number, fewest, most)
		}
		if len(all) > 0 && nodes <= all[len(all)-1] {
			return nil, fmt.Errorf("SIZES=%s: %d; allowed are ascending numbers", text, nodes)
		}
		all = append(all, nodes)
	}
	return all, nil
}

// TestScale runs jobs of several sizes, and checks that they reach the goals, and that what node 0
// sends and receives grows with N log N at most. What it measured is written when all have run.
func TestScale(t *testing.T) {
	numbers, err := numbersOf(*sizes)
	if err != nil {
		t.Fatal(err)
	}
	runtime.MemProfileRate = 4096
	var all []*Figures
	for _, nodes := range numbers {
		synctest.Test(t, func(t *testing.T) {
			f, err := Run(nodes, func(p Phase) {
				t.Logf("%4d %-32s %6.2f s; of node 0: %6d messages, %7.2f MB sent, %6.2f MB received, "+
					"%5.1f MB of memory (another: %4.1f), at most %5.1f; %5.1f s of processors", nodes,
					p.Name, p.Seconds, p.Messages.Zero, mb(p.Bytes.Zero), mb(p.ReceivedBytes.Zero),
					mb(p.Memory.Zero), mb(p.Memory.Other), mb(p.Peak), p.Processor)
			})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, f)
			goals(t, f)
		})
		if t.Failed() {
			return
		}
	}
	for _, f := range all[1:] {
		growth(t, all[0], f)
	}
	if *out != "" && !t.Failed() {
		write(t, *out, all)
	}
}

// write writes what was measured to a file.
func write(t *testing.T, name string, all []*Figures) {
	t.Helper()
	text, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.WriteFile(name, append(text, '\n'), 0o666)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestWrongSizes: sizes that cannot be run are refused before anything runs.
func TestWrongSizes(t *testing.T) {
	for text, want := range map[string]string{
		"4,,16": `""; allowed are`, "0": `"0"; allowed are`, "-4": `"-4"`, "3": `"3"`, "": `""`,
		"16,4": "4; allowed are ascending", "4,4": "ascending", "4,x": `"x"`, "4,100000": `"100000"`,
	} {
		if _, err := numbersOf(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if got, err := numbersOf("4,16"); err != nil || !slices.Equal(got, []int{4, 16}) {
		t.Errorf("%v, %v", got, err)
	}
}

func mb(b int64) float64 { return float64(b) / 1e6 }

// goals checks what must hold for any number of nodes.
func goals(t *testing.T, f *Figures) {
	t.Helper()
	for _, p := range f.Phases {
		most := map[string]float64{
			"form": 10, "a question to all": 2, "a daemon is killed": 15, "a host is silent": 15,
		}[p.Name]
		if most > 0 && p.Seconds > most {
			t.Errorf("%d nodes, %s: it took %.1f s, allowed are %.0f", f.Nodes, p.Name, p.Seconds, most)
		}
		if used := max(p.Memory.Zero, p.Peak+p.Memory.Other); used > 200e6 {
			t.Errorf("%d nodes, %s: node 0 needs %.1f MB, allowed are 200", f.Nodes, p.Name, mb(used))
		}
	}
}

// growth checks how the messages of node 0 have grown, phase by phase; those that take their time
// whatever is sent say nothing.
func growth(t *testing.T, few, many *Figures) {
	t.Helper()
	ratio := float64(many.Nodes) * math.Log2(float64(many.Nodes)) /
		(float64(few.Nodes) * math.Log2(float64(few.Nodes)))
	for _, p := range many.Phases {
		i := slices.IndexFunc(few.Phases, func(q Phase) bool { return q.Name == p.Name })
		if i < 0 || p.Seconds > 1 || few.Phases[i].Seconds > 1 {
			continue
		}
		if grown := float64(p.Messages.Zero) / float64(few.Phases[i].Messages.Zero); grown > ratio {
			t.Errorf("%s: node 0 of %d nodes sends %.1f times the messages of one of %d; N log N grows "+
				"by %.1f", p.Name, many.Nodes, grown, few.Nodes, ratio)
		}
	}
}
