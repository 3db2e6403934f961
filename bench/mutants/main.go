// Command mutants measures the tests: it plants defects of one line, one at a time, and reports
// which ones no test finds.
//
// Defects are written by hand (patches/ROOM.txt), or made from the program's text: conditions that
// are negated or left out, bounds off by one, statements, locks and deferred calls left out, errors
// not returned. The working tree is never changed. The go command compiles other text in place of a
// package's own (-overlay), in which each defect is guarded by a number that HDMLP_MUTANT switches
// on, so that one binary has all defects of a room. Before that, each test runs once without any,
// and notes which it reaches; later only those tests run.
//
// A defect is found if a test fails, the race detector reports it, or the tests hang or crash. What
// is known is kept in a file: a call that was interrupted continues, and one after tests were added
// tries only the survivors again.
//
// Usage: mutants [-n 150] [-seed 1] [-room a,b] [-only text] [-suites a,b]
// [-flags text] [-seeds 1000] [-scripts 60] [-norace] [-own] [-list]
//
// The exit status is 0 if all mutants were tried, found or not; 1 if something failed; and 2 if the
// command line is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/bench/mutants/equivalent"
	"github.com/hdmlp/hdmlp/bench/mutants/room"
	"github.com/hdmlp/hdmlp/bench/mutants/usage"
)

// campaign is one call.
type campaign struct {
	root, out   string
	n           int // of each room's mutants that were not written by hand
	seed        uint64
	only        string
	patience    time.Duration
	own         bool     // without the suites above the rooms
	suites      []string // instead of the rooms' suites; nil: these
	flags       []string // of these suites' tests
	race        bool
	seeds       uint64 // of scripts of the simulation
	scripts     int    // of these that reach a mutant, with which it is tried
	results     *results
	equivalents map[string]string
	tallies     []tally
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		if errors.As(err, new(usage.Error)) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := usage.Parse(args)
	if err != nil {
		return err
	}
	rooms := o.Rooms
	c := &campaign{
		n: (o.N + len(rooms) - 1) / len(rooms), seed: o.Seed, only: o.Only, patience: 10 * time.Second,
		own: o.Own, suites: o.Suites, flags: o.Flags, race: o.Race, seeds: o.Seeds, scripts: o.Scripts,
	}
	if c.root, err = os.Getwd(); err != nil {
		return err
	}
	if c.out, err = filepath.Abs(o.Out); err != nil {
		return err
	}
	if c.equivalents, err = equivalent.Read("bench/mutants/equivalent.txt"); err != nil {
		return err
	}
	if err := c.checkOnly(rooms); err != nil {
		return err
	}
	if o.List {
		return c.list(rooms)
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	name := "results.json"
	if c.suites != nil { // another question, and other answers
		name = "results-" + strings.NewReplacer("/", "-", ",", "+").Replace(
			strings.Join(o.Suites, ",")) + ".json"
	}
	if c.results, err = readResults(filepath.Join(c.out, name)); err != nil {
		return err
	}
	err = c.rooms(ctx, rooms)
	table(os.Stdout, c.tallies)
	return errors.Join(err, c.results.write())
}

// checkOnly returns an error if no mutant of the rooms has the text that was asked for.
func (c *campaign) checkOnly(rooms []room.Room) error {
	if c.only == "" {
		return nil
	}
	p, err := plant(c.root, filepath.Join(c.out, "only"), rooms)
	if err != nil {
		return err
	}
	named := func(key string) bool { return strings.Contains(key, c.only) }
	if slices.ContainsFunc(p.mutants, func(m *Mutant) bool { return named(m.Key) }) ||
		slices.ContainsFunc(p.python, func(w *patch) bool { return named(w.key()) }) {
		return nil
	}
	return usage.Wrong("ONLY=%s: no defect of these rooms has this text in its name; -list lists "+
		"them", c.only)
}

func (c *campaign) list(rooms []room.Room) error {
	p, err := plant(c.root, c.out, rooms)
	if err != nil {
		return err
	}
	for _, m := range p.mutants {
		fmt.Printf("%s:%d %s\n", m.Room, m.Line, m.Key)
	}
	return nil
}

// sample draws a room's mutants: all that were written by hand, all of security steps, and n of the
// others. A larger n has the same ones and more. With suites of other rooms, security steps are
// drawn as the others are.
func (c *campaign) sample(r room.Room, all []*Mutant) (drawn []*Mutant, equivalent int) {
	h := fnv.New64()
	h.Write([]byte(r.Name)) //nolint:errcheck // never fails
	all = slices.Clone(all)
	rand.New(rand.NewPCG(c.seed, h.Sum64())).Shuffle(len(all), func(i, j int) {
		all[i], all[j] = all[j], all[i]
	})
	automatic := 0
	for _, m := range all {
		if !strings.Contains(m.Key, c.only) {
			continue
		}
		if !m.Written && (!m.Security || c.suites != nil) {
			if automatic == c.n && c.only == "" {
				continue
			}
			automatic++
		}
		if c.equivalents[m.Key] != "" {
			equivalent++
			continue
		}
		drawn = append(drawn, m)
	}
	return drawn, equivalent
}

// rooms tries the mutants of rooms: of one room after another, or, with suites that all of them
// have in common, of all together, so that these are compiled once.
func (c *campaign) rooms(ctx context.Context, rooms []room.Room) error {
	if c.suites != nil {
		return c.group(ctx, "all", rooms)
	}
	for _, r := range rooms {
		if err := c.group(ctx, r.Name, []room.Room{r}); err != nil {
			return fmt.Errorf("room %s: %w", r.Name, err)
		}
	}
	return nil
}

// group plants the mutants of some rooms at once, and tries those that are drawn, suite by suite.
func (c *campaign) group(ctx context.Context, name string, rooms []room.Room) error {
	p, err := plant(c.root, filepath.Join(c.out, name), rooms)
	if err != nil {
		return err
	}
	p.race = c.race
	if err := c.checkEquivalents(rooms, p.mutants); err != nil {
		return err
	}
	tallies := make([]tally, len(rooms))
	defer func() { c.tallies = append(c.tallies, tallies...) }()
	for k, r := range rooms {
		tallies[k].room = r.Name
	}
	python, err := c.python(ctx, p)
	for _, o := range python {
		k := slices.IndexFunc(rooms, func(r room.Room) bool { return r.Name == "python" })
		tallies[k].add(o, o.killed())
	}
	if err != nil || len(p.mutants) == 0 {
		return err
	}
	if err := p.compile(ctx); err != nil {
		return err
	}
	outcomes := make([][]*outcome, len(rooms))
	for k, r := range rooms {
		drawn, equivalent := c.sample(r, slices.DeleteFunc(slices.Clone(p.mutants),
			func(m *Mutant) bool { return p.discarded[m] || m.Room != r.Name }))
		tallies[k].equivalent = equivalent
		for _, m := range drawn {
			text, err := os.ReadFile(filepath.Join(c.root, m.File))
			if err != nil {
				return err
			}
			outcomes[k] = append(outcomes[k], c.results.of(m, hashOf(text)))
		}
	}
	for _, dir := range c.suitesOf(rooms[0]) {
		if err := c.try(ctx, p, dir, slices.Concat(outcomes...)); err != nil {
			return err
		}
	}
	for k, r := range rooms {
		for _, o := range outcomes[k] {
			tallies[k].add(o, o.killed() && slices.Contains(r.Packages, o.Suite))
			if !o.killed() {
				fmt.Printf("SURVIVED %s:%d %s%s\n", o.File, o.Line, o.Key,
					map[bool]string{false: " (not reached)"}[o.Reached])
			}
		}
	}
	return nil
}

func (c *campaign) suitesOf(r room.Room) []string {
	switch {
	case c.suites != nil:
		return c.suites
	case c.own:
		return r.Packages
	}
	return slices.Concat(r.Packages, r.Above)
}

// checkEquivalents fails if the list names a mutant that is not there: its reason may not hold for
// what is there now.
func (c *campaign) checkEquivalents(rooms []room.Room, all []*Mutant) error {
	var packages []string
	for _, r := range rooms {
		packages = append(packages, r.Packages...)
	}
	for key := range c.equivalents {
		file, _, _ := strings.Cut(key, ":")
		if slices.Contains(packages, filepath.Dir(file)) &&
			!slices.ContainsFunc(all, func(m *Mutant) bool { return m.Key == key }) {
			return fmt.Errorf("equivalent.txt: there is no mutant %s", key)
		}
	}
	return nil
}

// try has a suite try the mutants that are left, if it has not tried them already.
func (c *campaign) try(ctx context.Context, p *planted, dir string, outcomes []*outcome) error {
	left := slices.DeleteFunc(slices.Clone(outcomes), (*outcome).killed)
	if len(left) == 0 {
		return nil
	}
	s, err := p.compileSuite(ctx, dir, c)
	if err != nil {
		return err
	}
	for _, o := range left {
		if o.Tried[dir] == s.key() {
			continue
		}
		tests := s.reaching(&o.Mutant)
		o.Reached = o.Reached || len(tests) > 0
		begun := time.Now()
		if o.By, err = s.try(ctx, &o.Mutant, c.patience); err != nil {
			return err
		}
		o.Seconds += time.Since(begun).Seconds()
		if o.killed() {
			o.Suite = dir
		} else {
			o.Tried[dir] = s.key()
		}
		if len(tests) > 0 {
			fmt.Printf("%5.1fs %s:%d %s: %s\n", o.Seconds, o.File, o.Line, o.Key,
				map[bool]string{true: "found by " + o.By, false: "survives " + dir}[o.killed()])
			if err := c.results.write(); err != nil {
				return err
			}
		}
	}
	return c.results.write()
}
