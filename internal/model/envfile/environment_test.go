package envfile

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
)

// sample is a file in which some numbers are measured.
func sample() File {
	known := func(latency, perMB, queued float64) model.Known {
		return model.Known{
			Coefficients: model.Coefficients{Latency: latency, PerMB: perMB, Queued: queued},
			Origin:       model.Measured,
		}
	}
	return File{
		Node: model.Node{
			Compute: model.Value{Number: 640, Origin: model.Measured},
			Network: model.GuessedPeer, Source: known(5e-3, 4e-3, 2e-3), Streams: 16,
			Classes: []model.NodeClass{
				{
					Name: "memory", Read: model.GuessedMemory, Write: model.GuessedMemory,
					Stores: 1,
				},
				{
					Name: "file", Path: "/nvme/\"x\"\\\u0007", Read: known(1e-4, 20e-3, 10e-3),
					Write: model.GuessedClass, Stores: 4,
				},
			},
		},
		Size:    model.Size{Sample: 0.11, Nodes: 1, Staging: 64, Capacity: []float64{100, 2000}},
		Threads: 2, Work: 0.0008,
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Max(a, b) }

func TestRoundTrip(t *testing.T) {
	want := sample()
	got, err := Decode(Encode(want))
	if err != nil {
		t.Fatal(err)
	}
	if !near(got.Work, want.Work) {
		t.Errorf("reads take %v s of a processor, want %v", got.Work, want.Work)
	}
	if got.Node.Compute.Origin != model.Probed || got.Node.Compute.Number != 640 {
		t.Errorf("compute %+v", got.Node.Compute)
	}
	if got.Node.Preprocess != (model.Value{}) || got.Node.Network != model.GuessedPeer {
		t.Errorf("what was not known is: %+v, %+v", got.Node.Preprocess, got.Node.Network)
	}
	for j, c := range want.Node.Classes {
		read := got.Node.Classes[j]
		if read.Name != c.Name || read.Path != c.Path || read.Stores != c.Stores {
			t.Errorf("class %d is %+v, want %+v", j+1, read, c)
		}
		if guess := c.Read.Origin == model.Guessed; guess != (read.Read == c.Guess()) {
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
	// The 16 streams are not threads that transform.
	if got.Threads != want.Threads {
		t.Errorf("%d threads, want %d", got.Threads, want.Threads)
	}
	if got.Size.Nodes != 1 || len(got.Size.Capacity) != 2 || got.Size.Capacity[1] != 2000 {
		t.Errorf("size %+v", got.Size)
	}
}

// TestUnknownIsMissing: what was not measured is not in the file, and is a guess when it is read.
func TestUnknownIsMissing(t *testing.T) {
	text := string(Encode(File{
		Node: model.Node{
			Source: model.GuessedSource, Network: model.GuessedPeer,
			Classes: []model.NodeClass{{
				Name: "file", Path: "/x", Read: model.GuessedClass, Write: model.GuessedClass,
				Stores: 2,
			}},
		},
		Size: model.Size{Sample: 20e3, Nodes: 1, Capacity: []float64{1}},
	}))
	_, class, _ := strings.Cut(text, `name = "file"`)
	for _, key := range []string{"compute", "preprocess", "network", "source"} {
		if strings.Contains(text, "\n"+key) {
			t.Errorf("%s was not measured, and is in\n%s", key, text)
		}
	}
	if strings.Contains(class, "\nread") || strings.Contains(class, "\nwrite") {
		t.Errorf("a class that was not measured: %s", class)
	}
	f, err := Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	n := &f.Node
	if n.Source != model.GuessedSource || n.Network != model.GuessedPeer ||
		n.Compute.Number != 0 || len(n.Sources) > 0 ||
		n.Classes[0].Read != model.GuessedClass || n.Classes[0].Write != model.GuessedClass {
		t.Errorf("%+v", n)
	}
}

// TestUnits: numbers have units as in scenarios and configurations.
func TestUnits(t *testing.T) {
	f, err := Decode([]byte(`[environment]
nodes = 1
sample_size = "110 kB"
compute = "1.2 GB/s"
network = "8 Gbit/s"
source = { 1 = "100 MB/s", 2 = 200 }
source_latency = "5ms"
[[environment.storage_class]]
capacity = "1 GiB"
threads = 2
[[environment.storage_class]]
name = "memory"
capacity = "10 GB"
threads = 2
read = "2 GB/s"
`))
	if err != nil {
		t.Fatal(err)
	}
	n := &f.Node
	if n.Compute.Number != 1200 || !near(1/n.Network.PerMB, 1000) || !near(n.Source.Latency, 5e-3) ||
		!near(1/n.Source.PerMB, 100) || f.Size.Capacity[0] != 10e3 || f.Size.Sample != 0.11 ||
		!near(n.Classes[0].Read.Rate(1, 0.11), 2000) || !near(f.Size.Staging, 1073.741824) {
		t.Errorf("%+v", f)
	}
}

// TestImpossibleValues: each is refused, by its key, with what is allowed.
func TestImpossibleValues(t *testing.T) {
	text := string(Encode(sample()))
	for _, p := range []struct{ old, new, want string }{
		{"compute = 640.0", "compute = 0", "environment.compute is 0: not above 0"},
		{"compute = 640.0", "compute = nan", "environment.compute is NaN"},
		{"compute = 640.0", "compute = inf", "environment.compute is +Inf"},
		{"compute = 640.0", "compute = -1.0", "environment.compute is -1: negative"},
		{"compute = 640.0", "compute = 1e-300", "environment.compute is 1e-300: too small"},
		{"compute = 640.0", "compute = 1e300", "environment.compute is 1e+300: too large"},
		{"compute = 640.0", "compote = 1.0", `environment.compote is 1: unknown key; did you mean`},
		{"compute = 640.0", "compute = \"fast\"", `environment.compute is "fast": not a number with`},
		{"compute = 640.0", "compute = [1]", "environment.compute is a list of 1: not a number"},
		{"nodes = 1", "nodes = 0", "environment.nodes is 0"},
		{"nodes = 1", "nodes = \"x\"", `environment.nodes is "x"`},
		{"nodes = 1", "", "environment.nodes: missing"},
		{"sample_size = 0.11", "sample_size = 0", "environment.sample_size is 0"},
		{"source_latency", "source_latency = -1.0\n#", "environment.source_latency is -1"},
		{"source = ", "source = { 1 = 9.0, 2 = 3.0 }\n#", "environment.source.2 is 3"},
		{"source = ", "source = { x = 9.0 }\n#", "environment.source.x is 9: not a number of nodes"},
		{"source = ", "source = []\n#", "environment.source is a list of 0"},
		{"source = ", "source = 1e-300\n#", "environment.source is 1e-300"},
		{"source = ", "#", "environment.source_latency is 0"},
		{"threads = 4", "threads = 0", "environment.storage_class.2.threads is 0"},
		{"capacity = 64.0", "capacity = -1.0", "environment.storage_class.0.capacity is -1"},
		{"capacity = 64.0", "capacity = \"1 parsec\"", `is "1 parsec": not a number with a known unit`},
		{`name = "memory"`, "name = 3", "environment.storage_class.1.name is 3: not a string"},
		{"[environment]", "[environs]", "environs: unknown key"},
		{"[environment]", "[environment", "line"},
	} {
		damaged := strings.Replace(text, p.old, p.new, 1)
		if damaged == text {
			t.Fatalf("%q is not in\n%s", p.old, text)
		}
		_, err := Decode([]byte(damaged))
		if err == nil || !strings.Contains(err.Error(), p.want) {
			t.Errorf("%s: %v, want %q", p.new, err, p.want)
			continue
		}
		for _, inside := range []string{"struct", "toml:", "float64", "interface"} {
			if strings.Contains(err.Error(), inside) {
				t.Errorf("%s: %v: speaks of the program's insides", p.new, err)
			}
		}
	}
	for _, text := range []string{"", "environment = 5", "a = 1\na = 2"} {
		if _, err := Decode([]byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
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
