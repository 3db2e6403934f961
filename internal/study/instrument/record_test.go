package instrument

import (
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/analysis"
)

// taken returns the record of connections with these lines each.
func taken(t *testing.T, connections ...string) *Record {
	t.Helper()
	r := new(Record)
	for _, text := range connections {
		var rank *Rank
		err := lines(strings.NewReader(text), func(line []byte) error {
			_, err := r.take(line, &rank)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

const rank0 = `{"event": "loader", "pid": 7, "rank": 0, "ranks": 2, "kind": "torch", "text": "L",
"iterable": false, "workers": 2, "batch": 4, "samples": 100, "keys": {"memory": "1GB"}}
{"event": "note", "about": "", "text": "another loader"}
{"event": "as_is", "iterations": [[0.1, 0.3, 4, 1], [0.2, 0.2, 4, 1]]}
{"event": "phase", "name": "training"}
{"event": "training", "iterations": [[0.2, null, 4], [0.2, 0.1, 4]]}
{"event": "preparation", "workers": 2, "deliveries": [[0.5, 4], [0.5, 4]]}
{"event": "files", "paths": ["/a", "/b"], "sizes": [100000, 300000], "count": 2, "samples": 200}
{"event": "transforms", "transforms": [{"name": "ToTensor"}], "left": ""}
{"event": "end"}`

func joined(text string) string { return strings.ReplaceAll(text, "\",\n", "\", ") }

func TestWhatRanksMeasuredIsTheJobs(t *testing.T) {
	first := joined(rank0)
	second := strings.Replace(first, `"rank": 0`, `"rank": 1`, 1)
	r := taken(t, `{"event": "python", "version": "3.11", "pid": 7}`, first)
	if r.ended() {
		t.Error("one of two ranks is all of them")
	}
	r = taken(t, `{"event": "python", "version": "3.11", "pid": 7}`, first, second)
	if !r.ended() || r.Pythons != 1 || len(r.Notes) != 1 {
		t.Errorf("%+v", r)
	}
	if l := r.Ranks[1].Loader; l.Keys["memory"] != "1GB" || l.Workers != 2 {
		t.Errorf("%+v", l)
	}
	if got := string(r.Ranks[0].Transforms.List); got != `[{"name": "ToTensor"}]` {
		t.Error(got)
	}
	if r.Ranks[0].Uncached {
		t.Error("files are not in the page cache, although nothing says so")
	}
	m := r.Measured()
	m.Cores = 2
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	if m.Ranks != 2 || m.Dataset.Samples != 200 || m.Dataset.MB != 40 || m.Batch != 4 ||
		m.Loader != (analysis.Loader{Name: "torch", Workers: 4, Streams: 4}) {
		t.Errorf("%+v", m)
	}
	if m.AsIs.Median != 20 || m.Training.Median != 40 || m.Waited < 0.149 || m.Waited > 0.151 {
		t.Errorf("as is %+v, training %+v, waited %v", m.AsIs, m.Training, m.Waited)
	}
	if m.Device == nil || m.Device.Median != 80 {
		t.Errorf("device: %+v", m.Device)
	}
	if len(m.Preparation) != 1 || m.Preparation[0].N != 4 || m.Preparation[0].Median != 16 {
		t.Errorf("preparation: %+v", m.Preparation)
	}
}

func TestAScriptThatEndedEarlySaysWhatItHas(t *testing.T) {
	r := taken(t, `{"event": "loader", "rank": 0, "ranks": 1, "kind": "hdmlp", "batch": 0, "samples": 0}
{"event": "as_is", "iterations": [[0.1, 0.3, 8, 1]]}`)
	if r.ended() {
		t.Error("it has ended")
	}
	m := r.Measured()
	m.Cores = 1
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	if m.AsIs.Median != 20 || m.Training != nil || m.Batch != 8 || m.Loader.Name != analysis.HDMLP {
		t.Errorf("%+v", m)
	}
	about := map[string]bool{}
	for _, n := range m.Notes {
		about[n.About] = true
	}
	if !about["training"] || !about["dataset"] {
		t.Errorf("%+v", m.Notes)
	}
}

// TestTheFirstEpochCountsIfLaterOnesAreShort: samples were in no cache in it.
func TestTheFirstEpochCountsIfLaterOnesAreShort(t *testing.T) {
	for later, want := range map[int]float64{settled - 1: 10, settled: 40} {
		first := strings.Repeat(", [0.3, 0.1, 4, 1]", 30)
		r := taken(t, `{"event": "loader", "rank": 0, "ranks": 1, "kind": "torch"}
{"event": "as_is", "iterations": [`+first[2:]+strings.Repeat(", [0.05, 0.05, 4, 2]", later)+`]}`)
		m := r.Measured()
		if m.First != (want == 10) || m.AsIs.Median < want-1e-6 || m.AsIs.Median > want+1e-6 {
			t.Errorf("%d iterations of later epochs: first is %v, %+v", later, m.First, m.AsIs)
		}
	}
}

func TestFilesThatThePageCacheDoesNotKeep(t *testing.T) {
	r := taken(t, `{"event": "loader", "rank": 0, "ranks": 1, "kind": "torch"}
{"event": "uncached"}`)
	if !r.First().Uncached {
		t.Errorf("%+v", r.First())
	}
}

func TestMessagesThatAreWrongAreErrors(t *testing.T) {
	for _, text := range []string{
		"hello",
		`{"event": "end"}`,
		`{"event": "as_is", "iterations": []}`,
		`{"event": "loader", "rank": "first"}`,
	} {
		var rank *Rank
		if _, err := new(Record).take([]byte(text), &rank); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	for _, text := range []string{
		`{"event": "as_is", "iterations": [[1, 2]]}`,
		`{"event": "as_is", "iterations": [[1, null, 2, 1]]}`,
		`{"event": "preparation", "deliveries": []}`,
		`{"event": "files", "paths": ["/a"], "sizes": []}`,
		`{"event": "unheard"}`,
	} {
		rank := new(Rank)
		if _, err := new(Record).take([]byte(text), &rank); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
