package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine has 20 GiB of memory and 100 GiB of disk.
var machine = config.Machine{
	AvailableMemory: func() (int64, error) { return 20 << 30, nil },
	FreeDisk:        func(string) (int64, error) { return 100 << 30, nil },
}

// classes are kinds of classes in memory, and one in directories.
var classes = []storageclass.Kind{
	{Name: "memory", SizeKey: "memory"},
	{Name: "file", Directory: true, SizeKey: "cache_size", PathKey: "cache_dir"},
	{Name: "heap"}, // only [[storage_class]] asks for one
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	got, err := config.Resolve(config.Input{Machine: machine, Classes: classes})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Origins) != len(config.Parameters()) {
		t.Errorf("%d origins for %d parameters", len(got.Origins), len(config.Parameters()))
	}
	if o := got.Origins["memory"]; o != (config.Origin{
		Value:  "10.0 GiB",
		Source: "measured: half of 20.0 GiB available",
	}) {
		t.Errorf("memory comes from %+v", o)
	}
	got.Origins = nil
	want := &config.Config{
		DecodeMemory: 20 << 30 / 8,
		Memory:       10 << 30, PrefetchBatches: 64, SourceThreads: 16, CacheThreads: 4,
		SourceTimeout: time.Minute, OnError: "raise", Policy: "cooperative",
		IndexDir: "", StartTimeout: 5 * time.Minute, Linger: 30 * time.Second, LogLevel: "info",
		StorageClasses: []config.StorageClass{{Kind: "memory", Capacity: 10 << 30, Threads: 4}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPrecedence(t *testing.T) {
	path := file(t, "source_threads = 1\ncache_threads = 1\nprefetch_batches = 1\nmemory = 1000")
	got, err := config.Resolve(config.Input{
		File: path,
		Environment: map[string]string{
			"HDMLP_CACHE_THREADS":    "2",
			"HDMLP_PREFETCH_BATCHES": "2",
			"HDMLP_SOCKET":           "x",
			"HDMLP_NODES":            "a,b",
			"HDMLP_DAEMON_X":         "y",
			"PATH":                   "z",
		},
		Arguments: map[string]any{"prefetch_batches": 3.0, "memory": nil},
		Machine:   machine,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key    string
		got    int
		want   int
		source string
	}{
		{"source_threads", got.SourceThreads, 1, path},
		{"cache_threads", got.CacheThreads, 2, "HDMLP_CACHE_THREADS"},
		{"prefetch_batches", got.PrefetchBatches, 3, "argument"},
		{"memory", int(got.Memory), 1000, path},
	} {
		if c.got != c.want || got.Origins[c.key].Source != c.source {
			t.Errorf("%s = %d from %q, want %d from %q", c.key, c.got, got.Origins[c.key].Source,
				c.want, c.source)
		}
	}
}

func TestStorageClassesOfTheFile(t *testing.T) {
	got, err := config.Resolve(config.Input{Machine: machine, Classes: classes, File: file(t, `
disk_reserve = "2GiB"
cache_threads = 6

[[storage_class]]
kind = "memory"
capacity = "1GiB"

[[storage_class]]
kind = "file"
path = "/nvme0/"
capacity = 1_000_000
threads = 8

[[storage_class]]
kind = "file"
path = "/nvme1"

[environment]
compute = 64
source = {1 = 66, "4" = 120.5}
`)})
	if err != nil {
		t.Fatal(err)
	}
	want := []config.StorageClass{
		{Kind: "memory", Capacity: 1 << 30, Threads: 6},
		{Kind: "file", Path: "/nvme0", Capacity: 1e6, Threads: 8, Reserve: 2 << 30},
		{Kind: "file", Path: "/nvme1", Threads: 6, Reserve: 2 << 30},
	}
	if diff := cmp.Diff(want, got.StorageClasses); diff != "" {
		t.Error(diff)
	}
	model := config.Environment{Compute: 64, Source: map[int]float64{1: 66, 4: 120.5}}
	if diff := cmp.Diff(model, got.Environment); diff != "" {
		t.Error(diff)
	}
}

// TestWrong gives one wrong thing after the other; the message must say key,
// value, origin and what is allowed.
func TestWrong(t *testing.T) {
	for name, c := range map[string]struct {
		arguments map[string]any
		variables map[string]string
		file      string
		want      []string
	}{
		"size": {
			arguments: map[string]any{"memory": "lots"},
			want: []string{
				`memory = "lots" (argument): not a size; allowed: a size such as "10GB"`,
				"half of the memory",
			},
		},
		"list": {
			arguments: map[string]any{"memory": []any{1.0}},
			want:      []string{`memory = "[1]" (argument): not a single value`},
		},
		"fraction": {
			arguments: map[string]any{"source_threads": 1.5},
			want: []string{
				`source_threads = "1.5" (argument): not a whole number; allowed: a whole number from 1 to 1024`,
			},
		},
		"range": {
			variables: map[string]string{"HDMLP_SOURCE_THREADS": "2000"},
			want:      []string{`source_threads = "2000" (HDMLP_SOURCE_THREADS): too large`},
		},
		"negative": {arguments: map[string]any{"memory": -1.0}, want: []string{`"-1"`}},
		"nan":      {arguments: map[string]any{"linger": "NaN"}, want: []string{"not a time"}},
		"enum": {
			arguments: map[string]any{"policy": "cooperativ"},
			want: []string{
				`did you mean "cooperative"?`,
				"allowed: " + policies.Names(policies.Engine())[0],
			},
		},
		"duration": {
			arguments: map[string]any{"linger": "soon"},
			want:      []string{`linger = "soon"`, "plain number is seconds"},
		},
		"relative path": {
			arguments: map[string]any{"cache_dir": "cache"},
			want:      []string{"not an absolute path"},
		},
		"address": {
			arguments: map[string]any{"metrics": "9400"},
			want:      []string{"not host:port", "127.0.0.1:9400"},
		},
		"port": {
			arguments: map[string]any{"metrics": ":99999"},
			want:      []string{"not a port"},
		},
		"no port": {
			variables: map[string]string{"HDMLP_PORT": "0"},
			want: []string{
				`port = "0" (HDMLP_PORT): too small; allowed: a whole number from 1 to 65532`,
			},
		},
		"network": {
			arguments: map[string]any{"interface": "eth0 eth1"},
			want: []string{
				`interface = "eth0 eth1" (argument): not one word`,
				`"10.1.0.0/16"`,
			},
		},
		"switch": {
			arguments: map[string]any{"tls": "maybe"},
			want:      []string{`tls = "maybe" (argument): neither on nor off; allowed: on or off`},
		},
		"one of three": {
			arguments: map[string]any{"tls": true, "tls_cert": "/c.pem"},
			want:      []string{`tls_key = "" (default): missing: tls_cert is given`, "tls_ca = "},
		},
		"without tls": {
			variables: map[string]string{
				"HDMLP_TLS_CERT": "/c",
				"HDMLP_TLS_KEY":  "/k",
				"HDMLP_TLS_CA":   "/a",
			},
			want: []string{
				`tls_ca = "/a" (HDMLP_TLS_CA): of no use while tls is off; allowed: tls = on`,
			},
		},
		"unknown key": {
			arguments: map[string]any{"memroy": 1.0},
			want:      []string{`memroy = "1" (argument): unknown key; did you mean "memory"?`},
		},
		"variable": {
			variables: map[string]string{"HDMLP_MEMROY": "1"},
			want: []string{
				`HDMLP_MEMROY = "1" (environment): unknown variable; did you mean "HDMLP_MEMORY"?`,
			},
		},
		"lower case": {
			variables: map[string]string{"HDMLP_memory": "1"},
			want:      []string{`did you mean "HDMLP_MEMORY"?`},
		},
		"file key": {
			file: "polcy = 'naive'",
			want: []string{`did you mean "policy"?`, "config.toml"},
		},
		"syntax": {file: "memory = \n", want: []string{"line 1", "not TOML"}},
		"memory": {
			arguments: map[string]any{"memory": "21GiB"},
			want:      []string{"too large for memory: 21.0 GiB needed, 20.0 GiB available"},
		},
		"disk": {
			arguments: map[string]any{
				"cache_dir":    "/x",
				"cache_size":   "100GiB",
				"disk_reserve": "1GiB",
			},
			want: []string{
				`cache_size = "100GiB" (argument)`,
				"101.0 GiB needed, 100.0 GiB available",
			},
		},
		"no size": {
			arguments: map[string]any{"memory": "99999999999GB"},
			want: []string{
				`memory = "99999999999GB" (argument): more than 9223372036854775807 bytes; allowed: a size such as`,
			},
		},
		"no number": {
			arguments: map[string]any{"prefetch_batches": "1000000000000000000000"},
			want:      []string{"too large; allowed: a whole number from 1 to 65536"},
		},
		"overflow": {
			arguments: map[string]any{
				"cache_dir":    "/x",
				"cache_size":   "8000PiB",
				"disk_reserve": "8000PiB",
			},
			want: []string{"too large for the disk"},
		},
		"both": {
			variables: map[string]string{"HDMLP_MEMORY": "1GB"},
			file:      "[[storage_class]]\nkind = 'memory'\ncapacity = 1",
			want:      []string{`memory = "1GB" (HDMLP_MEMORY)`, "replace it"},
		},
		"no capacity": {
			file: "[[storage_class]]\nkind = 'memory'",
			want: []string{"storage_class[0].capacity", "needs a capacity"},
		},
		"sum": {
			file: strings.Repeat("[[storage_class]]\nkind = 'memory'\ncapacity = '7EiB'\n", 1),
			want: []string{"not a size"},
		},
		"sum of memory": {
			file: strings.Repeat("[[storage_class]]\nkind = 'memory'\ncapacity = '11GiB'\n", 2),
			want: []string{"storage_class[1].capacity", "22.0 GiB needed"},
		},
		"same path": {
			file: strings.Repeat("[[storage_class]]\nkind = 'file'\npath = '/a'\n", 2),
			want: []string{"storage_class[1].path", "directory of another class"},
		},
		"no path": {
			file: "[[storage_class]]\nkind = 'file'",
			want: []string{"storage_class[0].path", "missing"},
		},
		"path": {
			file: "[[storage_class]]\nkind = 'memory'\ncapacity = 1\npath = '/a'",
			want: []string{
				`storage_class[0].path = "/a"`,
				`memory has no path; allowed: only with kind = "file"`,
			},
		},
		"other kind": {
			file: "[[storage_class]]\nkind = 'heap'",
			want: []string{"storage_class[0].capacity", "a heap class needs a capacity"},
		},
		"other sum": {
			file: "[[storage_class]]\nkind = 'memory'\ncapacity = " +
				"'11GiB'\n[[storage_class]]\nkind = 'heap'\ncapacity = '11GiB'",
			want: []string{"storage_class[1].capacity", "22.0 GiB needed"},
		},
		"kind": {
			file: "[[storage_class]]\nkind = 'tape'",
			want: []string{`storage_class[0].kind = "tape"`, "memory, file or heap"},
		},
		"no kind": {
			file: "[[storage_class]]\npath = '/a'",
			want: []string{"storage_class[0].kind", "missing"},
		},
		"class key": {
			file: "[[storage_class]]\nkind = 'file'\npath = '/a'\ncapcity = 1",
			want: []string{`did you mean "capacity"?`},
		},
		"not a class": {file: "storage_class = 3", want: []string{"not a list of tables"}},
		"model": {
			file: "[environment]\ncompute = -1\nnetwrok = 1",
			want: []string{"not a throughput", `did you mean "network"?`},
		},
		"curve": {
			file: "[environment]\nsource = {0 = 1}",
			want: []string{"not a number of nodes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			input := config.Input{
				Arguments:   c.arguments,
				Environment: c.variables,
				Machine:     machine,
				Classes:     classes,
			}
			if c.file != "" {
				input.File = file(t, c.file)
			}
			_, err := config.Resolve(input)
			if err == nil {
				t.Fatal("no error")
			}
			var p *config.Problem
			if !errors.As(err, &p) {
				t.Errorf("%T is not a Problem", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// TestNoFile: what is no regular file, or has no end, is refused at once.
func TestNoFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(t.TempDir(), "large.toml")
	if err := os.WriteFile(large, make([]byte, 1<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo:        "not a regular file",
		"/dev/zero": "not a regular file",
		t.TempDir(): "not a regular file",
		large:       "larger than",
	} {
		_, err := config.Resolve(config.Input{File: path, Machine: machine, Classes: classes})
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), "a TOML file of at most 1.0 MiB") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestWhatACacheHoldsCounts: it counts for the class that takes its directory: it may have that
// again.
func TestWhatACacheHoldsCounts(t *testing.T) {
	kept := slices.Clone(classes)
	kept[1].Held = func(dir string) (int64, error) {
		if dir != "/nvme" {
			return 0, os.ErrNotExist
		}
		return 50 << 30, nil
	}
	for dir, fits := range map[string]bool{"/nvme": true, "/other": false} {
		_, err := config.Resolve(config.Input{
			Arguments: map[string]any{
				"cache_dir":    dir,
				"cache_size":   "140GiB",
				"disk_reserve": "1GiB",
			},
			Machine: machine,
			Classes: kept,
		})
		if (err == nil) != fits {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := config.Resolve(config.Input{
		Arguments:   map[string]any{"memory": "lots", "zzz": "1"},
		Environment: map[string]string{"HDMLP_POLICY": "best"},
		File:        filepath.Join(t.TempDir(), "missing.toml"),
	})
	if err == nil || strings.Count(err.Error(), "\n") != 3 || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("want four problems, got: %v", err)
	}
	var limit *config.LimitError
	_, err = config.Resolve(config.Input{
		Arguments: map[string]any{"memory": "1TB"},
		Machine:   machine,
		Classes:   classes,
	})
	if !errors.As(err, &limit) || limit.Need != 1e12 || limit.Limit != 20<<30 {
		t.Fatalf("no need and limit in %v", err)
	}
}

// TestExample reads the example back: as it is, and with every comment sign
// before a key taken away, which must give the same values.
func TestExample(t *testing.T) {
	example := config.Example(classes)
	for _, p := range config.Parameters() {
		if !strings.Contains(example, "\n#"+p.Key+" = ") {
			t.Errorf("the example lacks %s", p.Key)
		}
	}
	cut := strings.Index(example, "\n# --- Storage classes")
	uncommented := regexp.MustCompile(`(?m)^#([a-z_]+ = |\[)`).ReplaceAllString(example[:cut], "$1")
	want, err := config.Resolve(config.Input{Machine: machine, Classes: classes})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{example, uncommented} {
		got, err := config.Resolve(config.Input{
			Machine: machine,
			Classes: classes,
			File:    file(t, text),
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.StorageClasses, got.StorageClasses); diff != "" {
			t.Error(diff)
		}
	}
	rest := regexp.MustCompile(`(?m)^#([a-z_]+ = |\[)`).ReplaceAllString(example[cut:], "$1")
	big := config.Machine{
		AvailableMemory: func() (int64, error) { return 1 << 40, nil },
		FreeDisk:        func(string) (int64, error) { return 1 << 40, nil },
	}
	got, err := config.Resolve(config.Input{Machine: big, Classes: classes, File: file(t, rest)})
	if err != nil || len(got.StorageClasses) != len(classes) || len(got.Environment.Source) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestDefaultFile(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	env := map[string]string{}
	if got := config.DefaultFile(env); got != "" {
		t.Fatalf("got %q where there is none", got)
	}
	path := filepath.Join(home, ".config", "hdmlp", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := config.DefaultFile(env); got != path {
		t.Fatalf("got %q, want %q", got, path)
	}
	env["HDMLP_CONFIG"] = "/elsewhere.toml"
	if got := config.DefaultFile(env); got != "/elsewhere.toml" {
		t.Fatalf("got %q", got)
	}
}

func FuzzResolveFile(f *testing.F) {
	f.Add("memory = '1GB'\n[[storage_class]]\nkind = 'file'\npath = '/a'")
	f.Add("[environment]\nsource = {1 = 66}")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "c.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Resolve(config.Input{File: path, Machine: machine, Classes: classes})
		if (c == nil) == (err == nil) {
			t.Fatalf("config %v and error %v", c, err)
		}
		if c != nil {
			if _, err := json.Marshal(c); err != nil {
				t.Fatal(err)
			}
		}
	})
}
