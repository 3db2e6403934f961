package human

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"memory", "metrics", "cache_dir"}
	for unknown, want := range map[string]string{
		"memry":     `; did you mean "memory"?`,
		"Cache_Dir": `; did you mean "cache_dir"?`,
		"metric":    `; did you mean "metrics"?`,
		"throttle":  "",
		"":          "",
	} {
		if got := Nearest(unknown, known); got != want {
			t.Errorf("%q: %q, want %q", unknown, got, want)
		}
	}
}

func TestList(t *testing.T) {
	for want, values := range map[string][]string{
		"":          nil,
		"a":         {"a"},
		"a or b":    {"a", "b"},
		"a, b or c": {"a", "b", "c"},
	} {
		if got := List(values); got != want {
			t.Errorf("%q: %q, want %q", values, got, want)
		}
	}
}
