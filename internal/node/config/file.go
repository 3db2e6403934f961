package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/libconfig"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
)

// maxFile is the size limit of a configuration file, in bytes.
const maxFile = 1 << 20

// The tables that a file may have in addition to the keys of parameters.
const (
	keyStorageClass = "storage_class"
	keyEnvironment  = "environment"
)

// readFile reads the file, if one is named, into r.given, r.classes and the Config's
// Environment.
func (r *resolver) readFile() {
	r.file = r.input.File
	if r.file == "" {
		r.file = r.input.Environment["HDMLP_CONFIG"]
	}
	if r.file == "" {
		return
	}
	table, err := r.decodeFile()
	if err != nil {
		r.problem(Problem{Source: r.file, Wrong: err.Error(), Err: err})
		return
	}
	r.readTable(table)
}

// readTable reads the table of the file.
func (r *resolver) readTable(table map[string]any) {
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

// decodeFile returns the table of the file. What is wrong in the settings of a libconfig file has
// been reported then.
func (r *resolver) decodeFile() (map[string]any, error) {
	data, err := files.ReadText(r.file, maxFile)
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err // the caller names the file
		}
		return nil, fmt.Errorf("cannot read the configuration (a TOML file of at most %s, or one of "+
			"libconfig if its name ends in %s): %w", human.Format(maxFile), libconfigSuffix, err)
	}
	if strings.HasSuffix(r.file, libconfigSuffix) {
		t := translate(r.file, string(data), r.input.Classes, false)
		r.config.Warnings = append(r.config.Warnings, t.notes...)
		for _, p := range t.problems {
			r.problem(p)
		}
		r.settings = t.settings
		return t.table, nil
	}
	table := map[string]any{}
	err = toml.Unmarshal(data, &table)
	var syntax *toml.DecodeError
	if errors.As(err, &syntax) {
		row, column := syntax.Position()
		hint := ""
		if _, err := libconfig.Parse(string(data)); err == nil && utf8.Valid(data) {
			hint = "; it is a libconfig file, whose name has to end in " + libconfigSuffix
		}
		return nil, fmt.Errorf("line %d, column %d: not TOML: %s%s", row, column,
			strings.TrimPrefix(syntax.Error(), "toml: "), hint)
	}
	return table, err
}

// readModel reads the [environment] table.
func (r *resolver) readModel(value any) {
	table, ok := value.(map[string]any)
	if !ok {
		r.problem(Problem{
			Key: keyEnvironment, Value: envfile.Text(value), Source: r.file,
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
			model.Source = r.readCurve(key, table[name], "nodes")
			continue
		case "source_latency":
			model.SourceLatency = r.number(key, table[name], envfile.Time)
			continue
		}
		field, known := fields[name]
		if !known {
			r.refuse(key, option.Unknown(name, table[name], names), r.file)
			continue
		}
		*field = r.number(key, table[name], envfile.Rate)
	}
}

// readCurve reads a throughput by the number of clients, which messages call what.
func (r *resolver) readCurve(key string, value any, what string) map[int]float64 {
	curve, faults := envfile.ReadCurve(key, value, what)
	for i := range faults {
		r.fault(&faults[i])
	}
	points := map[int]float64{}
	for _, p := range curve {
		points[p.Clients] = p.MBps
		if table, ok := value.(map[string]any); ok {
			name := strconv.Itoa(p.Clients)
			r.note(key+"."+name, table[name])
		} else {
			r.note(key, value)
		}
	}
	return points
}

// number reads a number of the performance model.
func (r *resolver) number(key string, value any, k envfile.Kind) float64 {
	v, fault := k.Read(key, value)
	r.fault(fault)
	r.note(key, value)
	return v
}

// note notes the origin of a value of the file.
func (r *resolver) note(key string, value any) {
	text, _ := option.TextOf(value)
	r.config.Origins[key] = Origin{Value: text, Source: r.file}
}

// fault reports a wrong value of the file, if there is one.
func (r *resolver) fault(f *envfile.Fault) {
	if f != nil {
		value := f.Value
		if text, err := strconv.Unquote(value); err == nil { // a Problem quotes it
			value = text
		}
		r.problem(Problem{
			Key: f.Key, Value: value, Source: r.file, Wrong: f.Wrong, Allowed: f.Allowed,
		})
	}
}
