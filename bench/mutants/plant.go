package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/bench/mutants/room"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/interleave"
)

//go:embed helpers.txt
var helpers string

// tags are those with which the suites run.
const tags = "invariants"

// planted is the module with all mutants of some rooms planted in it at once, as files that the go
// command reads instead of the module's own (-overlay). Each can be switched on while a test runs,
// so that packages are compiled once and not once per mutant.
type planted struct {
	root, out string
	race      bool // compile with the race detector
	rooms     []room.Room
	mutants   []*Mutant
	python    []*patch
	sources   map[string][]*source // by directory
	discarded map[*Mutant]bool     // those that do not compile
	replace   map[string]string    // what was written, by what it replaces
}

func plant(root, out string, rooms []room.Room) (*planted, error) {
	p := &planted{
		root: root, out: out, rooms: rooms, sources: map[string][]*source{},
		discarded: map[*Mutant]bool{},
	}
	patches, err := readPatches(filepath.Join(root, "bench/mutants/patches"))
	if err != nil {
		return nil, err
	}
	files, err := goFiles(root, rooms)
	if err != nil {
		return nil, err
	}
	for _, r := range rooms {
		for _, dir := range r.Packages {
			if err := p.plantIn(r, dir, files[dir], patches[r.Name]); err != nil {
				return nil, err
			}
		}
		for _, patch := range patches[r.Name] {
			if patch.python() {
				p.python = append(p.python, patch)
			} else if !slices.Contains(r.Packages, filepath.Dir(patch.file)) {
				return nil, fmt.Errorf("%s: %s is not in room %s", patch.where, patch.file, r.Name)
			}
		}
	}
	return p, nil
}

// plantIn plants the mutants of a package in its files.
func (p *planted) plantIn(r room.Room, dir string, names []string, patches []*patch) error {
	count := 0
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(p.root, dir, name))
		if err != nil {
			return err
		}
		s, err := parse(filepath.Join(dir, name), string(text))
		if err != nil {
			return err
		}
		for _, patch := range patches {
			if patch.file == s.name {
				if _, err := s.patch(patch); err != nil {
					return err
				}
			}
		}
		s.mutate()
		for _, m := range s.mutants {
			m.Room = r.Name
			m.Dir = dir
			m.id = count
			m.Security = m.Security || slices.Contains(room.Secure, s.name)
			count++
		}
		p.sources[dir] = append(p.sources[dir], s)
		p.mutants = append(p.mutants, s.mutants...)
	}
	return nil
}

// goFiles returns the names of the files of rooms' packages, by directory, as they are compiled for
// the suites.
func goFiles(root string, rooms []room.Room) (map[string][]string, error) {
	args := []string{"list", "-tags", tags, "-f", `{{.Dir}}|{{join .GoFiles "|"}}`}
	files := map[string][]string{}
	for _, r := range rooms {
		for _, dir := range r.Packages {
			args = append(args, "./"+dir)
		}
	}
	if len(args) == 5 { // the Python package alone
		return files, nil
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		names := strings.Split(strings.TrimSpace(line), "|")
		dir, err := filepath.Rel(root, names[0])
		if err != nil {
			return nil, err
		}
		files[dir] = names[1:]
	}
	return files, nil
}

func (p *planted) raceFlag() string { return fmt.Sprintf("-race=%v", p.race) }

func (p *planted) overlay() string { return filepath.Join(p.out, "overlay.json") }

// simulation is the suite whose goroutines yield between their statements.
const simulation = "internal/lab/clustersim"

// overlayOf returns what the tests of a package are compiled with.
func (p *planted) overlayOf(dir string) (string, error) {
	if dir != simulation {
		return p.overlay(), nil
	}
	name := filepath.Join(p.out, "overlay-simulation.json")
	replace := maps.Clone(p.replace)
	err := interleave.Overlay(p.root, "./"+dir, tags, filepath.Join(p.out, "_points"), replace)
	if err != nil {
		return "", err
	}
	return name, writeOverlay(name, replace)
}

func writeOverlay(name string, replace map[string]string) error {
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// write writes the files and the list of what they replace.
func (p *planted) write() error {
	replace := map[string]string{}
	add := func(name, text string) error {
		to := filepath.Join(p.out, "_planted", name) // "_": not a package
		replace[filepath.Join(p.root, name)] = to
		if have, err := os.ReadFile(to); err == nil && string(have) == text {
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, []byte(text), 0o644)
	}
	for dir, sources := range p.sources {
		count := 0
		for _, s := range sources {
			count += len(s.mutants)
			if err := add(s.name, s.render(p.discarded)); err != nil {
				return err
			}
		}
		text := strings.NewReplacer("PACKAGE", sources[0].file.Name.Name,
			"COUNT", strconv.Itoa(count), "DIR", dir).Replace(helpers)
		if err := add(filepath.Join(dir, "mutants_planted.go"), text); err != nil {
			return err
		}
	}
	p.replace = replace
	return writeOverlay(p.overlay(), replace)
}

var problem = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: (.*)$`)

// compile writes the planted files, and discards mutants that do not compile: all automatic ones of
// a line with an error. It fails if a mutant that was written by hand is among them.
func (p *planted) compile(ctx context.Context) error {
	args := []string{"build", "-p", "1", p.raceFlag(), "-tags", tags, "-overlay", p.overlay()}
	for dir := range p.sources {
		args = append(args, "./"+dir)
	}
	slices.Sort(args[8:])
	for {
		if err := p.write(); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = p.root
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		before := len(p.discarded)
		for _, found := range problem.FindAllStringSubmatch(string(out), -1) {
			line, _ := strconv.Atoi(found[2])
			if err := p.discard(found[1], line, found[3]); err != nil {
				return err
			}
		}
		if len(p.discarded) == before {
			return errors.Join(fmt.Errorf("go build: %w", err), errors.New(string(out)))
		}
	}
}

func (p *planted) discard(file string, line int, why string) error {
	if _, name, planted := strings.Cut(file, "/_planted/"); planted {
		file = name
	}
	for _, s := range p.sources[filepath.Dir(file)] {
		if s.name != file {
			continue
		}
		for _, e := range s.edits {
			m := e.mutant
			if 1+strings.Count(s.text[:e.from], "\n") != line || p.discarded[m] {
				continue
			}
			if m.Written {
				return fmt.Errorf("%s does not compile: %s", m.Key, why)
			}
			p.discarded[m] = true
		}
	}
	return nil
}
