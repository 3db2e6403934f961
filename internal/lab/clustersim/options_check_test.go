package clustersim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// defaults returns the options of TestSeeds without any flag.
func defaults() options {
	return options{
		seeds: new(60), first: new(uint64(1)), only: new(""), given: new(""), times: new(1),
		repeatable: new(false), interleaved: new(false), shrink: new(time.Minute),
		enough: new(int64(10)), simpler: new(0),
	}
}

// TestWrongOptions: a value that is not allowed is refused with its flag, itself, and what is
// allowed, before anything runs.
func TestWrongOptions(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(o *options)
		want string
	}{
		"no seeds":         {func(o *options) { *o.seeds = 0 }, "-seeds: 0; allowed are numbers"},
		"negative seeds":   {func(o *options) { *o.seeds = -5 }, "-seeds: -5"},
		"no runs":          {func(o *options) { *o.times = 0 }, "-times: 0"},
		"negative runs":    {func(o *options) { *o.times = -1 }, "-times: -1"},
		"no failures":      {func(o *options) { *o.enough = 0 }, "-failures: 0"},
		"negative failure": {func(o *options) { *o.enough = -1 }, "-failures: -1"},
		"negative steps":   {func(o *options) { *o.simpler = -1 }, "-simpler: -1"},
		"negative time":    {func(o *options) { *o.shrink = -time.Second }, "-shrink: -1s"},
		"too large a seed": {func(o *options) { *o.first = 1<<64 - 1 }, "-first: 18446744073709551615"},
		"no number":        {func(o *options) { *o.only = "5,,6" }, `-only: ""`},
		"negative seed":    {func(o *options) { *o.only = "-5" }, `-only: "-5"`},
		"two of them":      {func(o *options) { *o.only, *o.given = "5", "{}" }, "-script and -only"},
		"no script":        {func(o *options) { *o.given = "{" }, "near byte 0: unexpected EOF"},
		"an empty script":  {func(o *options) { *o.given = "{}" }, "samples: 0; allowed"},
	} {
		o := defaults()
		c.set(&o)
		if _, _, err := o.scripts(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestRightOptions(t *testing.T) {
	o := defaults()
	*o.first, *o.seeds = 7, 2
	count, draw, err := o.scripts()
	if err != nil || count != 2 || draw(1).Seed != 8 {
		t.Errorf("%d scripts, %v", count, err)
	}
	*o.only = "5,3"
	count, draw, err = o.scripts()
	if err != nil || count != 2 || draw(0).Seed != 5 || draw(1).Seed != 3 {
		t.Errorf("%d scripts, %v", count, err)
	}
	*o.only, *o.given = "", script.Generate(4).String()
	count, draw, err = o.scripts()
	if err != nil || count != 1 || draw(0).String() != *o.given {
		t.Errorf("%d scripts, %v", count, err)
	}
}

// TestCommands: what is printed runs a script as it was run.
func TestCommands(t *testing.T) {
	o := defaults()
	*o.interleaved = true
	*o.repeatable = true
	*o.times = 3
	const want = " ./internal/lab/clustersim -run TestSeeds -interleave -repeatable -times 3 -only 9"
	if got := o.bySeed(9); !strings.HasSuffix(got, want) ||
		strings.Contains(got, " -race ") != raceDetector {
		t.Errorf("%s, want ...%s", got, want)
	}
	s := script.Generate(9)
	if got := defaults().byScript(s); !strings.HasSuffix(got, " -script '"+s.String()+"'") {
		t.Error(got)
	}
}

// TestSimplestFailsInTheSameWay: a script that fails in another way is not taken for a simpler one,
// and the seed's own script and error are printed as well.
func TestSimplestFailsInTheSameWay(t *testing.T) {
	run := func(s *script.Script) (v verdict) {
		switch {
		case s.Samples >= 20:
			v.Errors = []string{fmt.Sprintf("waited for %d ms\n\t0/0 1ms got 0.0", s.Samples)}
		case s.Samples >= 5:
			v.Errors = []string{"another error"}
		}
		return v
	}
	s := script.Generate(5)
	s.Samples = 40
	v := run(&s)
	small, w := simplest(s, v, time.Now().Add(time.Hour), run)
	if small.Samples != 20 || !slices.Equal(kinds(w.Errors), []string{"waited for # ms"}) {
		t.Errorf("%s, %s", small, w.Errors)
	}
	text := described(defaults(), s, v, small, w)
	for _, want := range []string{
		"seed 5 fails", "-only 5\n", "waited for 40 ms", "-script '" + small.String(), "for 20 ms",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func TestKinds(t *testing.T) {
	const file, crash = "\t0/-1 0s broken 0.0 2 files are left", "--- FAIL: x\n\tpanic: deadlock: 5\n"
	for text, want := range map[string]string{
		"batch 3 instead of 12\n\t0/1 2ms got 1.1": "batch # instead of #",
		"the wrong samples; it should be [1 2]":    "the wrong samples; it should be ",
		"a rank or node is broken\n" + file:        "# files are left",
		ended + crash:                              "panic: deadlock: #",
		ended + "====\nWARNING: DATA RACE\nRead":   "WARNING: DATA RACE",
	} {
		if got := kinds([]string{text}); got[0] != want {
			t.Errorf("%q, want %q", got[0], want)
		}
	}
}

// TestSimplerScriptsPass: what the scripts of seeds are made simpler to passes as they do.
func TestSimplerScriptsPass(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, binary: binary}
	defer r.stop()
	for seed := range uint64(15) {
		s := script.Generate(seed).Simplified(20)
		if v := r.run(&s); len(v.Errors) > 0 {
			t.Errorf("%s\n\n%s", asked.byScript(s), observed(v))
		}
	}
}

// TestWorkersLeaveNoDirectories: although a worker is killed, its directory is removed.
func TestWorkersLeaveNoDirectories(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, binary: binary}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s := script.Generate(1)
	if v := r.run(&s); len(v.Errors) > 0 {
		t.Fatal(observed(v))
	}
	of := r.worker.dir
	r.stop()
	if _, err := os.Stat(of); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", of, err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("%v is left: %v", left, err)
	}
}
