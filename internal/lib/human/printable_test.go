package human

import (
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"":                           "",
		"/data/a b/ü😀.jpg":           "/data/a b/ü😀.jpg",
		`with "quotes" \ and more`:   `with "quotes" \ and more`,
		"z\x1b]0;t\a\nERROR line":    `"z\x1b]0;t\a\nERROR line"`,
		"right-to-left \u202e":       `"right-to-left \u202e"`,
		"not UTF-8 \xff":             `"not UTF-8 \xff"`,
		"a true U+FFFD \ufffd stays": "a true U+FFFD \ufffd stays",
	} {
		if got := Name(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

func TestText(t *testing.T) {
	text := "a\tb\n\x1b[1m \u009b \u202e \xff \U000e0001 \u00fc \U0001f600"
	if got, want := Text(text),
		"a\tb\n"+`\x1b[1m \u009b \u202e \xff \U000e0001 `+"\u00fc \U0001f600"; got != want {
		t.Errorf("%q: %s, want %s", text, got, want)
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"one":                     "one",
		"  one two\nthree ":       "one two|three",
		"größte größte größte":    "größte|größte|größte",
		"incomprehensible at all": "incomprehensible|at all",
		"a\x1b[1m b":              `a\x1b[1m|b`,
	} {
		lines := Wrap(text, 8)
		if got := strings.Join(lines, "|"); got != want {
			t.Errorf("%q becomes %q; want %q", text, got, want)
		}
	}
}
