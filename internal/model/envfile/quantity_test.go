package envfile

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/model"
)

func TestRead(t *testing.T) {
	for _, test := range []struct {
		kind  Kind
		value any
		want  float64
	}{
		{Rate, int64(66), 66},
		{Rate, 0.5, 0.5},
		{Rate, "66", 66},
		{Rate, "1.2 GB/s", 1200},
		{Rate, " 40Gbit/s ", 5000},
		{Rate, "512 MiB/s", 512 * 1.048576},
		{Rate, "1e2 MB/s", 100},
		{Size, "10 GB", 10e3},
		{Size, "64 MiB", 67.108864},
		{Size, int64(0), 0},
		{Time, "5ms", 5e-3},
		{Time, "3 us", 3e-6},
		{Time, "2", 2},
		{Time, 0.5, 0.5},
	} {
		got, fault := test.kind.Read("key", test.value)
		if fault != nil || math.Abs(got-test.want) > 1e-12*test.want {
			t.Errorf("%v: %v, %v; want %v", test.value, got, fault, test.want)
		}
	}
}

func TestImpossibleValuesAreFaults(t *testing.T) {
	for _, test := range []struct {
		kind  Kind
		value any
		want  string // without what is allowed
	}{
		{Rate, int64(0), "key is 0: not above 0"},
		{Rate, -1.5, "key is -1.5: negative"},
		{Rate, math.NaN(), "key is NaN: not a finite number"},
		{Rate, math.Inf(1), "key is +Inf: not a finite number"},
		{Rate, 1e-300, "key is 1e-300: too small"},
		{Rate, 1e10, "key is 1e+10: too large"},
		{Rate, "5 ms", `key is "5 ms": not a number with a known unit`},
		{Rate, "nan", `key is "nan": not a number with a known unit`},
		{Rate, "0x10", `key is "0x10": not a number with a known unit`},
		{Rate, "1e400 MB/s", `key is "1e400 MB/s": not a number with a known unit`},
		{Rate, true, "key is true: not a number"},
		{Rate, []any{}, "key is a list of 0: not a number"},
		{Size, "5 MB/s", `key is "5 MB/s": not a number with a known unit`},
		{Time, int64(4000), "key is 4000: too large"},
	} {
		_, fault := test.kind.Read("key", test.value)
		if fault == nil {
			t.Errorf("%v was accepted", test.value)
			continue
		}
		if want := test.want + "; allowed: " + test.kind.Allowed; fault.Error() != want {
			t.Errorf("%s; want %s", fault.Error(), want)
		}
	}
}

func TestReadCurve(t *testing.T) {
	c, faults := ReadCurve("key", map[string]any{"4": "0.2 GB/s", "1": int64(66)}, "nodes")
	want := model.Curve{{Clients: 1, MBps: 66}, {Clients: 4, MBps: 200}}
	if diff := cmp.Diff(want, c); diff != "" || faults != nil {
		t.Errorf("%s, %v", diff, faults)
	}
	if c, faults := ReadCurve("key", "66 MB/s", "nodes"); faults != nil || c.At(3) != 66 {
		t.Errorf("%v, %v", c, faults)
	}
	for _, test := range []struct {
		value any
		key   string
	}{
		{map[string]any{"1": 9.0, "2": 3.0}, "key.2"},
		{map[string]any{"1": 1e-300}, "key.1"},
		{map[string]any{"01": 9.0}, "key.01"},
		{map[string]any{"0": 9.0}, "key.0"},
		{map[string]any{}, "key"},
		{[]any{1.0}, "key"},
		{math.NaN(), "key"},
	} {
		if c, faults := ReadCurve("key", test.value, "nodes"); c != nil || len(faults) != 1 ||
			faults[0].Key != test.key || faults[0].Allowed == "" {
			t.Errorf("%v: %v, %v", test.value, c, faults)
		}
	}
}
