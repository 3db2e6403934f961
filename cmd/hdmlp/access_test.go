package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// askAccess runs the command on the thesis's example, F=10000, N=4, E=1000, with options changed by
// change.
func askAccess(t *testing.T, change func(*accessOptions)) (string, error) {
	t.Helper()
	opts := accessOptions{
		samples: 10000, nodes: 4, epochs: 1000, batch: 100, seed: 42, delta: 0.1,
		shuffle: "torch", scheme: "strided", tail: "pad", sample: -1, rank: -1, epoch: -1, step: -1,
	}
	change(&opts)
	var out bytes.Buffer
	err := runAccess(opts, &out)
	return out.String(), err
}

func TestAccessCountsFrequencies(t *testing.T) {
	out, err := askAccess(t, func(*accessOptions) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"read more than 275 times", "322.9 expected", "mean 250,",
		"expected\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	out, err = askAccess(t, func(o *accessOptions) { o.json = true })
	if err != nil {
		t.Fatal(err)
	}
	var a frequencyAnswer
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	if a.Threshold != 275 || a.Expected == nil || math.Abs(*a.Expected-322.9) > 0.05 {
		t.Errorf("%v samples expected above %d, want 322.9 above 275", a.Expected, a.Threshold)
	}
	sum, above := 0, 0
	for i, n := range a.Counts {
		if sum += n; a.Least+i > 275 {
			above += n
		}
	}
	if sum != 10000 || above != a.Drawn || math.Abs(float64(a.Drawn)-322.9) > 90 {
		t.Errorf("%d samples in all, %d above 275, %d drawn", sum, above, a.Drawn)
	}
}

func TestAccessBySampleAndByStepAgree(t *testing.T) {
	out, err := askAccess(t, func(o *accessOptions) {
		o.sample = 4711
		o.epochs = 10
		o.json = true
	})
	if err != nil {
		t.Fatal(err)
	}
	var reads readsAnswer
	if err := json.Unmarshal([]byte(out), &reads); err != nil {
		t.Fatal(err)
	}
	if len(reads.Reads) != 10 {
		t.Fatalf("%d reads in 10 epochs", len(reads.Reads))
	}
	for _, r := range reads.Reads {
		out, err := askAccess(t, func(o *accessOptions) {
			o.rank = r.Rank
			o.epoch = r.Epoch
			o.step = r.Step
			o.json = true
		})
		if err != nil {
			t.Fatal(err)
		}
		var b batchAnswer
		if err := json.Unmarshal([]byte(out), &b); err != nil {
			t.Fatal(err)
		}
		if len(b.Samples) != 25 || b.Samples[r.Index%25] != 4711 {
			t.Errorf("%+v: the batch is %v", r, b.Samples)
		}
	}
	out, err = askAccess(t, func(o *accessOptions) { o.sample, o.epoch = 4711, 3 })
	if err != nil || !strings.Contains(out, "Sample 4711 is read once in epoch 3") {
		t.Errorf("%v:\n%s", err, out)
	}
	out, err = askAccess(t, func(o *accessOptions) {
		o.samples = 5
		o.nodes = 4
		o.batch = 4
		o.tail = "drop"
		o.shuffle = "none"
		o.sample = 4
		o.epochs = 3
	})
	if err != nil || out != "Sample 4 is never read in 3 epochs.\n" {
		t.Errorf("%v:\n%s", err, out)
	}
	out, err = askAccess(t, func(o *accessOptions) {
		o.rank = 1
		o.epoch = 0
		o.step = 2
		o.shuffle = "none"
	})
	if err != nil || !strings.Contains(out,
		"Rank 1 reads 25 samples in epoch 0, step 2 of 0 to 99:\n\n  201  205  209") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestAccessNamesTheWrongFlag(t *testing.T) {
	for want, change := range map[string]func(*accessOptions){
		"--samples is 0":               func(o *accessOptions) { o.samples = 0 },
		"--nodes is 0":                 func(o *accessOptions) { o.nodes = 0 },
		`--shuffle is "fair"; allowed`: func(o *accessOptions) { o.shuffle = "fair" },
		"--epochs is 0":                func(o *accessOptions) { o.epochs = 0 },
		"--delta is -1":                func(o *accessOptions) { o.delta = -1 },
		"--delta is NaN":               func(o *accessOptions) { o.delta = math.NaN() },
		"--sample is 10000; allowed":   func(o *accessOptions) { o.sample = 10000 },
		"--rank is 4; allowed: 0 to 3": func(o *accessOptions) { o.rank = 4 },
		"--epoch is 1000; allowed": func(o *accessOptions) {
			o.rank = 0
			o.epoch = 1000
			o.step = 0
		},
		"--step is 100; allowed": func(o *accessOptions) {
			o.rank = 0
			o.epoch = 0
			o.step = 100
		},
		"--policy: perfect is a bound": func(o *accessOptions) { o.policy = "perfect" },
		`policy "odd" is unknown`:      func(o *accessOptions) { o.policy = "odd" },
		"go together":                  func(o *accessOptions) { o.rank, o.epoch = 0, 0 },
		"--step needs --rank":          func(o *accessOptions) { o.epoch, o.step = 0, 0 },
		"goes with --epoch alone":      func(o *accessOptions) { o.sample, o.rank = 0, 0 },
	} {
		out, err := askAccess(t, change)
		var input inputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("error %v, output %q; want an input error that says %q", err, out, want)
		}
	}
}

// TestFlagsMustNotBeEmpty, as a variable of the shell is that is not set: of any command.
func TestFlagsMustNotBeEmpty(t *testing.T) {
	for _, args := range [][]string{
		{"access", "--policy", ""},
		{"access", "--capacity="},
		{"probe", t.TempDir(), "--cache", ""},
		{"config", "--json", "--index-dir", ""},
		{"stats", "--job="},
	} {
		code, out, errs := statusOf(t, newRootCommand(), args...)
		if code != 2 || !strings.Contains(out+errs, " is empty; give a value, or omit it") {
			t.Errorf("%q: exit status %d: %s%s", args, code, out, errs)
		}
	}
}

func TestBinomial(t *testing.T) {
	for _, c := range []struct {
		got, want float64
	}{
		{binomial(4, 2, 0.5), 0.375},
		{binomial(1, 1, 1), 1},
		{binomial(5, 6, 0.5), 0},
		{binomialAbove(3, 1, 0.5), 0.5},
		{binomialAbove(1000, -1, 0.25), 1},
		{10000 * binomialAbove(1000, 275, 0.25), 322.9},
	} {
		if math.Abs(c.got-c.want) > 0.05*min(1, c.want)+1e-9 {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}

// TestAccessDrawsFigure31 draws the frequencies, and checks that what is expected fits what is
// drawn where batches do not divide by the number of nodes, and where ranks get different parts.
func TestAccessDrawsFigure31(t *testing.T) {
	for _, name := range []string{"f.png", "f.svg"} {
		path := filepath.Join(t.TempDir(), name)
		if code, _, errs := runCommand(t, "access", "--epochs", "50", "--out", path); code != 0 {
			t.Fatal(errs)
		}
		if data, err := os.ReadFile(path); err != nil || len(data) < 1000 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	for args, want := range map[string]string{
		"--out f.gif":             "ends in .png or .svg",
		"--out f.png --sample 3":  "leave out --sample",
		"--out /nowhere/at/f.png": "no such file",
	} {
		code, _, errs := runCommand(t, append([]string{"access"}, strings.Fields(args)...)...)
		status := 2
		if strings.Contains(args, "nowhere") {
			status = 1
		}
		if code != status || !strings.Contains(errs, want) {
			t.Errorf("%s: %d, %q", args, code, errs)
		}
	}
	if _, help, _ := runCommand(t, "access", "--help"); !strings.Contains(help, "\n  1  the FILE") {
		t.Error("the help does not have the exit status of a file that cannot be written")
	}
	for _, args := range []string{
		"--nodes 16", "--nodes 7", "--scheme imbalanced", "--scheme whole",
	} {
		code, out, errs := runCommand(t, append([]string{
			"access", "--epochs", "90", "--json", "--delta", "0.3",
		}, strings.Fields(args)...)...)
		var a frequencyAnswer
		if err := json.Unmarshal([]byte(out), &a); code != 0 || err != nil || a.Expected == nil {
			t.Fatal(args, code, errs, err)
		}
		// The standard deviation of a number of samples is below its square root.
		if off := math.Abs(float64(a.Drawn) - *a.Expected); off > 5*math.Sqrt(*a.Expected)+1 {
			t.Errorf("%s: %d samples are read more often, not %.1f", args, a.Drawn, *a.Expected)
		}
	}
}
