// Package usage reads the command line of mutants. What would try nothing is refused.
package usage

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hdmlp/hdmlp/bench/mutants/room"
)

// Error is an error of the command line.
type Error struct{ error }

// Wrong returns an error of the command line.
func Wrong(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// Options are what a command line asks for.
type Options struct {
	N       int
	Seed    uint64
	Rooms   []room.Room
	Only    string
	Suites  []string // nil: those of the rooms
	Flags   []string // of the tests of Suites
	Own     bool
	Race    bool
	Seeds   uint64
	Scripts int
	List    bool
	Out     string
}

// Parse reads a command line, given in the module's root.
func Parse(args []string) (o Options, err error) {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	flags.IntVar(&o.N, "n", 150, "mutants made from the program's text, of all rooms together")
	flags.Uint64Var(&o.Seed, "seed", 1, "draws them")
	names := flags.String("room", "", "rooms, with commas (default all)")
	flags.StringVar(&o.Only, "only", "", "only mutants whose key has this text")
	suites := flags.String("suites", "", "packages whose tests have to find them, with commas")
	flags.BoolVar(&o.Own, "own", false, "only the tests of the rooms themselves")
	testFlags := flags.String("flags", "", "flags for the tests of -suites, with spaces")
	noRace := flags.Bool("norace", false, "without the race detector")
	flags.Uint64Var(&o.Seeds, "seeds", 1000, "scripts of the simulation to choose from")
	flags.IntVar(&o.Scripts, "scripts", 60, "of these, how many that reach a mutant are tried")
	flags.BoolVar(&o.List, "list", false, "list the mutants of the rooms, and run nothing")
	flags.StringVar(&o.Out, "out", "build/mutants", "directory for binaries and results")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.Race = !*noRace
	if *suites != "" {
		o.Suites, o.Flags = strings.Split(*suites, ","), strings.Fields(*testFlags)
	}
	if o.Rooms, err = room.Chosen(*names); err != nil {
		return o, Error{err}
	}
	return o, o.check(flags.Args())
}

// check returns an error if an option's value is not allowed.
func (o Options) check(rest []string) error {
	switch {
	case o.N < 0:
		return Wrong("N=%d: allowed are numbers of at least 0", o.N)
	case o.Seeds < 1:
		return Wrong("SEEDS=%d: allowed are numbers of at least 1", o.Seeds)
	case o.Scripts < 1:
		return Wrong("SCRIPTS=%d: allowed are numbers of at least 1", o.Scripts)
	case len(rest) > 0:
		return Wrong("%q: no arguments are taken", rest[0])
	}
	for _, dir := range o.Suites {
		if found, _ := filepath.Glob(filepath.Join(dir, "*_test.go")); len(found) == 0 {
			return Wrong("SUITES=%s: the directory has no tests", dir)
		}
	}
	return nil
}
