package script

import (
	"reflect"
	"testing"
)

// TestScriptsAreValues: a seed always draws the same valid script, which survives being written as
// text; and a script has only simpler ones that are valid too, none of them itself.
func TestScriptsAreValues(t *testing.T) {
	kinds := map[Kind]int{}
	for seed := range uint64(500) {
		s := Generate(seed)
		if !s.valid() {
			t.Fatalf("seed %d: invalid: %s", seed, s)
		}
		if again := Generate(seed); !reflect.DeepEqual(s, again) {
			t.Fatalf("seed %d draws %s and %s", seed, s, again)
		}
		text := s.String()
		if back, err := Parse(text); err != nil || back.String() != text {
			t.Fatalf("seed %d: %s is read as %s, %v", seed, text, back, err)
		}
		for _, e := range s.Events {
			kinds[e.Kind]++
		}
		if seed%20 > 0 {
			continue
		}
		for _, c := range s.Simpler() {
			if !c.valid() || c.String() == text {
				t.Fatalf("seed %d: %s is not simpler than %s", seed, c, text)
			}
		}
		if s.String() != text {
			t.Fatalf("seed %d: Simpler changed it", seed)
		}
	}
	for _, k := range Kinds() {
		if kinds[k] == 0 {
			t.Errorf("no script has a fault of kind %s", k)
		}
	}
}

// TestSimplerEnds: making a script simpler comes to an end.
func TestSimplerEnds(t *testing.T) {
	s := Generate(1)
	for range 10_000 {
		simpler := s.Simpler()
		if len(simpler) == 0 {
			return
		}
		s = simpler[0]
	}
	t.Errorf("there is still something simpler than %s", s)
}
