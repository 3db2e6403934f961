package envfile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
)

// Read reads the file at path. Its error names the file, and each key that is wrong.
func Read(path string) (File, error) {
	data, err := files.ReadText(path, MaxBytes)
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

// Beside is what a file is stored beside: the index of a dataset (source.Beside).
type Beside interface {
	ReadBeside(suffix string, most int64, usable func(data []byte) error) (
		data []byte, path string, err error)
}

// Stored returns what is stored of this machine, and where; "": nothing is. A file that cannot be
// used is an error, unless there is another one.
func Stored(beside Beside) (f File, path string, err error) {
	data, path, err := beside.ReadBeside(Suffix, MaxBytes, func(data []byte) error {
		_, err := Decode(data)
		return err
	})
	if err != nil || path == "" {
		return File{}, path, err
	}
	f, err = Decode(data)
	return f, path, err
}

// Decode returns the numbers in the text of a file, with the origin Probed. Its error names each
// key that is wrong, its value and what is allowed.
func Decode(data []byte) (File, error) {
	table, err := Table(data)
	if err != nil {
		return File{}, err
	}
	var d decoder
	f := d.file(table)
	if d.faults != nil {
		return File{}, d.faults
	}
	if err := f.Node.Validate(); err != nil {
		return File{}, fmt.Errorf("environment: %w", err)
	}
	return f, nil
}

// TOML returns the tables and values of a text. Its error says where it is not TOML.
func TOML(data []byte) (all map[string]any, err error) {
	err = toml.Unmarshal(data, &all)
	var syntax *toml.DecodeError
	switch {
	case errors.As(err, &syntax):
		row, column := syntax.Position()
		return nil, fmt.Errorf("line %d, column %d: not TOML: %s", row, column,
			strings.TrimPrefix(syntax.Error(), "toml: "))
	case err != nil:
		return nil, fmt.Errorf("not TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	return all, nil
}

// Table returns the [environment] of the text of a file, as TOML has it.
func Table(data []byte) (map[string]any, error) {
	all, err := TOML(data)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key != "environment" {
			return nil, fmt.Errorf("%s: unknown key; the only table of an environment is "+
				"[environment]", key)
		}
	}
	table, ok := all["environment"].(map[string]any)
	if !ok {
		return nil, errors.New("not an environment: the table [environment] is missing")
	}
	return table, nil
}

// Limits of what a file can say.
const (
	mostNodes   = 1 << 16
	mostThreads = 1 << 16
	mostClasses = 64 // besides the staging buffer
)

// decoder collects what is wrong with a file.
type decoder struct{ faults Faults }

func (d *decoder) wrong(key string, value any, wrong, allowed string) {
	d.faults = append(d.faults, Fault{
		Key: key, Value: Text(value), Wrong: wrong, Allowed: allowed,
	})
}

// keys notes keys of a table that are unknown, and those that are missing.
func (d *decoder) keys(path string, table map[string]any, required, optional []string) {
	for _, name := range required {
		if table[name] == nil {
			d.wrong(path+name, nil, "missing", "")
		}
	}
	all := append(slices.Clone(required), optional...)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(all, name) {
			d.wrong(path+name, table[name], "unknown key"+human.Nearest(name, all),
				human.List(all))
		}
	}
}

// number reads a number; 0 if it is missing.
func (d *decoder) number(key string, value any, k Kind) float64 {
	if value == nil {
		return 0
	}
	v, fault := k.Read(key, value)
	if fault != nil {
		d.faults = append(d.faults, *fault)
	}
	return v
}

func (d *decoder) whole(key string, value any, most int64) int {
	if value == nil {
		return 0
	}
	v, fault := ReadWhole(key, value, 1, most)
	if fault != nil {
		d.faults = append(d.faults, *fault)
	}
	return v
}

// curve reads a throughput; nil if it is missing.
func (d *decoder) curve(key string, value any, what string) model.Curve {
	if value == nil {
		return nil
	}
	c, faults := ReadCurve(key, value, what)
	d.faults = append(d.faults, faults...)
	return c
}

func (d *decoder) text(key string, value any) string {
	s, ok := value.(string)
	if value != nil && !ok {
		d.wrong(key, value, "not a string", "a string")
	}
	return s
}

// file reads [environment].
func (d *decoder) file(table map[string]any) (f File) {
	const path = "environment."
	d.keys(path, table, []string{"nodes", "sample_size", "storage_class"}, []string{
		"compute", "preprocess", "network", "source_network", "source", "source_latency", "source_work",
	})
	f.Size = model.Size{
		Nodes:  d.whole(path+"nodes", table["nodes"], mostNodes),
		Sample: d.number(path+"sample_size", table["sample_size"], Size),
	}
	if v := table["sample_size"]; v != nil && f.Size.Sample == 0 && d.faults == nil {
		d.wrong(path+"sample_size", v, "not above 0", Size.Allowed+", above 0")
	}
	rate := func(name string) model.Value {
		v := d.number(path+name, table[name], Rate)
		if v == 0 {
			return model.Value{}
		}
		return model.Value{Number: v, Origin: model.Probed}
	}
	n := &f.Node
	n.Compute = rate("compute")
	n.Preprocess = rate("preprocess")
	n.SourceNetwork = rate("source_network")
	n.Network = model.GuessedPeer
	if v := rate("network"); v.Number > 0 {
		n.Network = probed(model.GivenRate(v.Number, 0))
	}
	f.Work = d.number(path+"source_work", table["source_work"], Time)
	d.source(table, &f)
	d.classes(path+"storage_class", table["storage_class"], &f)
	return f
}

// source reads what is known of the source.
func (d *decoder) source(table map[string]any, f *File) {
	n := &f.Node
	n.Source = model.GuessedSource
	latency := d.number("environment.source_latency", table["source_latency"], Time)
	curve := d.curve("environment.source", table["source"], "nodes")
	switch {
	case curve != nil:
		nodes := max(f.Size.Nodes, 1)
		share := curve.At(float64(nodes)) / float64(nodes)
		if n.SourceNetwork.Number > 0 {
			share = min(share, n.SourceNetwork.Number)
		}
		n.Source = probed(model.GivenRate(max(share, LeastRate), latency))
		n.Sources, n.SourcesOrigin = curve, model.Probed
	case table["source"] == nil && table["source_latency"] != nil:
		d.wrong("environment.source_latency", table["source_latency"],
			"given without environment.source", "both, or neither")
	}
}

// classes reads the storage classes, the staging buffer first.
func (d *decoder) classes(path string, value any, f *File) {
	entries, ok := value.([]any)
	if value == nil {
		return
	}
	if !ok || len(entries) == 0 || len(entries) > mostClasses+1 {
		d.wrong(path, value, "not a list of storage classes", fmt.Sprintf(
			"[[environment.storage_class]], the staging buffer first, at most %d", mostClasses+1))
		return
	}
	for j, entry := range entries {
		key := fmt.Sprintf("%s.%d", path, j)
		table, ok := entry.(map[string]any)
		if !ok {
			d.wrong(key, entry, "not a table", "[[environment.storage_class]]")
			continue
		}
		key += "."
		d.keys(key, table, []string{"capacity", "threads"},
			[]string{"name", "path", "read", "write"})
		capacity := d.number(key+"capacity", table["capacity"], Size)
		threads := d.whole(key+"threads", table["threads"], mostThreads)
		class := model.NodeClass{
			Name: d.text(key+"name", table["name"]), Path: d.text(key+"path", table["path"]),
			Stores: threads,
		}
		read := d.curve(key+"read", table["read"], "streams")
		write := d.curve(key+"write", table["write"], "streams")
		if j == 0 {
			f.Size.Staging, f.Threads = capacity, threads
			continue
		}
		class.Read, class.Write = class.Guess(), class.Guess()
		if read != nil {
			class.Read = probed(model.GivenCurve(read, 0, f.Size.Sample))
			f.Node.Streams = max(f.Node.Streams, read[len(read)-1].Clients)
		}
		if write != nil {
			class.Write = probed(model.GivenCurve(write, 0, f.Size.Sample))
		}
		f.Node.Classes = append(f.Node.Classes, class)
		f.Size.Capacity = append(f.Size.Capacity, capacity)
	}
}

// probed returns a tier that was given as one that was probed, as all of a file counts.
func probed(k model.Known) model.Known {
	k.Origin = model.Probed
	return k
}
