package compare_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/compare"
)

// TestEverySettingMakesAnotherComparison: none is forgotten, in the key or in messages.
func TestEverySettingMakesAnotherComparison(t *testing.T) {
	var base compare.Settings
	for i := range reflect.TypeOf(base).NumField() {
		other := base
		field := reflect.ValueOf(&other).Elem().Field(i)
		switch field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Slice:
			field.Set(reflect.ValueOf([]string{"x"}))
		case reflect.Float64:
			field.SetFloat(1.5)
		case reflect.Uint64:
			field.SetUint(7)
		default:
			field.SetInt(7)
		}
		name := reflect.TypeOf(base).Field(i).Name
		if other.Key() == base.Key() {
			t.Errorf("%s: the key is the same", name)
		}
		if text := other.Differs(&base); !strings.Contains(text, "here") {
			t.Errorf("%s: it differs in %q", name, text)
		}
	}
	if text := base.Differs(&base); text != "" {
		t.Errorf("the same differ: %s", text)
	}
}

func TestKeptRunsAreNotRunAgain(t *testing.T) {
	k := compare.NewKept(compare.Settings{Epochs: 2})
	k.Samples, k.Environment = 10, "[environment]\n"
	k.Runs["naive"] = compare.Run{Policy: "naive", Epochs: []float64{1, 2}}
	k.Runs["minio"] = compare.Run{Policy: "minio", Epochs: []float64{1}} // not to its end
	data, err := k.Encode()
	if err != nil {
		t.Fatal(err)
	}
	k, err = compare.ReadKept(data)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"cooperative", "naive", "minio"}
	if got := k.Missing(all); !slices.Equal(got, []string{"cooperative", "minio"}) {
		t.Errorf("missing are %v", got)
	}
	rows := k.Rows(all)
	if len(rows) != 3 || rows[0].Measured != nil || rows[2].Measured != nil ||
		rows[1].Measured == nil || rows[1].Measured.Epochs[1] != 2 {
		t.Errorf("the rows are %+v", rows)
	}
	for text, want := range map[string]string{
		"{":                                   "not what hdmlp compare saves",
		replaced(t, data, `on": 2`, `on": 9`): "version 9",
		// Whatever is changed.
		replaced(t, data, `"samples": 10`, `"samples": 11`):   "damaged",
		replaced(t, data, `[environment]`, `[enivronment]`):   "damaged",
		replaced(t, data, `"minio": {`, `"naive": {`):         "damaged",
		replaced(t, data, `"runtime_s": 0`, `"runtime_s": 1`): "damaged",
	} {
		if _, err := compare.ReadKept([]byte(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v; want %q", text, err, want)
		}
	}
}

// replaced returns a text in which old, which it must have, is replaced.
func replaced(t *testing.T, text []byte, old, now string) string {
	t.Helper()
	if !strings.Contains(string(text), old) {
		t.Fatalf("%q is not in %s", old, text)
	}
	return strings.Replace(string(text), old, now, 1)
}
