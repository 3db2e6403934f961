package replay

import (
	"encoding/json"
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
