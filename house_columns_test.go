package house_test

import (
	"bytes"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxColumns = 100
	tabColumns = 2
)

// skippedDirs are folders whose files are built, fetched or test data.
var skippedDirs = []string{"build", "dist", "testdata", "site", "__pycache__", "bin"}

// columns is the width of a line. A byte that is not UTF-8 counts as one column.
func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// longLines returns the numbers, from 1, of the lines of src that are too long for a file of this
// name.
func longLines(name string, src []byte) []int {
	exempt := func(int, string) bool { return false }
	switch filepath.Ext(name) {
	case ".go":
		raw := rawStringLines(src)
		exempt = func(n int, line string) bool {
			return raw[n] || strings.HasPrefix(line, "//go:generate ")
		}
	case ".md":
		fenced := false
		exempt = func(_ int, line string) bool {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				fenced = !fenced
			}
			return fenced || strings.HasPrefix(line, "    ") || strings.HasPrefix(text, "|") ||
				strings.Contains(text, "](") || strings.Contains(text, "://")
		}
	}
	var long []int
	n := 0
	for line := range strings.Lines(string(src)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if !exempt(n, line) && columns(line) > maxColumns {
			long = append(long, n)
		}
	}
	return long
}

// rawStringLines returns the lines of Go source on which raw strings stand.
func rawStringLines(src []byte) map[int]bool {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && text[0] == '`' {
			first := file.Line(pos)
			for k := range strings.Count(text, "\n") + 1 {
				lines[first+k] = true
			}
		}
	}
}

func TestNoLineHasMoreThan100Columns(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			hidden := strings.HasPrefix(base, ".") && base != "." && base != ".github"
			if hidden || slices.Contains(skippedDirs, base) {
				return fs.SkipDir
			}
			return nil
		}
		checks := slices.Contains([]string{".go", ".py", ".pyi", ".c", ".h", ".md"},
			filepath.Ext(name))
		if !checks || !d.Type().IsRegular() {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if generated(src) {
			return nil
		}
		checked++
		long := longLines(name, src)
		switch listed := slices.Contains(wide, name); {
		case len(long) > 0 && !listed:
			t.Errorf("%s: lines of more than %d columns (a tab counts %d): %v", name, maxColumns,
				tabColumns, long)
		case len(long) == 0 && listed:
			t.Errorf("%s has no long line any more: remove it from the list", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range wide {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("a file in the list cannot be found: %v", err)
		}
	}
	if checked < 500 {
		t.Errorf("only %d files were checked", checked)
	}
}

func TestLongLinesOfCodeAndProseAreFound(t *testing.T) {
	x := strings.Repeat("x", maxColumns)
	lines := func(l ...string) []byte { return []byte(strings.Join(l, "\n") + "\n") }
	for _, c := range []struct {
		name string
		src  []byte
		want []int
	}{
		{"a.go", lines("package a", "// "+x, "//go:generate "+x, "var _ = 0 // end"), []int{2}},
		{"a.go", lines("var a = `", x+"x", "`", "var b = \""+x+"\"", "// `", x+"x"), []int{4, 6}},
		{"a.go", lines("\t"+x[2:], "\t"+x[1:]), []int{2}},
		{"a.c", lines(x, x+"x", strings.Repeat("é", maxColumns)), []int{2}},
		{"a.md", lines("| "+x, "```", x+"x", "```", x+"x", "[l](l) "+x, "    "+x), []int{5}},
		{"a.py", bytes.Repeat([]byte(x+"x\n"), 2), []int{1, 2}},
	} {
		if got := longLines(c.name, c.src); !slices.Equal(got, c.want) {
			t.Errorf("%s: long lines %v, want %v:\n%s", c.name, got, c.want, c.src)
		}
	}
}

// wide are the files that still have lines of more than maxColumns columns. The list is exact: a
// file whose last long line is wrapped leaves it, and no file is to be added.
var wide = strings.Fields(`
bench/chart.py
bench/clusters.py
bench/demo.py
bench/demo_rank.py
bench/faults/api.py
bench/faults/cache.py
bench/faults/cache_damage.py
bench/faults/client.py
bench/faults/cluster.py
bench/faults/floods.py
bench/faults/handles.py
bench/faults/harness.py
bench/faults/hostile_files.py
bench/faults/hostile_index.py
bench/faults/hostile_pictures.py
bench/faults/identity.py
bench/faults/judge.py
bench/faults/limits.py
bench/faults/oracle.py
bench/faults/processes.py
bench/faults/report.py
bench/faults/rewritten.py
bench/faults/run.py
bench/faults/sockets.py
bench/faults/source.py
bench/faults/states.py
bench/faults/verdicts.py
bench/frameworks.py
bench/loaders.py
bench/make_dataset.py
bench/namespaces.py
bench/newest.py
bench/outcomes.py
bench/pipelines.py
bench/rank.py
bench/rounds.py
bench/run.py
bench/scenarios.py
bench/tests/conftest.py
bench/tests/test_bench.py
bench/throttled.py
cmd/hdmlp/simulate_test.go
docs/FORMATS.md
docs/PERFORMANCE.md
docs/RELIABILITY.md
docs/SECURITY.md
examples/train.py
examples/train_torch.py
internal/config/directory_test.go
internal/exchange/turns.go
internal/simulate/model_events.go
internal/simulate/render/page/page_test.go
internal/transform/codec/codec.go
internal/transform/codec/entropy.c
internal/transform/codec/entropy.h
internal/transform/codec/fuzz_test.go
internal/transform/codec/jpeg.c
internal/transform/codec/jpeg.h
internal/transform/codec/limits_test.go
internal/transform/codec/png.c
internal/transform/codec/png.h
internal/transform/codec/webp.c
internal/transform/codec/webp.h
internal/transform/codec/webp_cgo.go
internal/transform/color_jitter.go
internal/transform/pixels/kernels.h
internal/transform/pixels/pack.c
internal/transform/pixels/passes.h
internal/transform/pixels/passes_avx2.c
internal/transform/pixels/passes_avx512.c
internal/transform/pixels/resize.c
internal/transform/ragged.go
internal/transform/reshape.go
internal/transform/resize.go
internal/transform/transform.go
internal/transform/worker.go
python/frameworks/common.py
python/frameworks/conftest.py
python/frameworks/matrix.py
python/frameworks/test_accelerate.py
python/frameworks/test_lightning.py
python/frameworks/test_loops.py
python/frameworks/test_readme.py
python/frameworks/time_epochs.py
python/frameworks/train_accelerate.py
python/frameworks/train_fabric.py
python/frameworks/train_lightning.py
python/frameworks/train_timm.py
python/frameworks/train_torchdata.py
python/frameworks/train_torchvision.py
python/hdmlp/_source.py
python/tests/conftest.py
python/tests/dropin.py
python/tests/flood.py
python/tests/hosts.py
python/tests/identities.py
python/tests/items.py
python/tests/launched.py
python/tests/nodes.py
python/tests/peer.py
python/tests/rank_of_nodes.py
python/tests/rank_of_restarts.py
python/tests/recorded.py
python/tests/reference.py
python/tests/test_ahead.py
python/tests/test_bad_files.py
python/tests/test_bad_samplers.py
python/tests/test_cache_command.py
python/tests/test_daemon.py
python/tests/test_datasets.py
python/tests/test_dropin.py
python/tests/test_dropin_folder.py
python/tests/test_dropin_loops.py
python/tests/test_dropin_orders.py
python/tests/test_epoch_ends.py
python/tests/test_errors.py
python/tests/test_fallback.py
python/tests/test_foreign.py
python/tests/test_groups.py
python/tests/test_guides.py
python/tests/test_hostile.py
python/tests/test_identity.py
python/tests/test_identity_mounts.py
python/tests/test_launcher.py
python/tests/test_launchers.py
python/tests/test_limits.py
python/tests/test_memory.py
python/tests/test_nodes.py
python/tests/test_nodes_bytes.py
python/tests/test_nodes_faults.py
python/tests/test_nodes_flood.py
python/tests/test_nodes_identity.py
python/tests/test_nodes_parts.py
python/tests/test_nodes_reports.py
python/tests/test_nodes_restart.py
python/tests/test_nodes_samplers.py
python/tests/test_nodes_start.py
python/tests/test_offload.py
python/tests/test_offload_faults.py
python/tests/test_offload_long.py
python/tests/test_offload_rest.py
python/tests/test_on_error.py
python/tests/test_oom.py
python/tests/test_orders.py
python/tests/test_processors.py
python/tests/test_property.py
python/tests/test_ragged.py
python/tests/test_ranks.py
python/tests/test_raw.py
python/tests/test_samplers_given.py
python/tests/test_samplers_lazy.py
python/tests/test_socket.py
python/tests/test_stall.py
python/tests/test_stops.py
python/tests/test_stream.py
python/tests/test_timelimit.py
python/tests/test_timm.py
python/tests/test_train.py
python/tests/test_worker_info.py
python/tests/test_workers.py
python/tests/timelimit.py
`)
