package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/store"
	filestore "github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine has 20 GiB of memory and 100 GiB of disk.
var machine = config.Machine{
	AvailableMemory: func() (int64, error) { return 20 << 30, nil },
	Disk:            func(string) (free, total int64, err error) { return 100 << 30, 200 << 30, nil },
}

// classes are two kinds in memory, and one in directories.
var classes = kinds()

func kinds() []store.Kind {
	heap := memory.Kind(nil)
	heap.Name = "heap"
	heap.Options[0].Job = "" // so that only [[storage_class]] can ask for one
	return []store.Kind{memory.Kind(nil), filestore.Kind("0"), heap}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultsAreDerivedFromTheMachine(t *testing.T) {
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
		Memory:       10 << 30, CacheTrust: "instance",
		PrefetchBatches: 64, SourceThreads: 0, CacheThreads: 4,
		SourceTimeout: time.Minute, OnError: "raise", Policy: "cooperative",
		IndexDir: "", PreloadTimeout: time.Hour, StartTimeout: 5 * time.Minute,
		Linger: 30 * time.Second, LogLevel: "info",
		StorageClasses: []config.StorageClass{{
			Kind: "memory", Memory: true, Threads: 4,
			Options: option.Values{store.CapacityKey: int64(10 << 30)},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestArgumentsOverrideVariablesOverrideTheFile(t *testing.T) {
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

func TestFileDescribesStorageClassesAndEnvironment(t *testing.T) {
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
preprocess = "1.5 GB/s"
network = "8 Gbit/s"
source = {1 = "66 MB/s", "4" = 120.5}
source_latency = "5ms"
`)})
	if err != nil {
		t.Fatal(err)
	}
	want := []config.StorageClass{
		{
			Kind: "memory", Memory: true, Threads: 6,
			Options: option.Values{store.CapacityKey: int64(1 << 30)},
		},
		{Kind: "file", Threads: 8, Options: option.Values{
			store.PathKey: "/nvme0", store.CapacityKey: int64(1e6), store.ReserveKey: int64(2 << 30),
		}},
		{Kind: "file", Threads: 6, Options: option.Values{
			store.PathKey: "/nvme1", store.ReserveKey: int64(2 << 30),
		}},
	}
	if diff := cmp.Diff(want, got.StorageClasses); diff != "" {
		t.Error(diff)
	}
	model := config.Environment{
		Compute: 64, Preprocess: 1500, Network: 1000, Source: map[int]float64{1: 66, 4: 120.5},
		SourceLatency: 5e-3,
	}
	if diff := cmp.Diff(model, got.Environment); diff != "" {
		t.Error(diff)
	}
}

// TestBytesHeldByACacheCountAsFree checks that what a cache directory holds is available to the
// class that uses the directory.
func TestBytesHeldByACacheCountAsFree(t *testing.T) {
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
