package replay

import (
	"math"
	"strings"
	"testing"
)

// warmRun is the report of finishedRun with everything in memory at the start, so that it read
// nothing from any other tier, and with what was known of the machine.
func warmRun(known map[string]any) map[string]any {
	r := finishedRun()
	r["classes"] = []any{
		map[string]any{
			"name": "memory", "capacity": 100_000_000, "used": 100_000_000,
			"held_at_start": map[string]any{"samples": 100, "bytes": 100_000_000},
		},
		map[string]any{"name": "file", "path": "/disk", "capacity": 60_000_000},
	}
	r["tiers"] = []any{map[string]any{"tier": "source"}}
	for _, e := range r["epochs"].([]any) {
		e := e.(map[string]any)
		e["source"] = map[string]any{}
		e["reads"] = map[string]any{"memory": map[string]any{"samples": 100, "bytes": 100_000_000}}
	}
	if known != nil {
		r["environment"] = known
	}
	return r
}

// shared is a tier that gives all streams together this many MB/s.
func shared(mbps float64, origin string) map[string]any {
	return map[string]any{"s_per_mb": 1 / mbps, "s_per_mb_queued": 1 / mbps, "origin": origin}
}

// TestQuestionsAboutWhatWasNotMeasured: a tier that the run did not use has the rate that is known
// of it, and the output states that, or that none is known. In the cells a question what if has the
// three epochs read what the run did not.
func TestQuestionsAboutWhatWasNotMeasured(t *testing.T) {
	none := Variation{Memory: 0}
	known := func(source, file, write map[string]any) map[string]any {
		return map[string]any{
			"streams": 4, "source": source, "classes": []any{
				map[string]any{"name": "memory"},
				map[string]any{"name": "file", "path": "/disk", "read": file, "write": write},
			},
		}
	}
	fast := shared(1000, "probed")
	guess := map[string]any{"s_per_mb": 0.001, "origin": "guessed"}
	for name, c := range map[string]struct {
		known       map[string]any
		v           Variation
		least, most float64 // of all epochs, seconds
		says        []string
	}{
		"nothing is known": {
			nil, none, 1.5, 1.8,
			[]string{"from the source: too little", "Nothing else is known", "to file: too little"},
		},
		"only guesses": {
			known(guess, guess, guess), none, 1.5, 1.8,
			[]string{"from the source: too little", "Nothing else is known"},
		},
		// At 10 MB/s: 100 MB in the first epoch, and a little less than 40 in each later one.
		"the source": {
			known(shared(10, "probed"), fast, fast), none, 16, 18,
			[]string{
				"The run read 0.000 MB from the source", "10.000 MB/s, as measured before the run",
				"The run read 0.000 MB from file", "The run wrote 0.000 MB to file", "1000.000 MB/s",
			},
		},
		"a source that the user described": {
			known(shared(10, "given"), fast, fast), none, 16, 18,
			[]string{"10.000 MB/s, as the configuration says"},
		},
		"a source of which a few reads were measured": {
			known(shared(10, "measured"), fast, fast), none, 16, 18,
			[]string{"10.000 MB/s, by the few transfers"},
		},
		// 60 MB in each of two epochs, less what the source, as slow, delivers beside.
		"a class": {
			known(shared(10, "probed"), shared(10, "probed"), fast), none, 18, 22,
			[]string{"from file", "10.000 MB/s"},
		},
		// 20 MB are written at 2 MB/s meanwhile, and up to 67 MB delivered from memory; the rest is
		// read from the source, at 20 MB/s.
		"writes": {
			known(shared(20, "probed"), fast, shared(2, "probed")), none, 8.1, 9.8,
			[]string{"The run wrote 0.000 MB to file", "2.000 MB/s"},
		},
	} {
		run, err := readRun(t, warmRun(c.known))
		if err != nil {
			t.Fatal(err)
		}
		ran, err := run.Simulate(t.Context(), nil, AsItRan)
		if err != nil {
			t.Fatal(err)
		}
		if got := run.Unsure(ran, nil); got != nil {
			t.Errorf("%s: the run as it was does not depend on it: %q", name, got)
		}
		if math.Abs(ran.Runtime-1.5) > 0.1 {
			t.Errorf("%s: the run as it was takes %v s", name, ran.Runtime)
		}
		got, err := run.Simulate(t.Context(), nil, c.v)
		if err != nil {
			t.Fatal(err)
		}
		if got.Runtime < c.least || got.Runtime > c.most {
			t.Errorf("%s: takes %v s, want %v to %v: %+v", name, got.Runtime, c.least, c.most, got)
		}
		says := strings.Join(run.Unsure(ran, got), "\n")
		for _, want := range c.says {
			if !strings.Contains(says, want) {
				t.Errorf("%s: %q lacks %q", name, says, want)
			}
		}
	}
}

// TestLinksOfARunOnOneNode: are those that are known, in a question about more nodes.
func TestLinksOfARunOnOneNode(t *testing.T) {
	for _, c := range []struct {
		network map[string]any
		want    float64
		says    string
	}{
		{shared(10, "probed"), 10, "10.000 MB/s, as measured before the run"},
		{shared(10, "given"), 10, "as the configuration says"},
		{shared(10, "guessed"), unmeasured, "Nothing else is known of it"},
	} {
		run, err := readRun(t, warmRun(map[string]any{"network": c.network}))
		if err != nil {
			t.Fatal(err)
		}
		job, err := run.job(t.Context(), nil, Variation{Memory: -1, Nodes: 2})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(job.Link-c.want) > 1e-9 {
			t.Errorf("%v: links carry %v MB/s, want %v", c.network, job.Link, c.want)
		}
		says := run.Unsure(&Result{Delivered: map[string]float64{"peer": 5}})
		if len(says) != 1 || !strings.Contains(says[0], "The run had one node") ||
			!strings.Contains(says[0], c.says) {
			t.Errorf("%v: %q", c.network, says)
		}
	}
}

// TestKnownAtFirst: without what nodes agreed on, only what the user said is known to be what they
// knew at first.
func TestKnownAtFirst(t *testing.T) {
	known := map[string]any{
		"source": shared(10, "given"), "network": shared(20, "measured"), "classes": []any{
			map[string]any{"name": "memory"},
			map[string]any{"name": "file", "path": "/disk", "read": shared(40, "given")},
		},
	}
	run, err := readRun(t, warmRun(known))
	if err != nil {
		t.Fatal(err)
	}
	first := run.knownAtFirst()
	if first.Source.PerMB != 0.1 || first.Network.Origin != "" || len(first.Classes) != 2 ||
		first.Classes[1].Read.PerMB != 0.025 {
		t.Errorf("at first: %+v", first)
	}
	report := warmRun(known)
	report["planned_with"] = map[string]any{"network": shared(5, "probed")}
	if run, err = readRun(t, report); err != nil {
		t.Fatal(err)
	}
	if first = run.knownAtFirst(); first.Network.PerMB != 0.2 || first.Source.Origin != "" {
		t.Errorf("agreed on: %+v", first)
	}
}

// TestFewReads: if nothing else is known, the few reads that there were count.
func TestFewReads(t *testing.T) {
	report := warmRun(nil)
	report["tiers"] = []any{
		map[string]any{"tier": "source", "bytes": 200_000, "busy_seconds": 0.02},
		map[string]any{"tier": "file", "bytes": 100_000, "busy_seconds": 0.02},
	}
	run, err := readRun(t, report)
	if err != nil {
		t.Fatal(err)
	}
	source, _ := run.sourceRate()
	if file := run.readClass("file"); source.mbps != 10 || math.Abs(file.mbps-5) > 1e-9 ||
		!strings.Contains(source.doubt+file.doubt, "by the few") {
		t.Errorf("the source: %+v; the class: %+v", source, file)
	}
}
