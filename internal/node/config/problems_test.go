package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// TestProblemsNameKeyValueOriginAndWhatIsAllowed makes one mistake at a time.
func TestProblemsNameKeyValueOriginAndWhatIsAllowed(t *testing.T) {
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
				"half of the available memory",
			},
		},
		"size without a unit": {
			arguments: map[string]any{"memory": 1.5, "cache_dir": "/c", "cache_size": 0.5},
			variables: map[string]string{
				"HDMLP_DISK_RESERVE": "2.5", "HDMLP_STAGING_BUFFER": " 70000.5 ",
			},
			file: "decode_memory = 20.5",
			want: []string{
				`memory = "1.5" (argument): not a whole number of bytes: add a unit, as in "1.5GB"`,
				`cache_size = "0.5" (argument): not a whole number of bytes`,
				`disk_reserve = "2.5" (HDMLP_DISK_RESERVE): not a whole number of bytes`,
				`(HDMLP_STAGING_BUFFER): not a whole number of bytes: add a unit, as in "70000.5GB"`,
				`decode_memory = "20.5"`,
			},
		},
		"capacity without a unit": {
			file: "[[storage_class]]\nkind = 'memory'\ncapacity = 1.5",
			want: []string{`storage_class[0].capacity = "1.5"`, `add a unit, as in "1.5GB"`},
		},
		"list": {
			arguments: map[string]any{"memory": []any{1.0}},
			want:      []string{`memory = "[1]" (argument): not a single value`},
		},
		"size of no cache": {
			arguments: map[string]any{"cache_size": "1GB"},
			want: []string{
				`cache_size = "1GB" (argument): has no effect without cache_dir`,
			},
		},
		"reserve of no disk": {
			arguments: map[string]any{"disk_reserve": "1GB"},
			want: []string{
				`disk_reserve = "1GB" (argument): has no effect without cache_dir`,
			},
		},
		"fraction": {
			arguments: map[string]any{"source_threads": 1.5},
			want: []string{
				`source_threads = "1.5" (argument): not a whole number; ` +
					"allowed: a whole number from 0 to 1024",
			},
		},
		"range": {
			variables: map[string]string{"HDMLP_SOURCE_THREADS": "2000"},
			want:      []string{`source_threads = "2000" (HDMLP_SOURCE_THREADS): too large`},
		},
		"negative": {arguments: map[string]any{"memory": -1.0}, want: []string{`"-1"`}},
		"nan":      {arguments: map[string]any{"linger": "NaN"}, want: []string{"not a duration"}},
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
				`interface = "eth0 eth1" (argument): contains white space`,
				`"10.1.0.0/16"`,
			},
		},
		"switch": {
			arguments: map[string]any{"tls": "maybe"},
			want:      []string{`tls = "maybe" (argument): neither on nor off; allowed: on or off`},
		},
		"one of three": {
			arguments: map[string]any{"tls": true, "tls_cert": "/c.pem"},
			want: []string{
				`tls_cert = "/c.pem" (argument): given without tls_key and tls_ca; tls_cert, ` +
					"tls_key and tls_ca go together: set all or none",
			},
		},
		"without tls": {
			variables: map[string]string{
				"HDMLP_TLS_CERT": "/c",
				"HDMLP_TLS_KEY":  "/k",
				"HDMLP_TLS_CA":   "/a",
			},
			want: []string{
				`tls_cert = "/c" (HDMLP_TLS_CERT): has no effect while tls is off; set tls = on, ` +
					"or remove tls_cert, tls_key and tls_ca",
			},
		},
		"members of no group": {
			arguments: map[string]any{"share": " ", "share_members": 4.0},
			want: []string{
				`share = " " (argument): a name of blanks; give the group a name, or leave share out`,
				`share_members = "4" (argument): given without share; name the group: share = search`,
			},
		},
		"unknown key": {
			arguments: map[string]any{"memroy": 1.0},
			want:      []string{`memroy = "1" (argument): unknown key; did you mean "memory"?`},
		},
		"table in the model": {
			file: "[[environment.storage_class]]\nname = 'ssd'\n",
			want: []string{`environment.storage_class = "a list of 1" (`, `unknown key; allowed: `},
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
				"on which 1.0 GiB stay free (disk_reserve): 100.0 GiB needed, 99.0 GiB available",
			},
		},
		"disk, with what stays free by default": {
			arguments: map[string]any{"cache_dir": "/x", "cache_size": "91GiB"},
			want: []string{
				"on which 10.0 GiB stay free (disk_reserve): 91.0 GiB needed, 90.0 GiB available",
			},
		},
		"no size": {
			arguments: map[string]any{"memory": "99999999999GB"},
			want: []string{
				`memory = "99999999999GB" (argument): larger than 9223372036854775807 bytes; ` +
					"allowed: a size such as",
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
			want: []string{
				`storage_class[0].capacity = "" (`, `: a memory class needs a capacity; allowed: a size`,
			},
		},
		"automatic capacity": {
			file: "[[storage_class]]\nkind = 'memory'\ncapacity = 'auto'",
			want: []string{`storage_class[0].capacity = "auto" (`, "a memory class needs a capacity"},
		},
		"wrong capacity": {
			file: "[[storage_class]]\nkind = 'file'\npath = '/a'\ncapacity = 'much'",
			want: []string{
				`storage_class[0].capacity = "much" (`, `not a size; allowed: a size such as`,
				`; "auto": the free space of the disk, less disk_reserve; required for ` +
					`kind = "memory" or kind = "heap"`,
			},
		},
		"relative path of a class": {
			file: "[[storage_class]]\nkind = 'file'\npath = 'a'",
			want: []string{
				`storage_class[0].path = "a" (`, `: not an absolute path; allowed: an absolute path, ` +
					`or one that begins with "~/"`,
			},
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
			want: []string{`storage_class[0].path = "" (`, `: missing; allowed: an absolute path`},
		},
		"path": {
			file: "[[storage_class]]\nkind = 'memory'\ncapacity = 1\npath = '/a'",
			want: []string{
				`storage_class[0].path = "/a"`,
				`a memory class has no path; remove it, or set kind = "file"`,
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
			want: []string{
				`storage_class[0].capcity = "1" (`,
				`did you mean "capacity"?; allowed: kind, capacity, path, threads, read or write`,
			},
		},
		"not a class": {file: "storage_class = 3", want: []string{"not a list of tables"}},
		"model": {
			file: "[environment]\ncompute = -1\nnetwrok = 1",
			want: []string{
				"environment.compute = \"-1\"", "negative", "a rate such as", `did you mean "network"?`,
			},
		},
		"tiny rate": {
			file: "[environment]\ncompute = 1e-300",
			want: []string{"environment.compute", "too small; allowed: a number of MB/s"},
		},
		"no unit": {
			file: "[environment]\ncompute = '3 parsec'\nsource = []\nsource_latency = -1",
			want: []string{
				`environment.compute = "3 parsec"`, "not a number with a known unit",
				"environment.source = ", "environment.source_latency = \"-1\"", "a time such as",
			},
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

// TestFileThatIsNotRegularOrTooLargeIsRejected without reading it: it may have no end.
func TestFileThatIsNotRegularOrTooLargeIsRejected(t *testing.T) {
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

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
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

// TestArgumentsOfTheOtherScopeAreRefused: they would have no effect.
func TestArgumentsOfTheOtherScopeAreRefused(t *testing.T) {
	for scope, keys := range map[config.Scope][2]string{
		config.Job:    {"memory", "linger"},
		config.Daemon: {"linger", "memory"},
	} {
		value := map[string]any{"memory": "1GB", "linger": "2s"}
		for i, key := range keys {
			_, err := config.Resolve(config.Input{
				Arguments: map[string]any{key: value[key]}, Scope: scope, Machine: machine,
				Classes: classes,
			})
			var p *config.Problem
			if refused := errors.As(err, &p) && p.Key == key; refused != (i == 1) {
				t.Errorf("%s as an argument of a %s: %v", key, scope, err)
			}
		}
		// A variable and a file are of both: each takes its own from them.
		if _, err := config.Resolve(config.Input{
			Environment: map[string]string{"HDMLP_LINGER": "2s", "HDMLP_MEMORY": "1GB"}, Scope: scope,
			Machine: machine, Classes: classes,
		}); err != nil {
			t.Errorf("variables of a %s: %v", scope, err)
		}
	}
}

// TestUnknownVariablesAreWarnedOf: with the nearest key, and without their values, which may be
// secrets.
func TestUnknownVariablesAreWarnedOf(t *testing.T) {
	c, err := config.Resolve(config.Input{Environment: map[string]string{
		"HDMLP_MEMROY": "1GiB", "HDMLP_memory": "1", "HDMLP_SECERT": "s3cret", "HDMLP_ZZZZZZZZ": "1",
		"HDMLP_POLICY": "naive", "HDMLP_DAEMON_X": "1", "OTHER": "1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`HDMLP_MEMROY (environment) has no effect: unknown variable; did you mean "HDMLP_MEMORY"?`,
		`HDMLP_SECERT (environment) has no effect: unknown variable; did you mean "HDMLP_SECRET"?`,
		"HDMLP_ZZZZZZZZ (environment) has no effect: unknown variable; allowed: HDMLP_ followed by",
		`HDMLP_memory (environment) has no effect: unknown variable; did you mean "HDMLP_MEMORY"?`,
	}
	if len(c.Warnings) != len(want) {
		t.Fatalf("%q", c.Warnings)
	}
	for i, text := range c.Warnings {
		if !strings.HasPrefix(text, want[i]) {
			t.Errorf("%q, want %q", text, want[i])
		}
	}
	if c.Policy != "naive" {
		t.Errorf("policy = %q", c.Policy)
	}
}
