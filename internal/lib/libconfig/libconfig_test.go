package libconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got, err := Parse(`# comment
a = 1; b: -2.5, c = true // comment
d = "x\t\"" "y\x41"
e = 0x1F; f = 5000000000L;
/* over
lines */ g: { h = [1, 2]; i = (1, "a", { j = FALSE; }); k = (); };
`)
	want := Group{
		{"a", Value{2, int64(1)}},
		{"b", Value{2, -2.5}},
		{"c", Value{2, true}},
		{"d", Value{3, "x\t\"yA"}},
		{"e", Value{4, int64(31)}},
		{"f", Value{4, int64(5000000000)}},
		{"g", Value{6, Group{
			{"h", Value{6, List{{6, int64(1)}, {6, int64(2)}}}},
			{"i", Value{6, List{
				{6, int64(1)}, {6, "a"}, {6, Group{{"j", Value{6, false}}}},
			}}},
			{"k", Value{6, List{}}},
		}}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatal(err, diff)
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"a":                      `line 1: = is missing after a, before the end of the file`,
		"a = ":                   `line 1: a value is missing before the end of the file`,
		"a = 1\n= 2":             `line 2: the name of a setting is missing before "="`,
		"a = 1\na = 2":           `line 2: a is set twice, first in line 1`,
		"a = yes":                `line 1: "yes" is no value; text needs quotes`,
		"a = 1.2.3":              `line 1: "1.2.3" is no number, or one out of range`,
		"a = 99999999999999999L": ``,
		"a = 9999999999999999999999L": `line 1: "9999999999999999999999L" is no number, ` +
			`or one out of range`,
		"a = \"x\n\"": `line 1: the string has no end on its line; close it with "`,
		"a = \"x":     `line 1: the string has no end; close it with "`,
		`a = "\q"`: `line 1: the string has an unknown escape after \; ` +
			`write \\ for a backslash`,
		"a = [1, 2.0]":      `line 1: an array has scalars of one type; write ( ) for a list of others`,
		"a = (1 2)":         `line 1: ")" or , is missing before "2"`,
		"a = {":             `line 1: the name of a setting is missing before the end of the file`,
		"\n/* x":            `line 2: the comment has no end; close it with */`,
		`@include "x"`:      `line 1: @include is not supported; write what it includes here`,
		"a = %":             `line 1: a value is missing before "%"`,
		"a = { b = (1, }; ": `line 1: a value is missing before "}"`,
	} {
		_, err := Parse(text)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`a = ( { b = [1, 2]; c: "x" }, 0x1L ); # x`)
	f.Fuzz(func(t *testing.T, text string) {
		g, err := Parse(text)
		if err != nil && g != nil {
			t.Fatalf("%v beside %v", g, err)
		}
	})
}
