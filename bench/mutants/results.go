package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// outcome is what became of a mutant.
type outcome struct {
	Mutant
	By      string            `json:",omitempty"` // what found it: a test, a hang, ...
	Suite   string            `json:",omitempty"` // whose
	Reached bool              // by any test
	Tried   map[string]string `json:",omitempty"` // the suites that did not find it, with hashes
	Seconds float64           // that it took
	Source  string            // hash of the file in which it is
}

func (o *outcome) killed() bool { return o.By != "" }

// results are the outcomes so far, kept in a file from one call to the next.
type results struct {
	name     string
	Outcomes map[string]*outcome // by the mutant's key
}

func readResults(name string) (*results, error) {
	r := &results{name: name, Outcomes: map[string]*outcome{}}
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to begin again", name, err)
	}
	return r, nil
}

func (r *results) write() error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.name+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(r.name+".new", r.name)
}

// of returns what is known of a mutant; of one whose file has changed, nothing is.
func (r *results) of(m *Mutant, source string) *outcome {
	o := r.Outcomes[m.Key]
	if o == nil || o.Source != source {
		o = &outcome{Source: source}
		r.Outcomes[m.Key] = o
	}
	if o.Tried == nil {
		o.Tried = map[string]string{}
	}
	o.Mutant = *m
	return o
}

// tally counts the mutants of a room.
type tally struct {
	room                                  string
	own                                   int // killed by the room's own suites
	mutants, equivalent, killed, survived int
	security, securityKilled              int
	seconds                               float64
}

func (t *tally) add(o *outcome, own bool) {
	t.mutants++
	if own {
		t.own++
	}
	t.seconds += o.Seconds
	if o.Security {
		t.security++
	}
	switch {
	case !o.killed():
		t.survived++
	case o.Security:
		t.securityKilled++
		fallthrough
	default:
		t.killed++
	}
}

func (t *tally) merge(u tally) {
	t.mutants += u.mutants
	t.equivalent += u.equivalent
	t.killed += u.killed
	t.own += u.own
	t.survived += u.survived
	t.security += u.security
	t.securityKilled += u.securityKilled
	t.seconds += u.seconds
}

func table(out io.Writer, tallies []tally) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "room\tmutants\tby its own tests\tkilled\tsurvived\tfound\tsecurity\t"+
		"equivalent\tseconds\t")
	all := tally{room: "all"}
	for _, t := range tallies {
		all.merge(t)
	}
	for _, t := range append(tallies, all) {
		found := "-"
		if t.mutants > 0 {
			found = fmt.Sprintf("%.1f %%", 100*float64(t.killed)/float64(t.mutants))
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%d of %d\t%d\t%.0f\t\n", t.room, t.mutants, t.own,
			t.killed, t.survived, found, t.securityKilled, t.security, t.equivalent, t.seconds)
	}
	w.Flush()
}
