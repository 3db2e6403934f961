package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/study/compare"
)

// TestCompareRefusesWrongInput: before anything is started, and all mistakes at once.
func TestCompareRefusesWrongInput(t *testing.T) {
	quiet(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HDMLP_DAEMON_TEST", "1") // what it would start is the program, not these tests
	data, dir := tree(t, 40), t.TempDir()
	shards := filepath.Join(dir, "shards")
	if code, _, errs := statusOf(t, newRootCommand(), "pack", data, shards); code != 0 {
		t.Fatal(errs)
	}
	occupied := filepath.Join(dir, "occupied")
	must(t, os.Mkdir(occupied, 0o755),
		os.WriteFile(filepath.Join(occupied, keptFile), []byte("{}"), 0o644))
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"compare takes a directory"}},
		{[]string{filepath.Join(dir, "missing")}, []string{"there is no such directory"}},
		{
			[]string{
				data, "--epochs", "0", "-n", "0", "--batch", "0", "--time", "5s", "--step-time", "-1s",
			},
			[]string{
				"--epochs is 0", "--nodes is 0", "--batch is 0", "--time is 5s", "--step-time is -1s",
			},
		},
		{
			[]string{data, "--epochs", "3000000000", "--batch", "9000000000", "-n", "9000000000"},
			[]string{"--epochs is 3000000000; allowed: 1 to 2147483647", "--batch is 9", "--nodes is 9"},
		},
		{
			[]string{data, "--source-rate", "", "--out", ""},
			[]string{"--source-rate is empty", "--out is empty"},
		},
		{
			[]string{data, "-n", "2", "--batch", "8", "--samples", "40", "--memory", "1PB"},
			[]string{"--memory is 909.5 TiB, for 100 % of the dataset on 2 nodes 1.8 PiB", "available"},
		},
		{
			[]string{data, "--samples", "40", "--cache", dir, "--cache-size", "1PB"},
			[]string{"--cache-size is 909.5 TiB", "on the disk of --cache"},
		},
		{[]string{data, "--policies", "best,naive,naive"}, []string{`"best" is unknown`, "twice"}},
		{
			[]string{data, "--policies", "tfdata,tfdata:buffer=10000"},
			[]string{"tfdata is given twice"},
		},
		{[]string{data, "--policies", "all,naive"}, []string{"give all alone"}},
		{[]string{data, "--policies", "perfect"}, []string{"runs in the simulator only"}},
		{[]string{data, "--rate", "1gbit"}, []string{"one node has no link"}},
		{[]string{data, "-n", "2", "--rate", "fast"}, []string{"--rate"}},
		{[]string{data, "--source-rate", "-1"}, []string{"--source-rate"}},
		{[]string{data, "--transforms", "Resize("}, []string{"--transforms"}},
		{[]string{data, "--memory", "lots"}, []string{"--memory"}},
		{[]string{data, "--cache-size", "1GB"}, []string{"give --cache as well"}},
		{[]string{data, "--cache", filepath.Join(dir, "none")}, []string{"--cache"}},
		{[]string{data, "--samples", "10", "--time", "1m"}, []string{"--samples and --time"}},
		{[]string{data, "--samples", "41"}, []string{"--samples is 41", "40 samples"}},
		{[]string{data, "--samples", "20"}, []string{"--samples is 20", "32"}},
		{[]string{data, "-n", "2"}, []string{"40 samples", "64"}},
		{
			[]string{data, "--out", filepath.Join(data, "out")},
			[]string{"in the directory of the dataset"},
		},
		{[]string{data, "--out", occupied}, []string{"of version 0", "--again"}},
		{
			[]string{shards, "--transforms", "RandomResizedCrop(8), ToTensor()"},
			[]string{"jpg and cls", "--option fields=jpg"},
		},
		{[]string{data, "--probe-time", "1s"}, []string{"--probe-time is 1s"}},
		{
			[]string{data, "--policies", "naive,lbann_dynamic", "--memory", "1kB"},
			[]string{"lbann_dynamic cannot run here", "the dataset has", "it must hold the dataset"},
		},
	} {
		code, out, errs := statusOf(t, newRootCommand(), append([]string{"compare"}, c.args...)...)
		if code != 2 || out != "" {
			t.Errorf("%q: exit status %d, printed %q", c.args, code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(errs, want) {
				t.Errorf("%q does not say %q:\n%s", c.args, want, errs)
			}
		}
		if strings.Contains(errs, "measuring") {
			t.Errorf("%q: it has started", c.args)
		}
	}
}

// compareCommand is the command in the background.
type compareCommand struct {
	*exec.Cmd
	out bytes.Buffer
	log *logged
}

func (p *program) compare(args ...string) *compareCommand {
	p.t.Helper()
	c := &compareCommand{Cmd: p.command(append([]string{"compare"}, args...)...)}
	c.log = &logged{more: make(chan struct{}, 1)}
	c.Stdout, c.Stderr = &c.out, c.log
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// says waits until the command has said a text, and fails if it ends before.
func (c *compareCommand) says(t *testing.T, text string) {
	t.Helper()
	patience := time.NewTimer(60 * time.Second)
	defer patience.Stop()
	for !strings.Contains(c.log.String(), text) {
		select {
		case <-c.log.more:
		case <-patience.C:
			t.Fatalf("it does not say %q:\n%s", text, c.log.String())
		}
	}
}

// status waits for the end, and returns the exit status.
func (c *compareCommand) status() int {
	_ = c.Wait()
	return c.ProcessState.ExitCode()
}

// TestCompareGoesOnAfterAnInterruption runs two policies on two nodes, interrupts the second, and
// gives the command again: nothing runs twice, and what was measured is what the engine must do.
func TestCompareGoesOnAfterAnInterruption(t *testing.T) {
	p := newDevProgram(t)
	scratch := t.TempDir()
	p.env = append(p.env, "TMPDIR="+scratch)
	data, dir := tree(t, 64), filepath.Join(t.TempDir(), "out")
	here, err := os.Getwd()
	must(t, err)
	cache := t.TempDir()
	relative, err := filepath.Rel(here, cache)
	must(t, err)
	args := []string{
		data, "--cache", relative, "--cache-size", "1MB",
		"--policies", "naive,cooperative", "--epochs", "2", "-n", "2", "--batch", "8",
		"--samples", "64", "--probe-time", "2s", "--memory", "1MB", "--source-rate", "6kB/s",
		"--out", dir, "--index-dir", t.TempDir(), "--seed", "3",
	}
	first := p.compare(args...)
	first.says(t, "1 of 2  naive")
	must(t, first.Process.Signal(syscall.SIGINT))
	if code := first.status(); code != 130 {
		t.Fatalf("exit status %d: %s", code, first.log)
	}
	for _, want := range []string{"about", "2 policies, 2 epochs, 64 samples on 2 nodes"} {
		if !strings.Contains(first.log.String(), want) {
			t.Errorf("it does not say %q first: %s", want, first.log)
		}
	}
	for _, want := range []string{"Interrupted: 1 of 2 policies", "Saved: " + dir, "naive"} {
		if !strings.Contains(first.out.String(), want) {
			t.Errorf("it does not print %q:\n%s", want, first.out.String())
		}
	}
	for line := range strings.Lines(first.out.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 && !strings.Contains(line, dir) &&
			!strings.Contains(line, data) {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	// As on a machine with other memory, and then without privileges.
	saved := filepath.Join(dir, keptFile)
	change := func(change func(k *compare.Kept)) {
		t.Helper()
		data, err := os.ReadFile(saved)
		must(t, err)
		k, err := compare.ReadKept(data)
		must(t, err)
		change(k)
		data, err = k.Encode()
		must(t, err, os.WriteFile(saved, data, 0o600))
	}
	network := ""
	change(func(k *compare.Kept) {
		k.Capacity[0] = 2e6
		network, k.Network = k.Network, "other networks"
	})
	code, out, errs := p.run(append([]string{"compare"}, args...)...)
	if code != 2 || out != "" || !strings.Contains(errs, "nodes that are other networks") {
		t.Errorf("on another network: exit status %d: %s%s", code, out, errs)
	}
	change(func(k *compare.Kept) { k.Network = network })
	second := p.compare(append(args, "--json")...)
	second.says(t, "1 policy, 2 epochs")
	code, out, errs = p.run(append([]string{"compare"}, args...)...)
	if code != 2 || out != "" || !strings.Contains(errs, "another hdmlp compare writes to "+dir) {
		t.Errorf("at the same time: exit status %d: %s%s", code, out, errs)
	}
	if code := second.status(); code != 0 {
		t.Fatalf("exit status %d: %s", code, second.log)
	}
	if text := second.log.String(); strings.Contains(text, "measuring") ||
		strings.Contains(text, "naive:") || !strings.Contains(text, "1 of 1  cooperative") {
		t.Errorf("the second time it says %s", text)
	}
	var c compare.Comparison
	must(t, json.Unmarshal(second.out.Bytes(), &c))
	bytes := 0.0 // MB of an epoch
	for i := range 64 {
		bytes += float64(2*(50+i)) / 1e6
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s: %v; want %v", what, got, want)
		}
	}
	if len(c.Rows) != 2 || c.Interrupted || c.Measured() != 2 || !c.Shared {
		t.Fatalf("the result is %+v", c)
	}
	if caches := c.Facts[len(c.Facts)-1].Value; !strings.Contains(caches, "memory of 2.0 MB") {
		t.Errorf("it does not go on with the caches that are saved: %s", caches)
	}
	naive, cooperative := c.Rows[0].Measured, c.Rows[1].Measured
	near("MB that naive reads from the source", naive.SourceMB, 2*bytes)
	near("MB that cooperative reads from the source", cooperative.SourceMB, bytes)
	near("the bound", c.Bound, bytes)
	for _, r := range []*compare.Run{naive, cooperative} {
		all := 0.0
		for _, mb := range r.Tiers {
			all += mb
		}
		near("MB that ranks were given of "+r.Policy, all, 2*bytes)
		if !r.Audited || !r.SameBatches || r.Seen != 1 || len(r.Epochs) != 2 || r.Replayed == nil {
			t.Errorf("%s: %+v", r.Policy, r)
		}
		if s := r.Runtime; s < r.SourceMB/0.006*0.9 {
			t.Errorf("%s: %v MB in %v s are more than 6 kB/s", r.Policy, r.SourceMB, s)
		}
	}
	code, out, errs = p.run(append([]string{"compare"}, append(args, "--batch", "4")...)...)
	if code != 2 || out != "" || !strings.Contains(errs, `--batch is "8" there and "4" here`) {
		t.Errorf("with other settings: exit status %d: %s%s", code, out, errs)
	}
	for _, dir := range []string{scratch, cache} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind in %s: %v, %v", dir, left, err)
		}
	}
}

// TestCompareOfManyEpochs: of more than nodes keep audits of, and than a report has.
func TestCompareOfManyEpochs(t *testing.T) {
	p := newDevProgram(t)
	data, dir := tree(t, 32), filepath.Join(t.TempDir(), "out")
	// The page cannot be written, and what ran is shown.
	must(t, os.MkdirAll(filepath.Join(dir, "index.html"), 0o755))
	c := p.compare(data, "--policies", "naive", "--epochs", "70", "--batch", "16", "--samples", "32",
		"--probe-time", "2s", "--memory", "0", "--out", dir, "--index-dir", t.TempDir(), "--json")
	if code := c.status(); code != 1 || !strings.Contains(c.log.String(), "index.html") {
		t.Errorf("exit status %d: %s", code, c.log)
	}
	var result compare.Comparison
	must(t, json.Unmarshal(c.out.Bytes(), &result))
	r := result.Rows[0].Measured
	if r == nil || !r.Audited || len(r.Epochs) != 70 || result.Dir != "" {
		t.Fatalf("the result is %s", c.out.String())
	}
	if r.Replayed != nil || r.Unplayed != "the run's report has 64 of its 70 epochs" {
		t.Errorf("it was replayed as %+v, %q", r.Replayed, r.Unplayed)
	}
}

// TestCompareLeavesNothingWhenItIsKilled: neither files nor caches.
func TestCompareLeavesNothingWhenItIsKilled(t *testing.T) {
	p := newDevProgram(t)
	scratch, cache := t.TempDir(), t.TempDir()
	p.env = append(p.env, "TMPDIR="+scratch)
	c := p.compare(tree(t, 32), "--policies", "naive", "--batch", "16", "--samples", "32", "-n", "2",
		"--probe-time", "2s", "--source-rate", "1kB/s", "--cache", cache, "--cache-size", "1MB",
		"--out", t.TempDir(), "--index-dir", t.TempDir())
	c.says(t, "1 policy")
	must(t, c.Process.Kill())
	_ = c.Wait()
	for _, dir := range []string{scratch, cache} {
		testkit.Until(t, "nothing is left", func() bool {
			left, err := os.ReadDir(dir)
			return err == nil && len(left) == 0
		})
	}
}

// TestComparedSourceReadsItsPart: by the numbers of the part, past the page cache, and with the
// comparison's environment.
func TestComparedSourceReadsItsPart(t *testing.T) {
	data := tree(t, 20)
	kind, err := sourceKind("folder")
	must(t, err)
	page, err := createComparePage(filepath.Join(t.TempDir(), "page"))
	must(t, err)
	defer page.Close()
	limits := &compareLimits{
		page: page, part: []int32{3, 4, 17}, rate: 1e6, environment: []byte("[environment]\n"),
		counts: new(pageCounts),
	}
	o := source.OpenOptions{
		Values: option.Values{source.IndexDirKey: t.TempDir()}, Warn: func(string) {},
		Tell: func(string) {},
	}
	whole, err := kind.Open(t.Context(), data, o)
	must(t, err)
	defer whole.Close()
	src, err := limits.compared(kind).Open(t.Context(), data, o)
	must(t, err)
	defer src.Close()
	if src.Index().Len() != 3 {
		t.Fatalf("it has %d samples", src.Index().Len())
	}
	for i, id := range limits.part {
		want := make([]byte, whole.Index().Size(int(id)))
		_, err := whole.Read(t.Context(), int(id), want)
		must(t, err)
		got := make([]byte, src.Index().Size(i))
		stamp, err := src.Read(t.Context(), i, got)
		must(t, err)
		now, err := src.Stat(t.Context(), i)
		must(t, err)
		if !bytes.Equal(got, want) || stamp != src.Index().Stamp(i) || now != stamp {
			t.Errorf("sample %d is not %d of the dataset", i, id)
		}
		if pathsOf(src)(i) != pathsOf(whole)(int(id)) {
			t.Errorf("sample %d is said to be %s", i, pathsOf(src)(i))
		}
		prober, _ := source.As[source.Prober](src)
		must(t, prober.Probe(t.Context(), i))
	}
	if n := limits.counts.reads.Load(); n != 3 || !limits.counts.applies.Load() {
		t.Errorf("%d reads are counted", n)
	}
	beside, ok := source.As[source.Beside](src)
	if !ok {
		t.Fatal("nothing is beside it")
	}
	got, _, err := beside.ReadBeside(envfile.Suffix, 1000, func([]byte) error { return nil })
	if err != nil || string(got) != "[environment]\n" {
		t.Errorf("beside it is %q: %v", got, err)
	}
	_, err = beside.WriteBeside(envfile.Suffix, []byte("x"))
	must(t, err)
	stored, _ := source.As[source.Beside](whole)
	_, path, _ := stored.ReadBeside(envfile.Suffix, 1000, func([]byte) error { return nil })
	if path != "" {
		t.Errorf("it has stored %s", path)
	}
	limits.version = "another"
	if _, err := limits.compared(kind).Open(t.Context(), data, o); err == nil ||
		!strings.Contains(err.Error(), "has changed") {
		t.Errorf("another version of the dataset was opened: %v", err)
	}
	limits.version = ""
	limits.part = []int32{5, 4}
	if _, err := limits.compared(kind).Open(t.Context(), data, o); err == nil {
		t.Error("a part that is not in order was opened")
	}
}

// TestBarrierHoldsAllUntilTheLast: no process is a step ahead.
func TestBarrierHoldsAllUntilTheLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	first, err := createComparePage(path)
	must(t, err)
	defer first.Close()
	const processes, steps = 4, 500
	var all sync.WaitGroup
	for node := range processes {
		page, err := openComparePage(path) // as another process has it
		must(t, err)
		defer page.Close()
		all.Go(func() {
			for k := range int64(steps) {
				page.steps(node).Store(k)
				if err := page.barrier(t.Context(), processes); err != nil {
					t.Error(err)
					return
				}
				for other := range processes {
					if at := page.steps(other).Load(); at < k {
						t.Errorf("node %d passes step %d, and node %d is at %d", node, k, other, at)
						return
					}
				}
				if err := page.barrier(t.Context(), processes); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestLimitIsSharedByAll: what several take at the same time follows one another.
func TestLimitIsSharedByAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	page, err := createComparePage(path)
	must(t, err)
	defer page.Close()
	other, err := openComparePage(path)
	must(t, err)
	defer other.Close()
	const rate, each = 1.0, 5_000_000 // MB/s, and bytes: 5 s
	begun := monotonic()
	ends := []int64{page.reserve(each, rate), other.reserve(each, rate), page.reserve(each, rate)}
	for k, end := range ends {
		if k > 0 && end-ends[k-1] != 5e9 {
			t.Errorf("read %d ends %d ns after the one before", k, end-ends[k-1])
		}
		if end < begun+int64(k+1)*5e9 {
			t.Errorf("read %d ends after %d ns", k, end-begun)
		}
	}
}

// TestSameBatchesAreThoseOfTheStream, whichever node has which of their samples.
func TestSameBatchesAreThoseOfTheStream(t *testing.T) {
	stream, err := access.New(access.Spec{
		Samples: 22, Seed: 5, Epochs: 2, WorldSize: 2, GlobalBatch: 6,
	})
	must(t, err)
	batches := make([][][]int32, 2)
	for e := range 2 {
		for step := range stream.Steps() {
			for rank := range batches {
				batches[1-rank] = append(batches[1-rank], stream.Epoch(e).Batch(nil, rank, step))
			}
		}
	}
	if !sameBatches(stream, batches) {
		t.Error("batches that the nodes have exchanged are others")
	}
	one, other := batches[0][2], batches[0][3]
	one[0], other[0] = other[0], one[0]
	if sameBatches(stream, batches) {
		t.Error("samples of two steps that are exchanged make no difference")
	}
}

func TestReadOrder(t *testing.T) {
	encode := func(words ...uint32) (data []byte) {
		for _, w := range words {
			data = binary.LittleEndian.AppendUint32(data, w)
		}
		return data
	}
	for name, c := range map[string]struct {
		data    []byte
		samples int
		want    [][]int32
		wrong   string
	}{
		"nothing": {},
		"all samples": {
			encode(2, 7, 1, 0), 8, [][]int32{{7, 1}, {}}, "",
		},
		"beyond":        {encode(1, 8), 8, nil, "no sample 8"},
		"cut":           {encode(2, 7), 8, nil, "in the middle"},
		"a cut heading": {encode(0)[:3], 8, nil, "in the middle"},
	} {
		got, err := readOrder(c.data, c.samples)
		switch {
		case c.wrong == "" && (err != nil || !reflect.DeepEqual(got, c.want)):
			t.Errorf("%s: %v, %v", name, got, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v; want %q", name, err, c.wrong)
		}
	}
}
