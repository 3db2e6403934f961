package prometheus_test

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/report/prometheus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape parses the text format into values by metric with labels.
func scrape(t *testing.T, reports ...*report.ClusterReport) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	prometheus.Handler(func(context.Context) []*report.ClusterReport { return reports }).ServeHTTP(w,
		httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	var text strings.Builder
	if err := prometheus.Write(&text, reports); err != nil || text.String() != w.Body.String() {
		t.Errorf("written (%v)\n%s\nserved\n%s", err, &text, w.Body)
	}
	out := map[string]float64{}
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(line[i:]), 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out[line[:i]] = v
	}
	return out
}

func TestMetricsHaveTheReportsValues(t *testing.T) {
	epoch := func(n int64) report.EpochTally {
		return report.EpochTally{Tally: report.Tally{
			Batches: n, Samples: 10 * n,
			Stall: map[string]float64{"source": float64(n), "handover": 0.5},
			Reads: map[string]report.Amount{"memory": {Samples: n, Bytes: 100 * n}},
		}}
	}
	r := &report.Report{
		Settings:    report.Settings{Job: `a "job"`, Node: 3, Nodes: 5},
		Utilisation: 0.75,
		Source:      report.Amount{Samples: 3, Bytes: 1010},
		Ranks: []report.RankReport{
			{
				Rank:    0,
				Epochs:  []report.EpochTally{epoch(1), epoch(2)},
				Staging: report.Staging{Size: 20, Used: 7, Extra: 4},
			},
			{Rank: 1, Epochs: []report.EpochTally{epoch(4)}},
		},
		Faults: make([]report.Fault, 2),
		Bounds: report.Bounds{Bound: 1000},
		Resources: report.Resources{Classes: []report.Class{
			{
				Name: "memory", Capacity: 500, Used: 300,
				Returned: &report.Returned{Bytes: 70, Now: 30, Viewed: 10},
				Forms: &report.Forms{
					Amount: report.Amount{Samples: 6, Bytes: 130}, AsRead: 110, Seconds: 1.5, Reread: 2,
					Sent: 7, Received: 8, Unpacked: 9,
				},
			},
			{Name: "file", Capacity: 5},
		}},
	}
	all := r.Summary()
	all.Nodes = append(all.Nodes,
		report.NodeReport{Node: 4, Age: -1, Ranks: []report.RankTally{{Rank: 8}}})
	got := scrape(t, all, (&report.Report{
		Settings:   report.Settings{Job: "being put together"},
		Assembling: true,
	}).Summary())
	label := `job="a \"job\"",node="3"`
	want := map[string]float64{}
	for rank, v := range []struct{ batches, source, handover, staging, size float64 }{{
		3, 3, 1, 11,
		20,
	}, {4, 4, 0.5, 0, 0}} {
		want[fmt.Sprintf(`hdmlp_batches_total{%s,rank="%d"}`, label, rank)] = v.batches
		want[fmt.Sprintf(`hdmlp_samples_total{%s,rank="%d"}`, label, rank)] = 10 * v.batches
		want[fmt.Sprintf(`hdmlp_stall_seconds_total{cause="source",%s,rank="%d"}`, label,
			rank)] = v.source
		want[fmt.Sprintf(`hdmlp_stall_seconds_total{cause="handover",%s,rank="%d"}`, label,
			rank)] = v.handover
		want[fmt.Sprintf(`hdmlp_read_bytes_total{%s,rank="%d",tier="memory"}`, label,
			rank)] = 100 * v.batches
		want[fmt.Sprintf(`hdmlp_staging_used_bytes{%s,rank="%d"}`, label, rank)] = v.staging
		want[fmt.Sprintf(`hdmlp_staging_size_bytes{%s,rank="%d"}`, label, rank)] = v.size
	}
	want["hdmlp_node_up{"+label+"}"] = 1
	want[`hdmlp_node_up{job="a \"job\"",node="4"}`] = 0
	want["hdmlp_source_bytes_total{"+label+"}"] = 1010
	want["hdmlp_source_bound_bytes{"+label+"}"] = 1000
	want["hdmlp_utilisation_ratio{"+label+"}"] = 0.75
	want["hdmlp_unreadable_samples{"+label+"}"] = 2
	for name, v := range map[string][2]float64{ // in memory and on disk
		"capacity_bytes":         {500, 5},
		"used_bytes":             {300, 0},
		"given_back_bytes_total": {70, 0},
		"given_back_now_bytes":   {30, 0},
		"viewed_bytes":           {10, 0},
	} {
		want["hdmlp_storage_class_"+name+`{class="memory",`+label+"}"] = v[0]
		want["hdmlp_storage_class_"+name+`{class="file",`+label+"}"] = v[1]
	}
	for name, v := range map[string]float64{
		"samples": 6, "bytes": 130, "as_read_bytes": 110, "seconds_total": 1.5, "read_again_total": 2,
		"sent_total": 7, "received_total": 8, "unpacked_total": 9,
	} {
		want["hdmlp_storage_class_forms_"+name+`{class="memory",`+label+"}"] = v
	}
	if !maps.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", lines(got), lines(want))
	}
}

func lines(m map[string]float64) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s %v\n", k, m[k])
	}
	return b.String()
}
