package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/config"
)

// configInput returns the configuration of a machine with 20 GiB of memory.
func configInput(t *testing.T, file string) config.Input {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Input{
		File:        path,
		Environment: map[string]string{"HDMLP_POLICY": "minio"},
		Arguments:   map[string]any{"source_threads": "32"},
		Machine: config.Machine{
			AvailableMemory: func() (int64, error) { return 20 << 30, nil },
			Disk: func(string) (free, total int64, err error) {
				return 100 << 30, 200 << 30, nil
			},
		},
		Classes: describedClasses(),
	}
}

func TestConfigShowsValuesAndOrigins(t *testing.T) {
	input := configInput(t, "cache_dir = '/nvme'\n[environment]\ncompute = 640")
	var out bytes.Buffer
	if err := runConfig(t.Context(), input, "", datasetFlags{}, false, &out); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(` +`).ReplaceAllString(out.String(), " ")
	for _, want := range []string{
		"File " + input.File + "\n",
		" memory 10.0 GiB measured: half of 20.0 GiB available\n",
		" source_threads 32 argument\n",
		" policy minio HDMLP_POLICY\n",
		" cache_dir /nvme " + input.File + "\n",
		" 1 memory 10.0 GiB 4 threads\n",
		" 2 file free space /nvme, 4 threads\n",
		" compute 640 MB/s " + input.File + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q", want)
		}
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "      ") && len(line) > 81 {
			t.Errorf("the help's line is too long: %q", line)
		}
	}
}

func TestConfigPrintsJSON(t *testing.T) {
	var out bytes.Buffer
	if err := runConfig(t.Context(), configInput(t, ""), "", datasetFlags{}, true, &out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Parameters []map[string]string
		Classes    []map[string]any `json:"storage_classes"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Parameters) != len(config.Parameters()) || len(got.Classes) != 1 {
		t.Fatalf("%+v", got)
	}
	if p := got.Parameters[0]; p["key"] != "memory" || p["value"] != "10.0 GiB" ||
		p["source"] == "" || p["help"] == "" {
		t.Errorf("%+v", p)
	}
}

func TestConfigWithAWrongValueIsAnInputError(t *testing.T) {
	var input inputError
	err := runConfig(t.Context(), configInput(t, "memory = 'lots'"), "", datasetFlags{}, false,
		&bytes.Buffer{})
	if !errors.As(err, &input) {
		t.Fatalf("got %v, want an input error", err)
	}
}

// TestConfigPrintsAFileOfNothingElse checks that flags which print a file refuse any other flag.
func TestConfigPrintsAFileOfNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "thesis.cfg")
	if err := os.WriteFile(path, []byte("b_c = 10"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, of := range [][]string{{"--example"}, {"--convert", path}} {
		if code, out, errs := runCommand(t, append([]string{"config"}, of...)...); code != 0 ||
			out == "" {
			t.Fatal(errs)
		}
		for _, other := range [][]string{
			{"--json"},
			{"--set", "memory=1GiB"},
			{"--file", path},
			{"--dataset", "/"},
			{"--kind", "folder"},
			{"--option", "a=b"},
			{"--index-dir", "/tmp"},
			{"--extensions", ".x"},
			{"--example", "--convert", path},
		} {
			args := append(append([]string{"config"}, of...), other...)
			code, out, errs := runCommand(t, args...)
			if code != 2 || out != "" || !strings.Contains(errs, "give one of them") {
				t.Errorf("%q: %d, %q, %q", args, code, out, errs)
			}
		}
	}
}
