// Package config is what a user can set: one table of parameters, from which
// the keys of the file, the HDMLP_* variables, the arguments of a job and the
// help come, and the passes that make a Config of them: parse, default, derive,
// validate.
//
// Arguments beat HDMLP_* variables, which beat the file (TOML), which beats what
// is derived or measured. All that is wrong is reported at once, each Problem
// with its key, its value, where that came from, and what is allowed.
//
// The package keeps no state. HDMLP_* variables and machine facts are handed in;
// from the process's own environment it takes where the user's home and
// configuration directories are. A Config that Resolve has returned is
// complete and must not be changed; it is safe for concurrent use.
package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/suggest"
)

// Config is a validated configuration. Sizes are bytes.
type Config struct {
	Memory           int64  // of the class in memory, per job; 0: none, or StorageClasses says it
	DecodeMemory     int64  // of all threads that transform, together
	CacheDir         string // of the file class; "": none, or StorageClasses says it
	CacheSize        int64  // of the file class; 0: what the disk has free, less DiskReserve
	DiskReserve      int64  // of every file class's disk; 0: file.Options' default
	StagingBuffer    int64  // per rank; 0: to be chosen from the size of a batch
	PrefetchBatches  int
	SourceThreads    int
	CacheThreads     int
	TransformThreads int // samples that are transformed at the same time; 0: as many as pay off
	SourceTimeout    time.Duration
	OnError          string // raise, skip, substitute
	Policy           string // the name of one that the engine runs (placement/policies)
	IndexDir         string // "": beside the dataset, where that can be written
	Port             int    // first of those that nodes of a job use; 0: node 0's is the launcher's, the others any
	Interface        string // where other nodes reach this one: an interface, address, network or name; "": where node 0 sees it
	StartTimeout     time.Duration
	TLS              bool   // between the nodes of a job
	TLSCert          string // "": trust by the job's secret alone
	TLSKey           string
	TLSCA            string
	Linger           time.Duration
	Metrics          string // host:port; "": no metrics
	LogLevel         string // debug, info, warn, error

	// StorageClasses are the classes 1..J of a job, fastest first: the
	// [[storage_class]] entries of the file, or else those that memory, cache_dir
	// and cache_size ask for.
	StorageClasses []StorageClass
	// Environment has the performance model's numbers that the file gives.
	Environment Environment
	// Origins tells, for every key of the table and every other key of the file
	// that was given, its value and where that came from.
	Origins map[string]Origin
}

// StorageClass is one class that a job is to have on the node.
type StorageClass struct {
	Kind     string // its name, as Input.Classes has it
	Capacity int64  // bytes; 0, of one in a directory: what the disk has free, less Reserve
	Path     string // its directory; "": it is in memory
	Threads  int    // p_j: samples that are read from it at the same time
	Reserve  int64  // bytes left free on the directory's disk; 0: the kind's default
}

// InMemory reports whether the class takes memory, and not a directory.
func (c StorageClass) InMemory() bool { return c.Path == "" }

// Environment has numbers of the performance model (thesis 3.1). What is zero or
// missing was not given and is measured.
type Environment struct {
	Compute       float64         // c, MB/s
	Preprocess    float64         // beta, MB/s
	Network       float64         // b_c, MB/s
	SourceNetwork float64         // b_fs, MB/s
	Source        map[int]float64 // t: MB/s of the source against the number of nodes that read
}

// Origin tells where a value came from.
type Origin struct {
	Value  string // as it was written, or what was derived
	Source string // "argument", "HDMLP_MEMORY", a file's path, "default", "measured: half of ..."
}

// Input is what a Config is made of.
type Input struct {
	// Arguments are keys with JSON values: strings, numbers; nil: not given.
	Arguments map[string]any
	// Environment has the HDMLP_* variables; others are ignored.
	Environment map[string]string
	// File is the path of a TOML file, which must exist. "": HDMLP_CONFIG of
	// Environment, or none. See DefaultFile.
	File string
	// Machine gives the facts from which defaults are derived.
	Machine Machine
	// Classes are the kinds of storage classes that there are.
	Classes []storageclass.Kind
}

// Machine gives facts about this machine. A nil function is a fact not known:
// nothing is derived from it or held against it, and memory is then 0 unless
// it is set.
type Machine struct {
	// AvailableMemory is how many bytes a new job's memory class could have:
	// what is available, and what idle stores hold.
	AvailableMemory func() (int64, error)
	// MemoryBound says what bounds that, to be put behind the number: " (of ...)"; nil: not known.
	MemoryBound func() string
	// FreeDisk is how many bytes are free on the disk of the directory, which need not exist.
	FreeDisk func(dir string) (int64, error)
	// Directory reports why a path is no directory and cannot become one.
	Directory func(path string) error
	// Processors is how many the process may use, at least 1.
	Processors int
}

// Problem is one thing wrong with the configuration.
type Problem struct {
	Key     string // "memory"; "" for the file as a whole
	Value   string // as it was given
	Source  string // where it came from
	Wrong   string // what is wrong with it
	Allowed string // what is allowed; may be empty
	Err     error  // the cause, where there is one; may be nil
}

func (p *Problem) Error() string {
	var b strings.Builder
	if p.Key == "" {
		fmt.Fprintf(&b, "%s: %s", p.Source, p.Wrong)
	} else {
		fmt.Fprintf(&b, "%s = %q (%s): %s", p.Key, p.Value, p.Source, p.Wrong)
	}
	if p.Allowed != "" {
		fmt.Fprintf(&b, "; allowed: %s", p.Allowed)
	}
	return b.String()
}

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Resolve makes a Config. Its error joins one *Problem for each thing wrong.
func Resolve(input Input) (*Config, error) {
	r := resolver{input: input, config: &Config{Origins: map[string]Origin{}}, given: map[string]given{}}
	r.readFile()
	r.readEnvironment()
	r.readArguments()
	r.parse()
	r.derive()
	r.validate()
	if len(r.problems) > 0 {
		return nil, errors.Join(r.problems...)
	}
	return r.config, nil
}

// DefaultFile is the file that is read when a user names none: what HDMLP_CONFIG
// in env says, or hdmlp/config.toml in the user's configuration directory
// (XDG_CONFIG_HOME, or ~/.config), if it is there. "": none.
func DefaultFile(env map[string]string) string {
	if file := env["HDMLP_CONFIG"]; file != "" {
		return file
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	file := filepath.Join(dir, "hdmlp", "config.toml")
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// given is a value as a user wrote it.
type given struct {
	text   string
	source string
}

// resolver carries the passes of Resolve. Each layer overwrites what a weaker
// one has given.
type resolver struct {
	input    Input
	config   *Config
	given    map[string]given
	classes  []fileClass // [[storage_class]]
	file     string
	problems []error
}

func (r *resolver) problem(p Problem) { r.problems = append(r.problems, &p) }

func (r *resolver) readEnvironment() {
	for _, name := range slices.Sorted(maps.Keys(r.input.Environment)) {
		if !strings.HasPrefix(name, "HDMLP_") || strings.HasPrefix(name, daemonPrefix) ||
			slices.Contains(otherVariables[:], name) {
			continue
		}
		value := r.input.Environment[name]
		p, known := Lookup(strings.ToLower(strings.TrimPrefix(name, "HDMLP_")))
		if !known || p.Variable() != name {
			var names []string
			for _, p := range parameters {
				names = append(names, p.Variable())
			}
			names = append(names, otherVariables[:]...)
			r.problem(Problem{
				Key: name, Value: value, Source: "environment",
				Wrong: "unknown variable" + suggest.Nearest(name, names), Allowed: suggest.List(names),
			})
			continue
		}
		r.given[p.Key] = given{value, name}
	}
}

func (r *resolver) readArguments() {
	for _, key := range slices.Sorted(maps.Keys(r.input.Arguments)) {
		if value := r.input.Arguments[key]; value != nil {
			r.take(key, value, "argument", nil)
		}
	}
}

// take records a key's value from one layer. otherKeys are allowed besides those
// of the table, and read elsewhere.
func (r *resolver) take(key string, value any, source string, otherKeys []string) {
	text, scalar := toText(value)
	p, known := Lookup(key)
	switch {
	case !known:
		var keys []string
		for _, p := range parameters {
			keys = append(keys, p.Key)
		}
		keys = append(keys, otherKeys...)
		r.problem(Problem{
			Key: key, Value: text, Source: source,
			Wrong: "unknown key" + suggest.Nearest(key, keys), Allowed: suggest.List(keys),
		})
	case !scalar:
		r.problem(Problem{Key: key, Value: text, Source: source, Wrong: "not a single value", Allowed: p.Allowed()})
	default:
		r.given[key] = given{text, source}
	}
}

// parse reads every parameter's text, or its default's, into the Config.
func (r *resolver) parse() {
	for _, p := range parameters {
		value := given{p.Default, "default"}
		if g, ok := r.given[p.Key]; ok {
			value = g
		}
		if p.Default == Auto && strings.EqualFold(strings.TrimSpace(value.text), Auto) {
			r.config.Origins[p.Key] = Origin{Value: Auto, Source: "default: " + p.Derived}
			continue
		}
		if err := p.parse(value.text, p.field(r.config)); err != nil {
			r.problem(Problem{
				Key: p.Key, Value: value.text, Source: value.source,
				Wrong: err.Error(), Allowed: p.Allowed(), Err: err,
			})
			continue
		}
		r.config.Origins[p.Key] = Origin{Value: value.text, Source: value.source}
	}
}
