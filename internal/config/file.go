package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/hdmlp/hdmlp/internal/inputfile"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/size"
	"github.com/hdmlp/hdmlp/internal/suggest"
)

// maxFile is the size limit of a configuration file, in bytes.
const maxFile = 1 << 20

// The tables that a file may have in addition to the keys of parameters.
const (
	keyStorageClass = "storage_class"
	keyEnvironment  = "environment"
)

// readFile reads the TOML file, if one is named, into r.given, r.classes and the Config's
// Environment.
func (r *resolver) readFile() {
	r.file = r.input.File
	if r.file == "" {
		r.file = r.input.Environment["HDMLP_CONFIG"]
	}
	if r.file == "" {
		return
	}
	table, err := decodeFile(r.file)
	if err != nil {
		r.problem(Problem{Source: r.file, Wrong: err.Error(), Err: err})
		return
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		switch key {
		case keyStorageClass:
			r.readClasses(table[key])
		case keyEnvironment:
			r.readModel(table[key])
		default:
			r.take(key, table[key], r.file, []string{keyStorageClass, keyEnvironment})
		}
	}
}

func decodeFile(path string) (map[string]any, error) {
	data, err := inputfile.Read(path, maxFile)
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err // the caller names the file
		}
		return nil, fmt.Errorf("cannot read the configuration (a TOML file of at most %s): %w",
			size.Format(maxFile), err)
	}
	table := map[string]any{}
	err = toml.Unmarshal(data, &table)
	var syntax *toml.DecodeError
	if errors.As(err, &syntax) {
		row, column := syntax.Position()
		return nil, fmt.Errorf("line %d, column %d: not TOML: %s", row, column,
			strings.TrimPrefix(syntax.Error(), "toml: "))
	}
	return table, err
}

// readModel reads the [environment] table.
func (r *resolver) readModel(value any) {
	table, ok := value.(map[string]any)
	if !ok {
		r.problem(Problem{
			Key: keyEnvironment, Value: fmt.Sprint(value), Source: r.file,
			Wrong: "not a table", Remedy: "begin the table with the line [environment]",
		})
		return
	}
	model := &r.config.Environment
	fields := map[string]*float64{
		"compute": &model.Compute, "preprocess": &model.Preprocess,
		"network": &model.Network, "source_network": &model.SourceNetwork,
	}
	names := append(slices.Sorted(maps.Keys(fields)), "source", "source_latency")
	for _, name := range slices.Sorted(maps.Keys(table)) {
		key := keyEnvironment + "." + name
		switch name {
		case "source":
			model.Source = r.readCurve(key, table[name], "nodes", "reading nodes")
			continue
		case "source_latency":
			model.SourceLatency = r.latency(key, table[name])
			continue
		}
		field, known := fields[name]
		if !known {
			text, _ := toText(table[name])
			r.problem(Problem{
				Key: key, Value: text, Source: r.file,
				Wrong: "unknown key" + suggest.Nearest(name, names), Allowed: suggest.List(names),
			})
			continue
		}
		*field = r.throughput(key, table[name])
	}
}

// readCurve reads a throughput by the number of clients, which messages call what: one number, for
// any number of them, or a table.
func (r *resolver) readCurve(key string, value any, what, described string) map[int]float64 {
	table, ok := value.(map[string]any)
	if !ok {
		text, scalar := toText(value)
		if number, err := strconv.ParseFloat(text, 64); scalar && err == nil {
			return map[int]float64{1: r.throughput(key, number)}
		}
		r.problem(Problem{
			Key: key, Value: text, Source: r.file,
			Wrong: "neither a number nor a table",
			Allowed: `66, or {"1" = 66, "2" = 120}: MB/s, for any number of ` + described +
				" or by it",
		})
		return nil
	}
	curve := map[int]float64{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		clients, err := strconv.Atoi(name)
		if err != nil || clients < 1 || clients > 1<<20 {
			text, _ := toText(table[name])
			r.problem(Problem{
				Key: key + "." + name, Value: text, Source: r.file,
				Wrong: "not a number of " + what, Allowed: "keys from 1 to 1048576",
			})
			continue
		}
		curve[clients] = r.throughput(key+"."+name, table[name])
	}
	if p, falls := perfmodel.NewCurve(curve).Falls(); falls {
		name := strconv.Itoa(p.Clients)
		text, _ := toText(table[name])
		r.problem(Problem{
			Key: key + "." + name, Value: text, Source: r.file,
			Wrong:   "less than fewer " + described + " get together",
			Allowed: "throughputs that do not fall with the number of " + described,
		})
	}
	return curve
}

// mostLatency is the largest latency, in seconds.
const mostLatency = 60

// latency reads a latency in seconds.
func (r *resolver) latency(key string, value any) float64 {
	text, _ := toText(value)
	d, err := parseDuration(text)
	if err != nil || d < 0 || d > mostLatency*time.Second {
		r.problem(Problem{
			Key: key, Value: text, Source: r.file, Wrong: "not a latency",
			Allowed: fmt.Sprintf(`a time from 0 to %d s, such as "5ms"; a plain number is seconds`,
				mostLatency),
		})
	}
	r.config.Origins[key] = Origin{Value: text, Source: r.file}
	return d.Seconds()
}

func (r *resolver) throughput(key string, value any) float64 {
	text, _ := toText(value)
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || !(number > 0) || math.IsInf(number, 0) {
		r.problem(Problem{
			Key: key, Value: text, Source: r.file,
			Wrong: "not a throughput", Allowed: "a number of MB/s greater than 0",
		})
	}
	r.config.Origins[key] = Origin{Value: text, Source: r.file}
	return number
}
