package script

import (
	"reflect"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan/policies"
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

// TestPoliciesAreDrawn, each with its options.
func TestPoliciesAreDrawn(t *testing.T) {
	drawn := map[string]bool{}
	for seed := range uint64(2000) {
		drawn[Generate(seed).Policy] = true
	}
	for _, p := range append(policies.Engine(), ordering()...) {
		if !drawn[p.Name()] && p.Name() != policies.Default().Name() {
			t.Errorf("no script has the policy %s", p.Name())
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

// TestWrongScripts: a script that cannot be run is refused with what is wrong, its value, and what
// is allowed.
func TestWrongScripts(t *testing.T) {
	good := Generate(1)
	good.Events = nil
	good.Missing = nil
	good.Stale = nil
	good.Members = nil
	good.Differs = ""
	good.Launches = []Launch{{Nodes: 2, Ranks: 1}}
	good.Samples = 40
	good.Subset = 0
	good.Shuffle = "torch"
	good.Policy = ""
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	event := func(e Event) func(*Script) {
		return func(s *Script) { s.Events = []Event{e} }
	}
	for want, change := range map[string]func(*Script){
		"samples: -4; allowed are 1 to 100000": func(s *Script) { s.Samples = -4 },
		"epochs: 0;":                           func(s *Script) { s.Epochs = 0 },
		"batch: 0;":                            func(s *Script) { s.Batch = 0 },
		"memory: -1;":                          func(s *Script) { s.Memory = -1 },
		"step: -1ns; allowed are 0s":           func(s *Script) { s.Step = -1 },
		"launches: none;":                      func(s *Script) { s.Launches = nil },
		"launches[0].nodes: 0; allowed are 1":  func(s *Script) { s.Launches[0].Nodes = 0 },
		"launches[0].late, one per rank: 3; allowed are 0 to 2": func(s *Script) {
			s.Launches[0].Late = make([]Duration, 3)
		},
		`shuffle: "odd"; allowed are "torch", "none"`: func(s *Script) { s.Shuffle = "odd" },
		`policy: "odd"; allowed are "", `:             func(s *Script) { s.Policy = "odd" },
		`scheme: "odd"; allowed are "strided"`:        func(s *Script) { s.Scheme = "odd" },
		`on_error: "odd"; allowed are "raise"`:        func(s *Script) { s.OnError = "odd" },
		"missing: 40; allowed are 0 to 39":            func(s *Script) { s.Missing = []int{40} },
		"missing: -1; allowed are 0 to 39":            func(s *Script) { s.Missing = []int{-1} },
		"stale: [1]; none is allowed without verify": func(s *Script) {
			s.Stale, s.Verify = []int{1}, false
		},
		`events[0].kind: "odd"; allowed are "source-slow"`:    event(Event{Kind: "odd"}),
		"events[0].at: -1ns; allowed are 0s":                  event(Event{Kind: Cut, At: -1}),
		"events[0].launch: 1; allowed are 0 to 0":             event(Event{Kind: Cut, Launch: 1}),
		"events[0].for: 4ms; allowed are 2m0s":                event(Event{Kind: Die, For: 4e6}),
		"events[0].for: 1s; allowed are 2s":                   event(Event{Kind: Pressure, For: 1e9}),
		`events: "vanish"; allowed only with on_error "skip"`: event(Event{Kind: Vanish}),
		`events: "vanish"; of the 40 samples that are read one`: func(s *Script) {
			s.OnError, s.Events = "skip", []Event{{Kind: Vanish}}
			for id := 1; id < s.Samples; id++ {
				s.Missing = append(s.Missing, id)
			}
		},
		"events[0].amount: 101; allowed are 0 to 100": event(Event{Kind: Loss, Amount: 101}),
		`step: 0s; allowed are 20ms and more with plans "failing"`: func(s *Script) {
			s.Plans, s.Step = Failing, 0
		},
		`differs: "secret"; the first launch must have at least`: func(s *Script) {
			s.Differs, s.Launches[0] = TheSecret, Launch{Nodes: 1, Ranks: 2}
		},
		`epochs: 3; allowed are 8 and more with plans "failing"`: func(s *Script) {
			s.Plans = Failing
			s.Step = thinks
			s.Epochs = 3
		},
		`differs: "pause"; allowed only with shuffle "given"`: func(s *Script) { s.Differs = ThePause },
		`differs: "end"; allowed only with at least 3 epochs`: func(s *Script) {
			s.Differs, s.Epochs = TheEnd, 2
		},
		`differs: "end"; allowed only with 1 launch`: func(s *Script) {
			s.Differs = TheEnd
			s.Epochs = 3
			s.Breaks = nil
			s.Apart = false
			s.Missing = []int{0}
		},
		"sharded has no options, and x=1 is given": func(s *Script) { s.Policy = "sharded:x=1" },
		`policy: "sharded"; all launches must have as many`: func(s *Script) {
			s.Policy, s.Memory = "sharded", s.Bytes()
			s.Launches = []Launch{{Nodes: 2, Ranks: 1}, {Nodes: 1, Ranks: 2}}
		},
		`policy: "tfdata"; launches[0] cannot have it`: func(s *Script) {
			s.Policy, s.Shuffle = "tfdata", "none"
		},
		`policy: "locality"; allowed only without members`: func(s *Script) {
			s.Policy, s.Memory = "locality", s.Bytes()
			s.Differs = ThePolicy
		},
		`policy: "minio"; only the default is allowed`: func(s *Script) {
			s.Policy, s.Plans = "minio", Failing
		},
		"breaks[0].past: true; allowed only with skip": func(s *Script) {
			s.Breaks = []Break{{Past: true}}
		},
	} {
		s := good.clone()
		change(&s)
		if _, err := Parse(s.String()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for text, want := range map[string]string{
		`{"odd": 1}`:                `unknown field "odd"`,
		good.String() + "}":         `"}" follows it`,
		`{"samples": "x"}`:          "cannot unmarshal string",
		`{"step": "1 s"}`:           `"1 s" is no time; allowed are such as "5s"`,
		`script.json`:               "which is JSON, near byte 0",
		`{"seed": -1}`:              "cannot unmarshal number -1",
		`{"events":[{"odd": "x"}]}`: `unknown field "odd"`,
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestSimplerKeepsWhatIsDrawn: simpler scripts have no other times and ranks than Generate draws.
func TestSimplerKeepsWhatIsDrawn(t *testing.T) {
	dies := 0
	for seed := range uint64(300) {
		s := Generate(seed).Simplified(30)
		if s.Epochs < fewest {
			t.Errorf("seed %d: %d epochs", seed, s.Epochs)
		}
		for _, l := range s.Launches {
			if len(l.Late) > l.WorldSize() {
				t.Errorf("seed %d: %d of %d ranks are late", seed, len(l.Late), l.WorldSize())
			}
		}
		for _, e := range s.Events {
			if e.Kind != Die {
				continue
			}
			if dies++; e.For < Dead {
				t.Errorf("seed %d: a node is dead for %v only", seed, e.For.D())
			}
		}
	}
	if dies == 0 {
		t.Error("no node dies")
	}
}

// TestBreaks: where the next iteration begins, in 4 epochs of 3 batches.
func TestBreaks(t *testing.T) {
	for want, c := range map[int]struct {
		b       Break
		instead int
	}{
		4: {Break{}, 4}, 2: {Break{Back: 2}, 4}, 0: {Break{Back: 5}, 4}, 6: {Break{Skip: true}, 4},
		3: {Break{Skip: true}, 3}, 9: {Break{Skip: true, Past: true}, 4},
		12: {Break{Skip: true, Past: true}, 11},
	} {
		if got := c.b.Next(c.instead, 4, 3); got != want {
			t.Errorf("%+v: batch %d instead of %d", c.b, got, want)
		}
	}
}
