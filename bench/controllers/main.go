// Command controllers tries what the constants and mechanisms of the choice of tiers are for: it
// halves and doubles each constant, turns each mechanism off (mechanisms.txt), and runs some jobs
// in virtual time (package replay) with each change. It prints by how much a change makes any of
// them faster or slower, or read more from the source; and last what changes none of them by 2 %.
//
// What a scenario lacks, such as nodes that hang, is not tried: then a constant changes nothing
// here and is needed all the same.
//
// With -plans it prints instead what the environment is for by which plans are made: each job with
// a plan by the true one, by none, and by some that are wrong by a factor of 4.
//
// The working tree is not changed: the go command compiles changed text in the place of a file
// (-overlay). It takes about 10 s for each of some 120 changes. Run it in the repository's root:
//
//	go run ./bench/controllers [-only text | -plans]
package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model"
)

// files are those whose constants are changed.
var files = []string{
	"internal/model/routing/choose.go", "internal/model/routing/routing.go",
	"internal/model/routing/limits.go", "internal/model/routing/circuit.go",
	"internal/model/routing/explore.go", "internal/model/meter/meter.go",
	"internal/model/meter/pace.go", "internal/model/fit.go",
	"internal/model/guess.go", "internal/model/routing/workers.go",
}

//go:embed mechanisms.txt
var mechanisms string

// change is a change of a file.
type change struct{ name, file, text string }

func main() {
	one := flag.Bool("scenarios", false, "run the scenarios, and print their outcomes as JSON")
	plans := flag.Bool("plans", false, "make plans by several environments")
	only := flag.String("only", "", "try changes that have this text in their names")
	flag.Parse()
	var err error
	switch {
	case *one:
		err = runScenarios()
	case *plans:
		err = tryPlans()
	default:
		err = tryAll(*only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "controllers:", err)
		os.Exit(1)
	}
}

// seeds is how many orders of each scenario are run.
const seeds = 1

func runScenarios() error {
	all := make([]outcome, len(scenarios))
	for k := range scenarios {
		for seed := range uint64(seeds) {
			o, err := scenarios[k].run(seed, nil)
			if err != nil {
				return err
			}
			all[k].Seconds += o.Seconds
			all[k].Later += o.Later
			all[k].Source += o.Source
		}
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

// tryPlans runs the scenarios with plans that are made by several environments.
func tryPlans() error {
	fmt.Printf("%-50s %-10s %14s %18s\n", "scenario", "believed", "later epochs, s", "source, MB")
	for k := range scenarios {
		s := &scenarios[k]
		first := 0.0
		for _, of := range []struct {
			name               string
			source, link, disk float64
		}{
			{"true", 1, 1, 1},
			{"nothing", 0, 0, 0},
			{"source / 4", .25, 1, 1},
			{"source * 4", 4, 1, 1},
			{"link / 4", 1, .25, 1},
			{"link * 4", 1, 4, 1},
			{"disk / 4", 1, 1, .25},
			{"disk * 4", 1, 1, 4},
		} {
			var env *model.Environment
			if of.source > 0 {
				env = s.environment(of.source, of.link, of.disk)
			}
			o, err := s.run(0, env)
			if err != nil {
				return err
			}
			first = cmp.Or(first, o.Later)
			fmt.Printf("%-50s %-10s %8.3f %+5.1f %% %18.1f\n", s.name, of.name, o.Later,
				100*(o.Later/first-1), o.Source)
		}
	}
	return nil
}

// matters is the least relative difference that counts.
const matters = 0.02

func tryAll(only string) error {
	base, err := outcomes(change{})
	if err != nil {
		return err
	}
	for k, o := range base {
		fmt.Printf("%-50s %8.3f s, later epochs %8.3f s, %8.1f MB\n", scenarios[k].name, o.Seconds,
			o.Later, o.Source)
	}
	changes, err := allChanges()
	if err != nil {
		return err
	}
	most := map[string]float64{} // by what is changed
	var order []string
	for _, c := range changes {
		if !strings.Contains(c.name, only) {
			continue
		}
		got, err := outcomes(c)
		if err != nil {
			fmt.Printf("%-60s %v\n", c.name, err)
			continue
		}
		by, words := compare(base, got)
		fmt.Printf("%-60s %s\n", c.name, words)
		of, _, _ := strings.Cut(c.name, " *")
		of, _, _ = strings.Cut(of, " /")
		if _, seen := most[of]; !seen {
			order = append(order, of)
		}
		most[of] = max(most[of], by)
	}
	fmt.Printf("\nChange no scenario by %.0f %%:\n", 100*matters)
	for _, of := range order {
		if most[of] < matters {
			fmt.Printf("  %s (%.1f %%)\n", of, 100*most[of])
		}
	}
	return nil
}

// compare returns the largest relative difference, and what it is of.
func compare(base, got []outcome) (most float64, words string) {
	words = "nothing"
	for k := range base {
		for _, d := range []struct {
			of       string
			was, now float64
		}{
			{"time", base[k].Seconds, got[k].Seconds},
			{"later epochs", base[k].Later, got[k].Later},
			{"bytes", base[k].Source, got[k].Source},
		} {
			if by := d.now/d.was - 1; math.Abs(by) > math.Abs(most) {
				most = by
				words = fmt.Sprintf("%+6.1f %% %s, %s", 100*by, d.of, scenarios[k].name)
			}
		}
	}
	return math.Abs(most), words
}

// outcomes runs the scenarios with a change.
func outcomes(c change) (all []outcome, err error) {
	dir, err := os.MkdirTemp("", "controllers")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	args := []string{"run"}
	if c.file != "" {
		root, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		text, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
		replaced, err := json.Marshal(map[string]map[string]string{
			"Replace": {filepath.Join(root, c.file): text},
		})
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(text, []byte(c.text), 0o600); err != nil {
			return nil, err
		}
		if err := os.WriteFile(overlay, replaced, 0o600); err != nil {
			return nil, err
		}
		args = append(args, "-overlay", overlay)
	}
	out, err := exec.Command("go", append(args, "./bench/controllers", "-scenarios")...).Output()
	if exit, ok := err.(*exec.ExitError); ok {
		first, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n# ")
		return nil, fmt.Errorf("does not run: %s", first)
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(out, &all)
}

// allChanges returns the mechanisms that are turned off, and every constant with half and twice its
// value.
func allChanges() (all []change, err error) {
	for block := range strings.SplitSeq(strings.TrimSpace(mechanisms), "\n\n") {
		lines := strings.Split(block, "\n")
		c := change{name: "off: " + lines[0], file: lines[1]}
		var was, now []string
		for _, line := range lines[2:] {
			if old, ok := strings.CutPrefix(line, "- "); ok {
				was = append(was, old)
			} else {
				now = append(now, strings.TrimPrefix(strings.TrimPrefix(line, "+"), " "))
			}
		}
		text, err := os.ReadFile(c.file)
		if err != nil {
			return nil, err
		}
		old := strings.Join(was, "\n")
		if strings.Count(string(text), old) != 1 {
			return nil, fmt.Errorf("mechanisms.txt: %s does not have once %q", c.file, old)
		}
		c.text = strings.Replace(string(text), old, strings.Join(now, "\n"), 1)
		all = append(all, c)
	}
	for _, file := range files {
		constants, err := constantsOf(file)
		if err != nil {
			return nil, err
		}
		all = append(all, constants...)
	}
	return all, nil
}

// constantsOf returns the changes of a file's constants.
func constantsOf(file string) (all []change, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	for _, d := range parsed.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.ValueSpec)
			for k, value := range spec.Values {
				was := string(text[at(value.Pos()):at(value.End())])
				if strings.Contains(was, "iota") || strings.HasPrefix(was, `"`) {
					continue
				}
				for _, factor := range []string{"/ 2", "* 2"} {
					all = append(all, change{
						name: fmt.Sprintf("%s %s %s", filepath.Base(file), spec.Names[k].Name, factor),
						file: file,
						text: string(text[:at(value.Pos())]) + "(" + was + ") " + factor +
							string(text[at(value.End()):]),
					})
				}
			}
		}
	}
	return all, nil
}
