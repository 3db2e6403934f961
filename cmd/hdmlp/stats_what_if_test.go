package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/report"
)

// TestWhatIfRefusesWrongInput before it connects to the daemon, with the key, the value and what is
// allowed.
func TestWhatIfRefusesWrongInput(t *testing.T) {
	for args, want := range map[string]string{
		"stats --what-if=8":                         `"8" is not KEY=VALUE; allowed keys: threads`,
		"stats --what-if ram=1GB":                   `"ram" is not a key; allowed: threads, memory`,
		"stats --what-if memory=64GB,nodes=none":    `nodes is "none"; allowed: a whole number`,
		"stats --what-if memory=64 --prometheus":    "mutually exclusive",
		"stats --job= --what-if memory=64":          "--job is empty",
		"stats --json --what-if cache=1TB@slow":     `cache is "1TB@slow"; allowed: a size`,
		"stats --what-if source=1,source=2 --job=x": "source is given twice",
	} {
		root := newRootCommand()
		root.SetArgs(strings.Fields(args))
		err := root.Execute()
		if !errors.As(err, new(inputError)) || exitCode(root, err) != 2 ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q in it", args, err, want)
		}
	}
}

// measuredJob returns a job on two nodes that hold 200 of 1000 MB each; the source gives both 10
// MB/s, and each trains on 25 MB/s. The network between them was not measured.
func measuredJob() *report.ClusterReport {
	c := &report.ClusterReport{Job: "train"}
	for n := range 2 {
		c.Nodes = append(c.Nodes, report.NodeReport{
			Node: n,
			Prediction: report.Prediction{Run: &remedy.Run{
				Known: model.Node{
					Compute: model.Value{Number: 25, Origin: model.Measured},
					Source:  model.GivenRate(5, 0),
					Network: model.GuessedPeer,
					Classes: []model.NodeClass{
						{Name: "memory", Read: model.GivenRate(5000, 0)},
					},
					Streams: 8,
				},
				Nodes: 2, Capacity: []int64{200e6}, Data: 1000e6, Epoch: 500e6, Sample: 1e5,
				Caches: true, Measured: 61.5,
			}},
		})
	}
	return c
}

func TestWhatIfAnswersBesideToday(t *testing.T) {
	const text = "memory=400MB,compute=50"
	changes, err := remedy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	a, unmeasured := whatIf([]*report.ClusterReport{measuredJob(), {Job: "new"}}, changes)
	if len(a.Jobs) != 1 || len(unmeasured) != 1 || unmeasured[0] != "new" {
		t.Fatalf("%+v, %v", a, unmeasured)
	}
	var out bytes.Buffer
	if err := printAnswer(&a.Jobs[0], text, &out); err != nil {
		t.Fatal(err)
	}
	want := `job train: what if memory=400MB,compute=50
epochs after the first one, by the model:

                                 today                then
             epoch            60.000 s            20.000 s
             stall            40.000 s            10.000 s
   from the source           572.2 MiB           190.7 MiB
             limit              source              source
              next   compute, 20.000 s   compute, 10.000 s

measured: 61.500 s an epoch

not measured, so that the prediction rests on a guess: network
`
	if got := trimmed(out.String()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// trimmed returns text without spaces at the ends of lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

func TestStatsListRemedies(t *testing.T) {
	c := measuredJob()
	all := c.Over(c.Nodes)
	var out bytes.Buffer
	if err := printCluster([]*report.ClusterReport{all}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nan epoch, by the model 60.000 s, would take\n" +
			"  20.000 s with memory=381.5 MiB per node instead of 190.7 MiB; limit: compute\n",
		"  20.000 s with a source of 30 MB/s instead of 10; limit: compute\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}
