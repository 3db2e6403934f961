package environment

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// sample is a file in which some numbers are measured.
func sample() File {
	known := func(latency, perMB, queued float64) perfmodel.Known {
		return perfmodel.Known{
			Coefficients: perfmodel.Coefficients{Latency: latency, PerMB: perMB, Queued: queued},
			Origin:       perfmodel.Measured,
		}
	}
	return File{
		Node: perfmodel.Node{
			Compute: perfmodel.Value{Number: 640, Origin: perfmodel.Measured},
			Network: perfmodel.GuessedPeer, Source: known(5e-3, 4e-3, 2e-3), Streams: 16,
			Classes: []perfmodel.NodeClass{
				{
					Name: "memory", Read: perfmodel.GuessedMemory, Write: perfmodel.GuessedMemory,
					Stores: 1,
				},
				{
					Name: "file", Path: "/nvme/\"x\"\\\u0007", Read: known(1e-4, 20e-3, 10e-3),
					Write: perfmodel.GuessedClass, Stores: 4,
				},
			},
		},
		Size: perfmodel.Size{Sample: 0.11, Nodes: 1, Staging: 64, Capacity: []float64{100, 2000}},
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Max(a, b) }

func TestRoundTrip(t *testing.T) {
	want := sample()
	got, err := Decode(Encode(want))
	if err != nil {
		t.Fatal(err)
	}
	if got.Node.Compute.Origin != perfmodel.Probed || got.Node.Compute.Number != 640 {
		t.Errorf("compute %+v", got.Node.Compute)
	}
	if got.Node.Preprocess != (perfmodel.Value{}) || got.Node.Network != perfmodel.GuessedPeer {
		t.Errorf("what was not known is: %+v, %+v", got.Node.Preprocess, got.Node.Network)
	}
	for j, c := range want.Node.Classes {
		read := got.Node.Classes[j]
		if read.Name != c.Name || read.Path != c.Path || read.Stores != c.Stores {
			t.Errorf("class %d is %+v, want %+v", j+1, read, c)
		}
		if guess := c.Read.Origin == perfmodel.Guessed; guess != (read.Read == c.Guess()) {
			t.Errorf("class %d: %+v", j+1, read.Read)
		}
	}
	for _, p := range []int{1, 4, 16} {
		if a, b := want.Node.Classes[1].Read.Rate(p, 0.11), got.Node.Classes[1].Read.Rate(p,
			0.11); !near(a, b) {
			t.Errorf("%d streams of the class: %v MB/s, want %v", p, b, a)
		}
		if a, b := want.Node.Source.Rate(p, 0.11), got.Node.Source.Rate(p, 0.11); !near(a, b) {
			t.Errorf("%d streams of the source: %v MB/s, want %v", p, b, a)
		}
	}
	if got.Size.Nodes != 1 || len(got.Size.Capacity) != 2 || got.Size.Capacity[1] != 2000 {
		t.Errorf("size %+v", got.Size)
	}
}

// TestImpossibleValues: each is refused, by its key.
func TestImpossibleValues(t *testing.T) {
	text := string(Encode(sample()))
	for _, p := range []struct{ old, new, want string }{
		{"compute = 640.0", "compute = 0", "environment.compute is 0"},
		{"compute = 640.0", "compute = nan", "environment.compute is NaN"},
		{"compute = 640.0", "compute = -1.0", "environment.compute is -1"},
		{"compute = 640.0", "compote = 1.0", "compote"},
		{"compute = 640.0", "compute = \"fast\"", "line"},
		{"nodes = 1", "nodes = 0", "environment.nodes is 0"},
		{"sample_size = 0.11", "sample_size = 0", "environment.sample_size is 0"},
		{"source_latency", "source_latency = -1.0\n#", "environment.source_latency is -1"},
		{"source = ", "source = { 1 = 9.0, 2 = 3.0 }\n#", "environment.source.2 is 3"},
		{"source = ", "source = { x = 9.0 }\n#", `the number of clients "x"`},
		{"source = ", "source = []\n#", "environment.source is NaN"},
		{"threads = 4", "threads = 0", "environment.storage_class.2.threads is 0"},
		{"capacity = 64.0", "capacity = -1.0", "environment.storage_class.0.capacity is -1"},
		{"[environment]", "[environs]", "unknown key environs"},
		{"[environment]", "[environment", "line"},
	} {
		damaged := strings.Replace(text, p.old, p.new, 1)
		if damaged == text {
			t.Fatalf("%q is not in\n%s", p.old, text)
		}
		if _, err := Decode([]byte(damaged)); err == nil || !strings.Contains(err.Error(), p.want) {
			t.Errorf("%s: %v, want %q", p.new, err, p.want)
		}
	}
	if _, err := Decode(nil); err == nil {
		t.Error("an empty file was accepted")
	}
}

func TestReadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "environment.toml")
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, Encode(sample()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(sample()))
	f.Add([]byte("[environment]\nsource = { 1 = 1e308, 2 = 1e-308 }\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Decode(data)
		if err != nil {
			return
		}
		env := file.Node.Environment(file.Size)
		if err := env.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(Encode(file)); err != nil {
			t.Fatalf("%v: %s", err, Encode(file))
		}
	})
}
