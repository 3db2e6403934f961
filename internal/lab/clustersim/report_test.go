package clustersim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// report makes a failing script as simple as it can, and reports it.
func (r *runner) report(s script.Script, v verdict) {
	small, w := simplest(s, v, time.Now().Add(*asked.shrink), r.run)
	r.t.Error(described(asked, s, v, small, w))
}

// simplest returns the simplest script found until end that fails as s does, and its verdict.
func simplest(s script.Script, v verdict, end time.Time, run func(*script.Script) verdict) (
	script.Script, verdict,
) {
	like := kinds(v.Errors)
	for simpler := true; simpler; {
		simpler = false
		for _, c := range s.Simpler() {
			if time.Now().After(end) {
				break
			}
			w := run(&c)
			if slices.ContainsFunc(kinds(w.Errors), func(k string) bool {
				return slices.Contains(like, k)
			}) {
				s = c
				v = w
				simpler = true
				break
			}
		}
	}
	return s, v
}

// described returns what is printed of a script that fails, and of the simpler one, small, that
// fails in the same way.
func described(o options, s script.Script, v verdict, small script.Script, w verdict) string {
	again := o.byScript(s)
	if *o.given == "" && *o.simpler == 0 {
		again = o.bySeed(s.Seed)
	}
	text := fmt.Sprintf("seed %d fails:\n\n%s\n\n", s.Seed, again)
	if small.String() == s.String() {
		return text + observed(v)
	}
	return text + strings.Join(v.Errors, "\n") + "\n\nIt fails in the same way, made simpler:\n\n" +
		o.byScript(small) + "\n\n" + observed(w)
}

// observed returns the last of what processes observed, and what is wrong.
func observed(v verdict) string {
	last := v.Events[max(0, len(v.Events)-40):]
	return strings.Join(last, "\n") + "\n\n" + strings.Join(v.Errors, "\n")
}

var (
	// numbers are numbers, addresses and times in an error.
	numbers = regexp.MustCompile(`0x[0-9a-f]+|\d+(\.\d+)?(ns|µs|ms|s|m|h)?`)
	// values are what an error quotes.
	values = regexp.MustCompile(`&?[{\[].*`)
	// crashes are the lines that say why a process ended.
	crashes = regexp.MustCompile(`(?m)^\s*((panic|fatal error|SIGQUIT): .*|WARNING: DATA RACE)`)
	// broken are lines of events that say themselves what is wrong.
	broken = regexp.MustCompile(`(?m)^\t\d+/\S+ +\S+ (?:broken|wrong) +\S+ (.*)`)
)

// kinds returns the kinds of some errors: what they say, without numbers and values.
func kinds(list []string) (all []string) {
	for _, e := range list {
		text, _, _ := strings.Cut(e, "\n")
		if m := crashes.FindStringSubmatch(e); m != nil && strings.HasPrefix(e, ended) {
			text = m[1]
		} else if m := broken.FindStringSubmatch(e); m != nil {
			text = m[1]
		}
		all = append(all, numbers.ReplaceAllString(values.ReplaceAllString(text, ""), "#"))
	}
	return all
}
