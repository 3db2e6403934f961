package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestWrongReports: values of a wrong type, and impossible ones, are refused by key, in words that
// say nothing of the program.
func TestWrongReports(t *testing.T) {
	for _, test := range []struct {
		damage func(run map[string]any)
		want   string
	}{
		{func(r map[string]any) { r["samples"] = "many" }, "samples is a string, and must be a whole"},
		{func(r map[string]any) { r["classes"] = 5 }, "classes is a number, and must be a list"},
		{func(r map[string]any) {
			r["epochs"].([]any)[0].(map[string]any)["reads"] = map[string]any{"source": 3}
		}, "epochs.reads is a number, and must be an object"},
		{func(r map[string]any) {
			r["classes"].([]any)[0].(map[string]any)["capacity"] = -1
		}, "classes[0].capacity is -1; it must be 0 or more"},
		{func(r map[string]any) {
			r["tiers"].([]any)[0].(map[string]any)["bytes"] = -1
		}, "tiers[0].bytes is -1; it must be 0 or more"},
		{func(r map[string]any) {
			r["tiers"].([]any)[0].(map[string]any)["busy_seconds"] = 1e-12
		}, "tiers[0].busy_seconds is 1e-12 for 100000000 bytes"},
		{func(r map[string]any) {
			r["epochs"].([]any)[1].(map[string]any)["seconds"] = -3
		}, "epochs[1].seconds is -3; it must be 0 or more"},
		{func(r map[string]any) {
			r["epochs"].([]any)[1].(map[string]any)["step_seconds"] = -1
		}, "epochs[1].step_seconds is -1; it must be 0 or more"},
		{func(r map[string]any) {
			r["epochs"].([]any)[1].(map[string]any)["step_seconds"] = 1e300
		}, "epochs[1].step_seconds is 1e+300; it must be at most 1e+09"},
		{func(r map[string]any) {
			of := r["ranks"].([]any)[1].(map[string]any)["epochs"].([]any)[0].(map[string]any)
			of["stall"].(map[string]any)["source"] = -0.5
		}, "ranks[1].epochs[0].stall.source is -0.5; it must be 0 or more"},
		{func(r map[string]any) {
			r["tiers"].([]any)[0].(map[string]any)["busy_seconds"] = 0
		}, "tiers[0].busy_seconds is 0 for 100000000 bytes"},
		{func(r map[string]any) {
			r["staging_bytes"] = []any{map[string]any{"seconds": 1, "to": 0}}
		}, "staging_bytes[0].to is 0; it must be 1 or more"},
		{func(r map[string]any) {
			r["environment"] = map[string]any{"source": map[string]any{"s_per_mb": -1}}
		}, "in environment: source.s_per_mb is -1 s"},
		{func(r map[string]any) { r["planned_epochs"] = -1 }, "planned_epochs is -1"},
	} {
		run := finishedRun()
		test.damage(run)
		data, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Read(data)
		if _, list := Read([]byte("[1]")); !strings.Contains(list.Error(), "but a JSON array;") {
			t.Error(list)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
			continue
		}
		for _, inside := range []string{"Go ", "struct", "Tally", "stats.", "int64", "float64"} {
			if strings.Contains(err.Error(), inside) {
				t.Errorf("%v: speaks of the program's insides", err)
			}
		}
	}
}

// TestAnyDamagedValue damages each value of reports in turn: the report is refused, or predicted in
// numbers that are possible.
func TestAnyDamagedValue(t *testing.T) {
	one := finishedRun()
	one["preprocessing"] = map[string]any{
		"samples": 300, "threads": 2, "result_bytes": 10_000,
		"thread_changes": []any{map[string]any{"seconds": 0, "to": 2}},
		"transforms":     []any{map[string]any{"name": "ImgDecode", "seconds": 1.0}},
	}
	one["source_streams"] = []any{
		map[string]any{"seconds": 0, "to": 4}, map[string]any{"seconds": 1, "to": 6},
	}
	one["staging_bytes"] = []any{map[string]any{"seconds": 0, "to": 32_000_000}}
	for _, e := range one["epochs"].([]any) {
		e := e.(map[string]any)
		e["step_seconds"] = 0.05
		e["pause_seconds"] = 0.1
		e["prefetch_batches"] = 8
	}
	known := map[string]any{
		"source":  map[string]any{"latency_s": 0.001, "s_per_mb": 0.02, "origin": "measured"},
		"network": map[string]any{"latency_s": 0.001, "s_per_mb": 0.01, "origin": "probed"},
		"sources": []any{map[string]any{"clients": 1, "mbps": 50}}, "sources_origin": "probed",
		"streams": 4,
	}
	many := onNodes()
	one["environment"] = known
	many["environment"] = known
	many["planned_with"] = known
	one["classes"] = append(one["classes"].([]any), map[string]any{
		"name": "file", "capacity": 10_000_000, "used": 10_000_000,
		"held_at_start": map[string]any{"samples": 5, "bytes": 5_000_000},
	})
	values := []any{nil, -1, 0, 1e9, 1e300, "many", []any{}}
	variations, tried := []Variation{AsItRan, {Memory: 0, Nodes: 3}}, 0
	for _, report := range []map[string]any{one, many} {
		try := func(key string, value any) {
			run, err := readRun(t, report)
			if err != nil {
				return
			}
			tried++
			got, err := run.Simulate(t.Context(), nil, variations[tried%len(variations)])
			if err != nil {
				return
			}
			run.Unsure(got)
			for e, took := range got.Epochs {
				if !(took >= 0) || math.IsInf(took, 1) {
					t.Errorf("%s is %v: epoch %d takes %v s", key, value, e, took)
				}
			}
			if !(got.Source >= 0) || !(got.Runtime >= 0) || math.IsInf(got.Runtime, 1) {
				t.Errorf("%s is %v: %+v", key, value, got)
			}
		}
		eachValue("", report, func(key string, set func(any), was any) {
			if strings.HasPrefix(key, ".nodes[1].") { // as those of node 0
				return
			}
			for _, value := range values {
				set(value)
				try(key, value)
			}
			set(was)
		})
		if _, err := readRun(t, report); err != nil {
			t.Fatal(err) // all of it was put back
		}
	}
}

// eachValue calls do for each value in a report, with its key and how to set it.
func eachValue(key string, in any, do func(key string, set func(any), was any)) {
	switch in := in.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(in)) {
			was := in[name]
			do(key+"."+name, func(to any) { in[name] = to }, was)
			eachValue(key+"."+name, was, do)
		}
	case []any:
		for i, was := range in {
			key := fmt.Sprintf("%s[%d]", key, i)
			do(key, func(to any) { in[i] = to }, was)
			eachValue(key, was, do)
		}
	}
}
