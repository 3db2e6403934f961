package clustersim

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
)

// options are the flags of TestSeeds.
type options struct {
	seeds       *int
	first       *uint64
	only, given *string
	times       *int
	repeatable  *bool
	interleaved *bool
	shrink      *time.Duration
	enough      *int64
	simpler     *int
}

var asked = options{
	seeds: flag.Int("seeds", 60, "how many seeds TestSeeds runs"),
	first: flag.Uint64("first", 1, "the first seed"),
	only:  flag.String("only", "", "the seeds to run, with commas"),
	given: flag.String("script", "", "a script, as a failure prints it, that TestSeeds runs "+
		"instead of seeds"),
	times: flag.Int("times", 1, "how often each script is run"),
	repeatable: flag.Bool("repeatable", false, "run scripts so that they repeat themselves, as far "+
		"as possible; builds Go's runtime anew"),
	interleaved: flag.Bool("interleave", false, "have goroutines yield between any two statements, "+
		"as seeds have it; builds the program anew"),
	shrink: flag.Duration("shrink", 2*time.Minute, "how long a failing script is made simpler"),
	enough: flag.Int64("failures", 10, "after so many failing scripts no more are run"),
	simpler: flag.Int("simpler", 0, "by how many steps, drawn by chance, each seed's script is made "+
		"simpler before it runs; such scripts must pass as well"),
}

// scripts returns how many scripts there are to run, and what draws each of them. It fails if an
// option's value is not allowed.
func (o options) scripts() (count int, draw func(i int) script.Script, err error) {
	if err := o.check(); err != nil {
		return 0, nil, err
	}
	if *o.given != "" {
		s, err := script.Parse(*o.given)
		return 1, func(int) script.Script { return s }, err
	}
	of := func(seed uint64) script.Script { return script.Generate(seed).Simplified(*o.simpler) }
	if *o.only == "" {
		return *o.seeds, func(i int) script.Script { return of(*o.first + uint64(i)) }, nil
	}
	var list []uint64
	for number := range strings.SplitSeq(*o.only, ",") {
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return 0, nil, fmt.Errorf("-only: %q; allowed are seeds, numbers of at least 0, with commas",
				number)
		}
		list = append(list, seed)
	}
	return len(list), func(i int) script.Script { return of(list[i]) }, nil
}

// check returns an error if an option's value is not allowed.
func (o options) check() error {
	var wrong []error
	for _, n := range []struct {
		name  string
		value int64
		least int64
	}{
		{"seeds", int64(*o.seeds), 1},
		{"times", int64(*o.times), 1},
		{"failures", *o.enough, 1},
		{"simpler", int64(*o.simpler), 0},
	} {
		if n.value < n.least {
			wrong = append(wrong, fmt.Errorf("-%s: %d; allowed are numbers of at least %d", n.name,
				n.value, n.least))
		}
	}
	if *o.shrink < 0 {
		wrong = append(wrong, fmt.Errorf("-shrink: %v; allowed are times of at least 0s", *o.shrink))
	}
	if *o.seeds > 0 && *o.first > math.MaxUint64-uint64(*o.seeds) {
		wrong = append(wrong, fmt.Errorf("-first: %d; the last of %d seeds would be too large",
			*o.first, *o.seeds))
	}
	if *o.given != "" && *o.only != "" {
		wrong = append(wrong, errors.New("-script and -only: only one of them is allowed"))
	}
	return errors.Join(wrong...)
}

// bySeed returns the command that runs the script of a seed again.
func (o options) bySeed(seed uint64) string { return o.command(fmt.Sprint("-only ", seed)) }

// byScript returns the command that runs a script again.
func (o options) byScript(s script.Script) string {
	return o.command(fmt.Sprintf("-script '%s'", s))
}

// command returns the command that runs a script in the way of this run.
func (o options) command(which string) string {
	words := []string{"go test"}
	if raceDetector {
		words = append(words, "-race")
	}
	if invariants.Enabled {
		words = append(words, "-tags invariants")
	}
	words = append(words, "./internal/lab/clustersim -run TestSeeds")
	if *o.interleaved {
		words = append(words, "-interleave")
	}
	if *o.repeatable {
		words = append(words, "-repeatable")
	}
	if *o.times > 1 {
		words = append(words, fmt.Sprint("-times ", *o.times))
	}
	return strings.Join(append(words, which), " ")
}
