// Package environment is the file in which the numbers of the performance model are stored: what an
// earlier run or hdmlp probe measured of a machine (docs/FORMATS.md). A scenario of the simulator
// may take it in place of its [environment], whose keys it has. Among them are compute and
// preprocess, which are those of a training script; jobs do not begin with them
// (catalog.StartingNode).
//
// Encode and Decode are pure; Decode reads untrusted input.
package environment

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/hdmlp/hdmlp/internal/inputfile"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// Suffix is appended to the name of a dataset's index for the name of the file beside it.
const Suffix = ".environment.toml"

// MaxBytes is the largest file, in bytes.
const MaxBytes = 64 << 10

// File is the contents of a file.
type File struct {
	Node perfmodel.Node
	Size perfmodel.Size // the jobs that it holds for
}

// Encode returns the file's text.
func Encode(f File) []byte {
	env := f.Node.Environment(f.Size)
	var guessed []string
	guess := func(key string, o perfmodel.Origin) {
		if o == perfmodel.Guessed || o == "" {
			guessed = append(guessed, strconv.Quote(key))
		}
	}
	n := &f.Node
	guess("compute", n.Compute.Origin)
	guess("preprocess", n.Preprocess.Origin)
	guess("network", n.Network.Origin)
	guess("source_network", n.SourceNetwork.Origin)
	if len(n.Sources) == 0 {
		guess("source", n.Source.Origin)
	}
	for j, c := range n.Classes {
		guess(fmt.Sprintf("storage_class.%d.read", j+1), c.Read.Origin)
		guess(fmt.Sprintf("storage_class.%d.write", j+1), c.Write.Origin)
	}
	var b bytes.Buffer
	b.WriteString(`# What HDMLP knows of this machine: rates in MB/s, sizes in MB, times in seconds.
# A later job on the dataset begins with it, except for compute and preprocess, which are those of
# a training script; hdmlp simulate SCENARIO --environment FILE simulates it. It may be removed.
# Keys listed in guessed were not measured.
[environment]
`)
	fmt.Fprintf(&b, "nodes = %d\nsample_size = %s\nguessed = [%s]\n", max(f.Size.Nodes, 1),
		number(max(f.Size.Sample, 1e-6)), strings.Join(guessed, ", "))
	fmt.Fprintf(&b, "compute = %s\npreprocess = %s\nnetwork = %s\nsource_network = %s\n",
		number(env.Compute), number(env.Preprocess), number(env.PeerBandwidth),
		number(env.SourceBandwidth))
	fmt.Fprintf(&b, "source = %s\nsource_latency = %s\n", curve(env.SourceThroughput),
		number(env.SourceLatency))
	for j, c := range env.Classes {
		name, path := "staging", ""
		if j > 0 {
			name, path = n.Classes[j-1].Name, n.Classes[j-1].Path
		}
		fmt.Fprintf(&b, "\n[[environment.storage_class]]\nname = %s\n", quote(name))
		if path != "" {
			fmt.Fprintf(&b, "path = %s\n", quote(path))
		}
		fmt.Fprintf(&b, "capacity = %s\nthreads = %d\nread = %s\nwrite = %s\n", number(c.Capacity),
			c.Threads, curve(c.Read), curve(c.Write))
	}
	return b.Bytes()
}

func number(v float64) string {
	text := strconv.FormatFloat(v, 'g', 7, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0" // TOML's floats have a point or an exponent
	}
	return text
}

func curve(c perfmodel.Curve) string {
	if len(c) == 1 && c[0].Clients == 1 {
		return number(c[0].MBps)
	}
	points := make([]string, len(c))
	for i, p := range c {
		points[i] = fmt.Sprintf("%d = %s", p.Clients, number(p.MBps))
	}
	return "{ " + strings.Join(points, ", ") + " }"
}

// quote returns a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// text is the file as TOML has it.
type text struct {
	Environment *struct {
		Nodes         int     `toml:"nodes"`
		SampleSize    float64 `toml:"sample_size"`
		Guessed       []string
		Compute       float64
		Preprocess    float64
		Network       float64
		SourceNetwork float64 `toml:"source_network"`
		Source        any
		SourceLatency float64      `toml:"source_latency"`
		Classes       []storedText `toml:"storage_class"`
	}
}

type storedText struct {
	Name     string
	Path     string
	Capacity float64
	Threads  int
	Read     any
	Write    any
}

// decoder collects what is wrong with a file.
type decoder struct{ errs []error }

func (d *decoder) wrong(key, format string, values ...any) {
	d.errs = append(d.errs, fmt.Errorf("environment."+key+" "+format, values...))
}

// Read reads the file at path.
func Read(path string) (File, error) {
	data, err := inputfile.Read(path, MaxBytes)
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err
		}
		return File{}, fmt.Errorf("%s: cannot read the environment (a TOML file of at most "+
			"%d KiB): %w", path, MaxBytes>>10, err)
	}
	f, err := Decode(data)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Decode returns what the text of a file says, all of it with the origin Probed, except what the
// file itself guesses. Its error names each key that is wrong.
func Decode(data []byte) (File, error) {
	var t text
	strict := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields()
	if err := strict.Decode(&t); err != nil {
		var missing *toml.StrictMissingError
		var syntax *toml.DecodeError
		switch {
		case errors.As(err, &missing) && len(missing.Errors) > 0:
			return File{}, fmt.Errorf("unknown key %s", strings.Join(missing.Errors[0].Key(), "."))
		case errors.As(err, &syntax):
			row, column := syntax.Position()
			return File{}, fmt.Errorf("line %d, column %d: %w", row, column, err)
		}
		return File{}, err
	}
	e := t.Environment
	if e == nil {
		return File{}, errors.New("not an environment: [environment] is missing")
	}
	var d decoder
	f := File{Size: perfmodel.Size{Nodes: e.Nodes, Sample: d.positive("sample_size", e.SampleSize)}}
	if e.Nodes < 1 || e.Nodes > 1<<16 {
		d.wrong("nodes", "is %d; allowed: 1 to %d", e.Nodes, 1<<16)
	}
	env := perfmodel.Environment{
		Compute: d.positive("compute", e.Compute), Preprocess: d.positive("preprocess", e.Preprocess),
		PeerBandwidth:    d.positive("network", e.Network),
		SourceBandwidth:  d.positive("source_network", e.SourceNetwork),
		SourceThroughput: d.curve("source", e.Source), SourceLatency: e.SourceLatency,
	}
	if !(e.SourceLatency >= 0 && e.SourceLatency < 3600) {
		d.wrong("source_latency", "is %v s; allowed: 0 to 3600", e.SourceLatency)
	}
	if len(e.Classes) == 0 || len(e.Classes) > 64 {
		d.wrong("storage_class", "has %d entries; allowed: 1, the staging buffer, to 64",
			len(e.Classes))
	}
	for j, c := range e.Classes {
		key := fmt.Sprintf("storage_class.%d.", j)
		if c.Threads < 1 || c.Threads > 1<<16 {
			d.wrong(key+"threads", "is %d; allowed: 1 to %d", c.Threads, 1<<16)
		}
		if !(c.Capacity >= 0 && c.Capacity <= 1e15) {
			d.wrong(key+"capacity", "is %v MB; allowed: 0 to 1e15", c.Capacity)
		}
		env.Classes = append(env.Classes, perfmodel.Class{
			Capacity: c.Capacity, Threads: c.Threads, Read: d.curve(key+"read", c.Read),
			Write: d.curve(key+"write", c.Write),
		})
	}
	if d.errs != nil {
		return File{}, errors.Join(d.errs...)
	}
	if err := env.Validate(); err != nil {
		return File{}, err
	}
	f.Size.Staging = env.Classes[0].Capacity
	f.Node = perfmodel.FromEnvironment(&env, f.Size, perfmodel.Probed)
	for j, c := range e.Classes[1:] {
		f.Node.Classes[j].Name, f.Node.Classes[j].Path = c.Name, c.Path
		f.Size.Capacity = append(f.Size.Capacity, c.Capacity)
	}
	f.guessed(e.Guessed)
	if err := f.Node.Validate(); err != nil {
		return File{}, fmt.Errorf("environment: %w", err)
	}
	return f, nil
}

// guessed resets the numbers that the file does not know.
func (f *File) guessed(keys []string) {
	n := &f.Node
	for _, key := range keys {
		switch key {
		case "compute":
			n.Compute = perfmodel.Value{}
		case "preprocess":
			n.Preprocess = perfmodel.Value{}
		case "network":
			n.Network = perfmodel.GuessedPeer
		case "source_network":
			n.SourceNetwork = perfmodel.Value{}
		case "source":
			n.Source, n.Sources, n.SourcesOrigin = perfmodel.GuessedSource, nil, ""
		}
		for j := range n.Classes {
			switch key {
			case fmt.Sprintf("storage_class.%d.read", j+1):
				n.Classes[j].Read = n.Classes[j].Guess()
			case fmt.Sprintf("storage_class.%d.write", j+1):
				n.Classes[j].Write = n.Classes[j].Guess()
			}
		}
	}
}

func (d *decoder) positive(key string, v float64) float64 {
	if !(v > 0 && v <= 1e9) {
		d.wrong(key, "is %v; allowed: above 0, at most 1e9", v)
	}
	return v
}

// curve reads a throughput: a number, or a table by the number of clients.
func (d *decoder) curve(key string, value any) perfmodel.Curve {
	asNumber := func(key string, value any) float64 {
		switch v := value.(type) {
		case int64:
			return d.positive(key, float64(v))
		case float64:
			return d.positive(key, v)
		}
		return d.positive(key, math.NaN())
	}
	table, ok := value.(map[string]any)
	if !ok {
		return perfmodel.Constant(asNumber(key, value))
	}
	points := map[int]float64{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		clients, err := strconv.Atoi(name)
		if err != nil || clients < 1 || clients > 1<<20 {
			d.wrong(key, "has the number of clients %.20q; allowed: 1 to 1048576", name)
			continue
		}
		points[clients] = asNumber(key+"."+name, table[name])
	}
	if len(points) == 0 || len(points) > 1024 {
		d.wrong(key, "has %d points; allowed: 1 to 1024", len(points))
		return nil
	}
	c := perfmodel.NewCurve(points)
	if p, falls := c.Falls(); falls {
		d.wrong(fmt.Sprintf("%s.%d", key, p.Clients), "is %v MB/s, less than fewer clients get "+
			"together; a throughput does not fall with the number of clients", p.MBps)
	}
	return c
}
