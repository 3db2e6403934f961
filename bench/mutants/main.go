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
// Usage: mutants [-n 150] [-seed 1] [-room a,b] [-only text] [-suites a,b] [-own] [-list]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
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
	results     *results
	equivalents map[string]string
	tallies     []tally
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	n := flags.Int("n", 150, "mutants made from the program's text, of all rooms together")
	seed := flags.Uint64("seed", 1, "draws them")
	names := flags.String("room", "", "rooms, with commas (default all)")
	only := flags.String("only", "", "only mutants whose key has this text")
	suites := flags.String("suites", "", "packages whose tests have to find them, with commas")
	own := flags.Bool("own", false, "only the tests of the rooms themselves")
	list := flags.Bool("list", false, "list the mutants of the rooms, and run nothing")
	out := flags.String("out", "build/mutants", "directory for binaries and results")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rooms, err := chosen(*names)
	if err != nil {
		return err
	}
	c := &campaign{n: (*n + len(rooms) - 1) / len(rooms), seed: *seed, only: *only}
	c.patience, c.own = 10*time.Second, *own
	if *suites != "" {
		c.suites = strings.Split(*suites, ",")
	}
	if c.root, err = os.Getwd(); err != nil {
		return err
	}
	if c.out, err = filepath.Abs(*out); err != nil {
		return err
	}
	if c.equivalents, err = readEquivalents("bench/mutants/equivalent.txt"); err != nil {
		return err
	}
	if *list {
		return c.list(rooms)
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	name := "results.json"
	if c.suites != nil { // another question, and other answers
		name = "results-" + strings.NewReplacer("/", "-", ",", "+").Replace(*suites) + ".json"
	}
	if c.results, err = readResults(filepath.Join(c.out, name)); err != nil {
		return err
	}
	for _, r := range rooms {
		if err = c.room(ctx, r); err != nil {
			err = fmt.Errorf("room %s: %w", r.name, err)
			break
		}
	}
	table(os.Stdout, c.tallies)
	return errors.Join(err, c.results.write())
}

func (c *campaign) list(rooms []room) error {
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
// others. A larger n has the same ones and more.
func (c *campaign) sample(r room, all []*Mutant) (drawn []*Mutant, equivalent int) {
	h := fnv.New64()
	h.Write([]byte(r.name)) //nolint:errcheck // never fails
	all = slices.Clone(all)
	rand.New(rand.NewPCG(c.seed, h.Sum64())).Shuffle(len(all), func(i, j int) {
		all[i], all[j] = all[j], all[i]
	})
	automatic := 0
	for _, m := range all {
		if !strings.Contains(m.Key, c.only) {
			continue
		}
		if !m.Written && !m.Security {
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

// room plants a room's mutants and tries those that are drawn, suite by suite.
func (c *campaign) room(ctx context.Context, r room) error {
	p, err := plant(c.root, filepath.Join(c.out, r.name), []room{r})
	if err != nil {
		return err
	}
	if err := c.checkEquivalents(r, p.mutants); err != nil {
		return err
	}
	t := tally{room: r.name}
	defer func() { c.tallies = append(c.tallies, t) }()
	python, err := c.python(ctx, p)
	for _, o := range python {
		t.add(o)
	}
	if err != nil || len(p.mutants) == 0 {
		return err
	}
	if err := p.compile(ctx); err != nil {
		return err
	}
	compiled := slices.DeleteFunc(p.mutants, func(m *Mutant) bool { return p.discarded[m] })
	drawn, equivalent := c.sample(r, compiled)
	t.equivalent = equivalent
	var outcomes []*outcome
	for _, m := range drawn {
		text, err := os.ReadFile(filepath.Join(c.root, m.File))
		if err != nil {
			return err
		}
		outcomes = append(outcomes, c.results.of(m, hashOf(text)))
	}
	suites := c.suites
	if suites == nil {
		suites = slices.Clone(r.packages)
		if !c.own {
			suites = append(suites, r.above...)
		}
	}
	for _, dir := range suites {
		if err := c.try(ctx, p, dir, outcomes); err != nil {
			return err
		}
	}
	for _, o := range outcomes {
		t.add(o)
		if !o.killed() {
			fmt.Printf("SURVIVED %s:%d %s%s\n", o.File, o.Line, o.Key,
				map[bool]string{false: " (not reached)"}[o.Reached])
		}
	}
	return nil
}

// checkEquivalents fails if the list names a mutant that is not there: its reason may not hold for
// what is there now.
func (c *campaign) checkEquivalents(r room, all []*Mutant) error {
	for key := range c.equivalents {
		file, _, _ := strings.Cut(key, ":")
		if slices.Contains(r.packages, filepath.Dir(file)) &&
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
	s, err := p.compileSuite(ctx, dir)
	if err != nil {
		return err
	}
	for _, o := range left {
		if o.Tried[dir] == s.Hash {
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
			o.Tried[dir] = s.Hash
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
