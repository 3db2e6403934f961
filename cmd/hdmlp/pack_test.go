package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
)

// membersOf lists the members of shards, in their order.
func membersOf(t *testing.T, pattern string) (names []string, data map[string]string) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	must(t, err)
	data = map[string]string{}
	for _, path := range paths {
		f, err := os.Open(path)
		must(t, err)
		for r := tar.NewReader(f); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			b, err := io.ReadAll(r)
			must(t, err)
			names, data[h.Name] = append(names, h.Name), string(b)
		}
		must(t, f.Close())
	}
	return names, data
}

// TestPackedShardsHaveTheSameMembers, and as a dataset the same fields and values.
func TestPackedShardsHaveTheSameMembers(t *testing.T) {
	quiet(t)
	dir, out := someShards(t), filepath.Join(t.TempDir(), "out")
	code, printed, errs := status(t, "pack", dir, out, "--shards", "s-%02d.tar",
		"--shard-size", "8KiB")
	if code != 0 || !strings.Contains(printed, "12 samples in ") {
		t.Fatalf("exit status %d, %s, %s", code, printed, errs)
	}
	names, data := membersOf(t, filepath.Join(dir, "*.tar"))
	packedNames, packed := membersOf(t, filepath.Join(out, "s-*.tar"))
	if diff := cmp.Diff(names, packedNames); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(data, packed); diff != "" {
		t.Error(diff)
	}
	before, after := viewOf(t, dir), viewOf(t, out)
	if diff := cmp.Diff(before.Fields, after.Fields); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before.Columns, after.Columns); diff != "" {
		t.Error(diff)
	}
}

// TestPackIsInTheOrderOfAJob: the global batches from the state's position on, then those of the
// next epoch that did not come up; or a list's.
func TestPackIsInTheOrderOfAJob(t *testing.T) {
	quiet(t)
	dir := someShards(t)
	state := map[string]any{
		"version": 1, "epoch": 3, "step": 1, "steps": 2, "samples": 12, "seed": 7, "subset": nil,
		"fingerprint": viewOf(t, dir).Fingerprint, "shuffle": "torch", "scheme": "strided",
		"tail": "pad", "drop_last": true, "global_batch": 5,
	}
	stream, err := access.New(access.Spec{
		Samples: 12, Seed: 7, WorldSize: 1, GlobalBatch: 5, DropLast: true,
	})
	must(t, err)
	var want []string
	seen := map[int32]bool{}
	for _, at := range [][2]int{{3, 1}, {4, 0}, {4, 1}, {5, 0}, {5, 1}, {6, 0}, {6, 1}, {7, 0}} {
		for _, id := range stream.Epoch(at[0]).Global(nil, at[1]) {
			if !seen[id] {
				seen[id] = true
				want = append(want, fmt.Sprintf("a/%05d", id))
			}
		}
	}
	if len(want) != 12 {
		t.Fatalf("%q", want)
	}
	like := func(value any) []string {
		file, out := filepath.Join(t.TempDir(), "like"), filepath.Join(t.TempDir(), "out")
		text, err := json.Marshal(value)
		must(t, err, os.WriteFile(file, text, 0o644))
		code, _, errs := status(t, "pack", dir, out, "--like", file)
		if code != 0 {
			t.Fatalf("exit status %d, %s", code, errs)
		}
		names, _ := membersOf(t, filepath.Join(out, "*.tar"))
		var keys []string
		for _, name := range names {
			key, _, _ := strings.Cut(name, ".")
			if len(keys) == 0 || keys[len(keys)-1] != key {
				keys = append(keys, key)
			}
		}
		return keys
	}
	if diff := cmp.Diff(want, like(state)); diff != "" {
		t.Error(diff)
	}
	if got := like([]int{11, 3, 3}); got[0] != "a/00011" || got[1] != "a/00003" ||
		got[2] != "a/00000" || len(got) != 12 {
		t.Errorf("%q", got)
	}
}

// TestPackRefusesWrongInput with what is wrong, and what to do; nothing is written.
func TestPackRefusesWrongInput(t *testing.T) {
	quiet(t)
	dir, out := someShards(t), filepath.Join(t.TempDir(), "out")
	fingerprint := viewOf(t, dir).Fingerprint
	used := t.TempDir()
	must(t, os.WriteFile(filepath.Join(used, "mine"), nil, 0o644))
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "like")
		must(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	like := func(text string) []string { return []string{dir, out, "--like", file(text)} }
	for want, args := range map[string][]string{
		"takes a dataset and a directory":  {dir},
		"there is no such directory":       {filepath.Join(dir, "none"), out},
		"is in the directory of the":       {dir, filepath.Join(dir, "out")},
		"is not empty":                     {dir, used},
		"no such file or directory":        {dir, filepath.Join(out, "below", "it")},
		"--shard-size":                     {dir, out, "--shard-size", "large"},
		"the pattern of shards is":         {dir, out, "--shards", "all.tar"},
		"give OLD=NEW":                     {dir, out, "--rename", "jpg"},
		"rename one of them":               {dir, out, "--rename", "jpg=cls"},
		"cannot be called so in a shard":   {dir, out, "--option", "fields=jpg;png"},
		"neither a loader's state nor a":   like("PK\x03\x04"),
		"its version is 0, and not 1":      like(`{}`),
		"was drawn by a sampler":           like(`{"version":1,"kind":"sampler"}`),
		"of which the state has only":      like(`{"version":1,"subset":"1"}`),
		"it is of another dataset":         like(`{"version":1}`),
		"the dataset's IDs are 0 to 11":    like(`[0, 12]`),
		"its job cannot be":                like(`{"version":1,"fingerprint":"` + fingerprint + `"}`),
		"it is no list of IDs":             like(`["a"]`),
		"no field \"png\" to rename":       {dir, out, "--rename", "png=jpg"},
		"unknown key; did you mean \"fiel": {dir, out, "--option", "field=jpg"},
	} {
		code, printed, errs := status(t, append([]string{"pack"}, args...)...)
		if code != 2 || printed != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: exit status %d, printed %q and %q; want %q", args, code, printed, errs, want)
		}
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was made: %v", out, err)
	}
}

// TestPackSaysWhatToDoAboutASample that cannot be read.
func TestPackSaysWhatToDoAboutASample(t *testing.T) {
	err := packError(&source.SampleError{ID: 98, Path: "/data/a.jpg", Kind: source.ErrMissing})
	want := "sample 98 (/data/a.jpg): the file is missing: restore the file; the same command then " +
		"goes on"
	if err.Error() != want {
		t.Errorf("%v", err)
	}
}

// environment makes an LMDB environment, as py-lmdb wrote it: the values 00000, 11111 and 22222 of
// the keys cat_1.x, dog/2 and ant_\xff.
func environment(t *testing.T) string {
	t.Helper()
	f, err := os.Open("testdata/labels.mdb.gz")
	must(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	must(t, err)
	data, err := io.ReadAll(r)
	dir := t.TempDir()
	must(t, err, os.WriteFile(filepath.Join(dir, "data.mdb"), data, 0o644),
		os.WriteFile(filepath.Join(dir, "lock.mdb"), nil, 0o644))
	return dir
}

// TestLMDBIsDescribedAndPacked, as a directory and as a file; texts of labels become numbers.
func TestLMDBIsDescribedAndPacked(t *testing.T) {
	quiet(t)
	dir, out := environment(t), filepath.Join(t.TempDir(), "out")
	for _, path := range []string{dir, filepath.Join(dir, "data.mdb")} {
		v := viewOf(t, path)
		if v.Kind != "lmdb" || v.Samples != 3 || v.Bytes != 15 || v.Fields[0].Name != "value" {
			t.Errorf("%s: %+v", path, v)
		}
	}
	code, _, errs := status(t, "pack", dir, out, "--option", "label=prefix", "--rename", "value=bin",
		"--rename", "key=key.bin")
	if code != 0 {
		t.Fatal(errs)
	}
	names, got := membersOf(t, filepath.Join(out, "*.tar"))
	want := map[string]string{
		"616e745fff.bin": "22222", "616e745fff.cls": "0", "616e745fff.key.bin": "ant_\xff",
		"6361745f312e78.bin": "00000", "6361745f312e78.cls": "1", "6361745f312e78.key.bin": "cat_1.x",
		"646f672f32.bin": "11111", "646f672f32.cls": "2", "646f672f32.key.bin": "dog/2",
	}
	if diff := cmp.Diff(want, got); diff != "" || names[0] != "616e745fff.bin" {
		t.Errorf("%q %s", names, diff)
	}
	classes, err := os.ReadFile(filepath.Join(out, "classes.json"))
	if err != nil || string(classes) != "[\n \"ant\",\n \"cat\",\n \"dog\"\n]\n" {
		t.Errorf("%s, %v", classes, err)
	}
}
