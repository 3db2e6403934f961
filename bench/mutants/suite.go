package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// suite is the tests of a package, compiled with the mutants planted.
type suite struct {
	root, dir string
	binary    string
	flags     []string // of every run
	seeds     uint64   // whose scripts are tests, in blocks
	scripts   int      // in blocks that reach a mutant, with which it is tried
	Hash      string   // of the binary, the flags, and how many seeds there are
	Complete  bool     // all tests have been run
	Tests     []test
}

// test is what is known of a test without any mutant switched on.
type test struct {
	Name    string
	Seed    uint64 `json:",omitempty"` // the first of a block of TestSeeds; 0: another test
	Seconds float64
	Failed  bool     // even so: it can find nothing
	Reached []string // mutants, as DIR:NUMBER
}

// compileSuite compiles the tests of a package, and has each run once to learn which mutants it
// reaches, unless that is known from an earlier run of the same binary.
func (p *planted) compileSuite(ctx context.Context, dir string, c *campaign) (*suite, error) {
	flat := strings.ReplaceAll(dir, "/", "-")
	s := &suite{
		root: p.root, dir: dir, binary: filepath.Join(p.out, flat+".test"), seeds: c.seeds,
		scripts: c.scripts,
	}
	overlay, err := p.overlayOf(dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-p", "1", p.raceFlag(), "-tags", tags,
		"-vet=off", "-overlay", overlay, "-o", s.binary, "./"+dir)
	cmd.Dir = p.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("compile the tests of %s: %w", dir, err),
			errors.New(string(out)))
	}
	if _, err := os.Stat(s.binary); errors.Is(err, os.ErrNotExist) {
		return s, nil // there are no tests
	}
	text, err := os.ReadFile(s.binary)
	if err != nil {
		return nil, err
	}
	s.flags = slices.Clone(c.flags)
	if bytes.Contains(text, []byte(noFiles)) {
		s.flags = append(s.flags, "-"+noFiles)
	}
	hash := fmt.Sprint(hashOf(text), c.seeds, strings.Join(c.flags, " "))
	known := filepath.Join(p.out, flat+".json")
	if text, err := os.ReadFile(known); err == nil {
		if json.Unmarshal(text, s) == nil && s.Hash == hash && s.Complete {
			return s, nil
		}
	}
	if s.Hash != hash {
		s.Hash, s.Tests = hash, nil
	}
	err = s.reach(ctx)
	text, marshalErr := json.Marshal(s)
	if marshalErr == nil {
		marshalErr = os.WriteFile(known, text, 0o644)
	}
	return s, errors.Join(err, marshalErr)
}

// key names what a mutant is tried with.
func (s *suite) key() string {
	if s.seeds == 0 {
		return s.Hash
	}
	return fmt.Sprint(s.Hash, " ", s.scripts)
}

// noFiles is the flag that keeps package rapid from writing what failed to the package's directory,
// from where the next run would try it first.
const noFiles = "rapid.nofailfile"

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// slowest is how long a test may take that no mutant disturbs.
const slowest = 5 * time.Minute

// reach runs each test alone, and notes which mutants it reaches.
func (s *suite) reach(ctx context.Context) error {
	out, _, err := s.run(ctx, slowest, "", "-test.list", "^(Test|Example|Fuzz)")
	if err != nil {
		return fmt.Errorf("list the tests of %s: %w\n%s", s.dir, err, out)
	}
	notes := s.binary + ".reached"
	defer os.Remove(notes)
	var all []test
	for _, name := range strings.Fields(out) {
		if name != seeded {
			all = append(all, test{Name: name})
			continue
		}
		for seed := uint64(1); seed <= s.seeds; seed += block {
			all = append(all, test{Name: name, Seed: seed})
		}
	}
	for _, t := range all[len(s.Tests):] { // those before it ran in a call that was interrupted
		if err := os.WriteFile(notes, nil, 0o644); err != nil {
			return err
		}
		out, took, err := s.run(ctx, slowest, "reached:"+notes, arguments([]test{t})...)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		broken := err != nil && !strings.Contains(out, leaked)
		if broken {
			fmt.Printf("%s: %s fails without any mutant: %v\n%s\n", s.dir, t.Name, err, out)
		}
		reached, readErr := os.ReadFile(notes)
		if readErr != nil {
			return readErr
		}
		t.Seconds = took.Seconds()
		t.Failed = broken
		t.Reached = strings.Fields(string(reached))
		s.Tests = append(s.Tests, t)
	}
	s.Complete = true
	return nil
}

// seeded is the test that draws scripts from seeds. A block of so many counts as a test: many reach
// few mutants.
const (
	seeded = "TestSeeds"
	block  = 10
)

// arguments returns those by which the binary runs some tests, and no further one after a failure.
func arguments(tests []test) []string {
	var names, seeds []string
	for _, t := range tests {
		if !slices.Contains(names, t.Name) {
			names = append(names, t.Name)
		}
		if t.Seed > 0 {
			for seed := range uint64(block) {
				seeds = append(seeds, strconv.FormatUint(t.Seed+seed, 10))
			}
		}
	}
	args := []string{"-test.failfast", "-test.run", "^(" + strings.Join(names, "|") + ")$"}
	if len(seeds) > 0 {
		args = append(args, "-only", strings.Join(seeds, ","), "-failures", "1", "-shrink", "0s")
	}
	return args
}

// run runs the binary in its package's directory with a mutant switched on, and ends it and what it
// has started after the given time.
func (s *suite) run(ctx context.Context, limit time.Duration, mutant string, args ...string) (
	string, time.Duration, error,
) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, slices.Concat(args, s.flags)...)
	cmd.Dir = filepath.Join(s.root, s.dir)
	cmd.Env = append(os.Environ(), "HDMLP_MUTANT="+mutant, "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	return runGroup(cmd)
}

// runGroup runs a command as a group of processes, all of which end with it.
func runGroup(cmd *exec.Cmd) (string, time.Duration, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = kill, time.Second
	begun := time.Now()
	err := cmd.Run()
	if cmd.Process != nil {
		kill() //nolint:errcheck // usually none is left
	}
	return out.String(), time.Since(begun), err
}

// reaching returns the tests that reach a mutant, the quick ones first; of scripts as many as are
// to be tried.
func (s *suite) reaching(m *Mutant) (all []test) {
	id := fmt.Sprintf("%s:%d", m.Dir, m.id)
	scripts := 0
	for _, t := range s.Tests {
		if t.Failed || t.Seed > 0 && scripts >= s.scripts || !slices.Contains(t.Reached, id) {
			continue
		}
		if all = append(all, t); t.Seed > 0 {
			scripts += block
		}
	}
	slices.SortStableFunc(all, func(a, b test) int { return cmp.Compare(a.Seconds, b.Seconds) })
	return all
}

// quick is how many seconds of tests are tried together, before each of the others alone: most
// mutants are found by one of many tests.
const quick = 2

// try runs the tests that reach a mutant with it switched on, for at most three times as long as
// they usually take, and patience in addition. It returns what found it: a test, a data race, a
// hang or a crash; "" if nothing did.
func (s *suite) try(ctx context.Context, m *Mutant, patience time.Duration) (string, error) {
	all := s.reaching(m)
	first, seconds := 0, 0.0
	for first < len(all) && (first == 0 || seconds+all[first].Seconds <= quick) {
		seconds += all[first].Seconds
		first++
	}
	rounds := [][]test{all[:first]}
	for k := first; k < len(all); {
		to := k + 1
		for to < len(all) && all[k].Seed > 0 && all[to].Seed > 0 {
			to++
		}
		rounds = append(rounds, all[k:to])
		k = to
	}
	for _, tests := range rounds {
		if by, err := s.tryWith(ctx, m, patience, tests); by != "" || err != nil {
			return by, err
		}
	}
	return "", nil
}

func (s *suite) tryWith(ctx context.Context, m *Mutant, patience time.Duration, tests []test) (
	string, error,
) {
	if len(tests) == 0 {
		return "", nil
	}
	limit, args := patience, arguments(tests)
	for _, t := range tests {
		limit += time.Duration(3 * t.Seconds * float64(time.Second))
	}
	out, took, err := s.run(ctx, limit, fmt.Sprintf("%s:%d", m.Dir, m.id), args...)
	for ; took >= limit && ctx.Err() == nil; limit *= 2 { // unless the machine is slow, it hangs
		if _, without, _ := s.run(ctx, limit, "", args...); without < limit {
			break
		}
		out, took, err = s.run(ctx, 2*limit, fmt.Sprintf("%s:%d", m.Dir, m.id), args...)
	}
	if strings.Contains(out, leaked) {
		// A few tests alone may end before goroutines that are not theirs to end have done so.
		if _, _, without := s.run(ctx, limit, "", args...); without != nil {
			err = nil
		}
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		return "", fmt.Errorf("run the tests of %s: %w", s.dir, err)
	}
	return finder(out, exit), nil
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// leaked is the beginning of goleak's output after tests that passed.
const leaked = "goleak: Errors on successful test run"

func finder(out string, exit *exec.ExitError) string {
	var status syscall.WaitStatus
	ok := exit != nil
	if ok {
		status, ok = exit.Sys().(syscall.WaitStatus)
	}
	switch name := failed.FindStringSubmatch(out); {
	case strings.Contains(out, "WARNING: DATA RACE"):
		return "the race detector"
	case ok && status.Signaled() && status.Signal() == syscall.SIGKILL:
		return "a hang"
	case name != nil:
		return name[1]
	case strings.Contains(out, leaked):
		return "a leak"
	case strings.Contains(out, "deadlock"):
		return "a deadlock"
	}
	return "a crash"
}
