package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/source"
)

// TestConfigShowsWhatTheNextJobBeginsWith: what is stored beside the dataset's index, with its
// origin, age and file, except what the configuration gives and what a script determines.
func TestConfigShowsWhatTheNextJobBeginsWith(t *testing.T) {
	quiet(t)
	os.Unsetenv("HDMLP_INDEX_DIR") // so that the file lies beside the dataset
	data := tree(t, 4)
	conf := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(conf, []byte("[environment]\nnetwork = 640\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HDMLP_CONFIG", conf)
	show := func(flags ...string) string {
		t.Helper()
		code, text, errs := statusOf(t, newRootCommand(),
			append([]string{"config", "--dataset", data}, flags...)...)
		if code != 0 {
			t.Fatalf("exit status %d: %s", code, errs)
		}
		return regexp.MustCompile(` +`).ReplaceAllString(text, " ")
	}
	if text := show(); !strings.Contains(text, "stored nothing: no job on it has ended yet") ||
		!strings.Contains(text, "source 100 MB/s per stream guessed: until a job") {
		t.Error(text)
	}

	path := filepath.Join(data, ".hdmlp-index"+envfile.Suffix)
	rate := func(mbps float64) model.Known {
		k := model.GivenRate(mbps, 0)
		k.Origin = model.Probed
		return k
	}
	known := model.Node{
		Source: rate(250), Network: rate(100),
		Compute:    model.Value{Number: 77, Origin: model.Probed},
		Preprocess: model.Value{Number: 78, Origin: model.Probed},
		Classes:    []model.NodeClass{{Name: "memory", Read: rate(9000), Write: rate(8000)}},
	}
	file := envfile.Encode(envfile.File{
		Node: known, Size: model.Size{Sample: 0.1, Nodes: 2, Capacity: []float64{1}},
	})
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-3*time.Hour - time.Minute)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	text := show()
	for _, want := range []string{
		" dataset " + data + " \n",
		" stored 3 hours ago, on 2 nodes \n",
		" in " + path + " \n",
		" compute - guessed: until a job has measured it\n",
		" preprocess - guessed: until a job has measured it\n",
		" network 640 MB/s " + conf + "\n",
		" source 250 MB/s per stream, at most 250 MB/s probed: stored\n",
		" source_latency 0 s probed: stored\n",
		" storage_class[0].read 9000 MB/s per stream, at most 9000 MB/s probed: stored\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q in %s", want, text[strings.Index(text, "Performance"):])
		}
	}
	var got struct {
		Model  []modelValue
		Stored storedModel
	}
	if err := json.Unmarshal([]byte(show("--json")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Stored.Path != path || got.Stored.Nodes != 2 || got.Stored.Sample != 0.1 ||
		got.Stored.Age < 3*3600 {
		t.Errorf("%+v", got.Stored)
	}
	for _, v := range got.Model {
		if v.Key == "source" && v != (modelValue{
			"source", "250", "MB/s per stream", "250", "probed", path,
		}) {
			t.Errorf("%+v", v)
		}
	}

	if err := os.WriteFile(path, []byte("[environment]\ncompute = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "stored not used; a job measures again, and stores that when it ends: "
	if text := show(); !strings.Contains(text, want) ||
		!strings.Contains(text, "in "+path) {
		t.Error(text)
	}
}

func TestConfigOfNoDatasetIsAnInputError(t *testing.T) {
	for _, args := range [][]string{
		{"config", "--dataset", filepath.Join(t.TempDir(), "none")},
		{"config", "--extensions", ".x"},
	} {
		if code, _, errs := statusOf(t, newRootCommand(), args...); code != 2 ||
			!strings.Contains(errs, "--"+strings.TrimPrefix(args[1], "--")+": ") {
			t.Errorf("%q: exit status %d, %q", args, code, errs)
		}
	}
}

// TestConfigFindsWhatIsStoredOfEachKind: by the options that jobs ask for; of lists that processes
// give, what was stored last of any of a directory.
func TestConfigFindsWhatIsStoredOfEachKind(t *testing.T) {
	quiet(t)
	t.Setenv("HDMLP_INDEX_DIR", t.TempDir())
	stored := func(dir string, flags ...string) (s storedModel) {
		t.Helper()
		code, text, errs := statusOf(t, newRootCommand(),
			append([]string{"config", "--json", "--dataset", dir}, flags...)...)
		if code != 0 {
			t.Fatalf("exit status %d: %s", code, errs)
		}
		var v struct{ Stored *storedModel }
		if err := json.Unmarshal([]byte(text), &v); err != nil || v.Stored == nil {
			t.Fatalf("%v: %s", err, text)
		}
		return *v.Stored
	}
	store := func(kind, dir string, manifest *source.Manifest, values option.Values, nodes int) {
		t.Helper()
		k, err := sourceKind(kind)
		if err != nil {
			t.Fatal(err)
		}
		values[source.IndexDirKey] = os.Getenv("HDMLP_INDEX_DIR")
		src, err := k.Open(t.Context(), dir, source.OpenOptions{
			Values: values, Manifest: manifest, Unscanned: true, Tell: func(string) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		beside, _ := source.As[source.Beside](src)
		file := envfile.Encode(envfile.File{Size: model.Size{Sample: 0.1, Nodes: nodes}})
		if _, err := beside.WriteBeside(envfile.Suffix, file); err != nil {
			t.Fatal(err)
		}
	}

	shards := someShards(t)
	store("webdataset", shards, nil, option.Values{}, 1)
	store("webdataset", shards, nil, option.Values{"fields": []string{"jpg", "cls"}}, 2)
	if n := stored(shards).Nodes; n != 1 {
		t.Errorf("%d nodes", n)
	}
	if n := stored(shards, "--kind", "webdataset", "--option", "fields=jpg,cls").Nodes; n != 2 {
		t.Errorf("with the option: %d nodes", n)
	}
	if path := stored(shards, "--option", "fields=jpg").Path; path != "" {
		t.Errorf("with another option: %s", path)
	}

	files := t.TempDir()
	if path := stored(files, "--kind", "records").Path; path != "" {
		t.Errorf("no list: %s", path)
	}
	store("records", files, source.NewManifest([]byte("a")), option.Values{}, 3)
	if n := stored(files, "--kind", "records").Nodes; n != 3 {
		t.Errorf("a list: %d nodes", n)
	}
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(stored(files, "--kind", "records").Path, then, then); err != nil {
		t.Fatal(err)
	}
	store("records", files, source.NewManifest([]byte("b")), option.Values{}, 4)
	if n := stored(files, "--kind", "records").Nodes; n != 4 {
		t.Errorf("two lists: %d nodes", n)
	}

	code, _, errs := statusOf(t, newRootCommand(), "config", "--option", "fields=jpg")
	if code != 2 || !strings.Contains(errs, "--option: it is about a dataset; give --dataset") {
		t.Errorf("status %d: %s", code, errs)
	}
}
