package option

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestValuesHaveTheTypeOfTheirKind(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		given any
		want  any
		text  string
	}{
		{Size, "64KiB", int64(65536), "64KiB"},
		{Size, 1048576.0, int64(1 << 20), "1048576"},
		{Int, int64(7), 7, "7"},
		{Duration, "2m", 2 * time.Minute, "2m"},
		{Duration, 1.5, 1500 * time.Millisecond, "1.5"},
		{Enum, "b", "b", "b"},
		{Path, " /a//b/ ", "/a/b", " /a//b/ "},
		{Address, ":80", ":80", ":80"},
		{Switch, true, true, "true"},
		{Switch, "off", false, "off"},
		{Text, "x", "x", "x"},
		{Network, "eth0", "eth0", "eth0"},
		{List, ".a, .b", []string{".a", ".b"}, ".a, .b"},
	} {
		o := Option{
			Key: "key", Kind: c.kind, Values: []string{"a", "b"}, Max: int64(time.Hour), Default: Auto,
		}
		value, text, err := o.Read(c.given)
		if diff := cmp.Diff(c.want, value); diff != "" || text != c.text || err != nil {
			t.Errorf("%s %v: %q, %v %s", c.kind, c.given, text, err, diff)
		}
		if value, text, err := o.Read(" Auto"); value != nil || text != " Auto" || err != nil {
			t.Errorf("%s: auto is %v, %q, %v", c.kind, value, text, err)
		}
	}
}

func TestErrorsNameKeyValueAndWhatIsAllowed(t *testing.T) {
	for _, c := range []struct {
		option Option
		given  any
		want   string
	}{
		{Option{Kind: Size, Min: 1}, "0", `key = "0": not more than 0; allowed: a size such as`},
		{Option{Kind: Size, Min: 1024}, 5, `key = "5": less than 1.0 KiB`},
		{Option{Kind: Int, Min: 1, Max: 9}, "10", `too large; allowed: a whole number from 1 to 9`},
		{Option{Kind: Enum, Values: []string{"red", "blue"}}, "ble", `did you mean "blue"?; allowed`},
		{Option{Kind: Path}, "a", `not an absolute path; allowed: an absolute path, or one that ` +
			`begins with "~/"; empty: none`},
		{Option{Kind: Path, Required: true}, "a", `allowed: an absolute path, or one that begins ` +
			`with "~/"` + "\n"},
		{Option{Kind: Switch}, []any{true}, `key = "[true]": not a single value; allowed: on or off`},
		{Option{Kind: Text, Max: 2}, map[string]any{"a": 1}, `key = "a table": not a single value`},
		{Option{Kind: Size, Default: Auto, Derived: "all"}, "x", `"10GB"`},
		{Option{Kind: Size, Default: Auto, Derived: "all"}, "x", `; "auto": all` + "\n"},
	} {
		c.option.Key = "key"
		_, _, err := c.option.Read(c.given)
		var e *Error
		if !errors.As(err, &e) || e.Key != "key" || !strings.Contains(err.Error()+"\n", c.want) {
			t.Errorf("%+v, %v: %v", c.option, c.given, err)
		}
	}
}

func TestAnUnknownKeyIsReportedWithTheNearestOne(t *testing.T) {
	err := Unknown("capcity", []any{map[string]any{}}, []string{"capacity", "path"})
	want := `capcity = "a list of 1": unknown key; did you mean "capacity"?; ` +
		"allowed: capacity or path"
	if err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestAMissingValueIsZero(t *testing.T) {
	values := Values{"a": int64(3)}
	if Get[int64](values, "a") != 3 || Get[string](values, "b") != "" || Get[bool](nil, "a") {
		t.Error("wrong values")
	}
	if _, ok := Find([]Option{{Key: "a"}}, "b"); ok {
		t.Error("found what is not there")
	}
}
