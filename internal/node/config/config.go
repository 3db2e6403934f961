// Package config is what a user can configure: one table of parameters, which defines the keys of
// the file, the HDMLP_* variables, the arguments of a job and their help, and the passes that turn
// them into a Config: parse, default, derive, validate.
//
// Arguments take precedence over HDMLP_* variables, these over the file (TOML), and the file over
// derived or measured defaults. All errors are reported at once, each as a Problem with its key,
// its value, the origin of the value, and what is allowed.
//
// The package keeps no state. HDMLP_* variables and facts about the machine are passed in; only the
// user's home and configuration directories are taken from the process's own environment. A Config
// returned by Resolve is complete, must not be changed, and is safe for concurrent use.
package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Config is a validated configuration. Sizes are bytes.
type Config struct {
	Memory           int64  // of the memory class, per job; 0: none, or given in StorageClasses
	DecodeMemory     int64  // of all transforming threads together
	CacheDir         string // of the file class; "": none, or given in StorageClasses
	CacheSize        int64  // of the file class; 0: the disk's free space, less DiskReserve
	DiskReserve      int64  // of every file class's disk; 0: file.Options' default
	StagingBuffer    int64  // per rank; 0: computed from the size of a batch
	PrefetchBatches  int
	CacheTrust       string // instance, version
	Forms            string // "": images are kept in forms that are decoded faster; off
	SourceThreads    int
	CacheThreads     int
	TransformThreads int // samples transformed at the same time; 0: tuned automatically
	SourceTimeout    time.Duration
	OnError          string // raise, skip, substitute
	Policy           string // name of a policy that the engine runs (plan/policies)
	IndexDir         string // "": in the dataset's directory, if that is writable
	// Port is the first port that the nodes of a job use; 0: the launcher's on node 0, any on
	// others
	Port int
	// Interface is where other nodes reach this one: an interface, address, network or name; "":
	// the address that node 0 sees
	Interface      string
	PreloadTimeout time.Duration // for filling caches before training
	StartTimeout   time.Duration
	TLS            bool   // between the nodes of a job
	TLSCert        string // "": nodes authenticate by the job's secret alone
	TLSKey         string
	TLSCA          string
	Share          string // name of the group of jobs that share batches; "": none
	ShareMembers   int    // how many jobs its first batch waits for; 0: none
	ShareJoin      bool   // the job begins in the epoch of the group
	Linger         time.Duration
	Metrics        string // host:port; "": no metrics
	LogLevel       string // debug, info, warn, error

	// StorageClasses are the classes 1..J of a job, fastest first: the [[storage_class]] entries of
	// the file, or else those that memory, cache_dir and cache_size ask for.
	StorageClasses []StorageClass
	// Entries is the file whose entries StorageClasses are; "": they are not.
	Entries string
	// Environment holds the performance model's numbers that the file gives.
	Environment Environment
	// Origins has the value and its origin for every key of the table, and for every other key
	// given in the file.
	Origins map[string]Origin
	// Warnings are about what has no effect, or another one: variables that are none, settings of a
	// libconfig file.
	Warnings []string
}

// KeepsForms reports whether samples may be kept in other forms than as read.
func (c *Config) KeepsForms() bool { return c.Forms != "off" }

// Prefetches reports whether batches are prepared before they are asked for.
func (c *Config) Prefetches() bool {
	p, err := policies.ByName(c.Policy)
	return err != nil || !p.About().OnDemand
}

// TrustsVersion reports whether copies that were made of files at another path are valid if the
// datasets have the same version.
func (c *Config) TrustsVersion() bool { return c.CacheTrust == "version" }

// Value returns the value of a key, of the type that values of its kind have. It panics if there is
// no such key.
func (c *Config) Value(key string) any {
	p, ok := Lookup(key)
	if !ok {
		panic("config: unknown key " + key)
	}
	return reflect.ValueOf(p.field(c)).Elem().Interface()
}

// StorageClass is one class that a job has on the node.
type StorageClass struct {
	Kind    string        // name of the kind, as in Input.Classes
	Memory  bool          // its samples take this host's memory
	Options option.Values // of the kind
	Threads int           // p_j: samples written to it at the same time
	// Read and Write are r_j and w_j: MB/s by the number of samples read or written at the same
	// time; empty: measured.
	Read, Write map[int]float64
}

// Capacity returns how many bytes its samples may take; 0: what the disk has free, less the
// reserve.
func (c StorageClass) Capacity() int64 {
	return option.Get[int64](c.Options, store.CapacityKey)
}

// Path returns its directory; "": it has none.
func (c StorageClass) Path() string { return option.Get[string](c.Options, store.PathKey) }

// Reserve returns how many bytes are left free on its directory's disk; 0: the kind's default.
func (c StorageClass) Reserve() int64 { return option.Get[int64](c.Options, store.ReserveKey) }

// WithCapacity returns the class with another capacity.
func (c StorageClass) WithCapacity(bytes int64) StorageClass {
	c.Options = maps.Clone(c.Options)
	c.Options[store.CapacityKey] = bytes
	return c
}

// Text describes the class in messages: "file of 10 GB in /nvme, 4 threads".
func (c StorageClass) Text() string {
	text := c.Kind
	if c.Capacity() > 0 {
		text += " of " + human.Format(c.Capacity())
	}
	if c.Path() != "" {
		text += " in " + c.Path()
	}
	return fmt.Sprintf("%s, %d threads", text, c.Threads)
}

// Environment holds numbers of the performance model (thesis 3.1). A number that is zero or missing
// was not given, and is measured.
type Environment struct {
	Compute       float64         // c, MB/s: consumed by the training on this node
	Preprocess    float64         // beta, MB/s: transformed by one thread
	Network       float64         // b_c, MB/s
	SourceNetwork float64         // b_fs, MB/s
	Source        map[int]float64 // t: MB/s of the source by the number of reading nodes
	SourceLatency float64         // of each read from the source, besides its bytes; seconds
}

// Origin describes where a value came from.
type Origin struct {
	Value  string // as it was written, or as it was derived
	Source string // "argument", "HDMLP_MEMORY", a file's path, "default", "measured: half of ..."
}

// Input is what Resolve makes a Config from.
type Input struct {
	// Arguments maps keys to JSON values, strings or numbers; nil: not given.
	Arguments map[string]any
	// Scope is what the arguments are given to. A key of the other scope would have no effect, so it
	// is refused; "": any key is accepted.
	Scope Scope
	// Environment holds the HDMLP_* variables; others are ignored.
	Environment map[string]string
	// File is the path of a TOML file, or of a libconfig file (Convert) if its name ends in .cfg,
	// which must exist. "": the one that HDMLP_CONFIG of Environment names, or none. See
	// DefaultFile.
	File string
	// Machine provides the facts from which defaults are derived.
	Machine Machine
	// Classes are the available kinds of storage classes.
	Classes []store.Kind
	// Slow is called, on a goroutine of its own, when the directory of a class has not answered for
	// 2 seconds; nil: not called. Resolve waits for it for start_timeout at most.
	Slow func(dir string)
}

// Machine provides facts about this machine. A nil function means that the fact is unknown: nothing
// is derived from it or checked against it, and memory is then 0 unless it is set.
type Machine struct {
	// AvailableMemory returns how many bytes a new job's memory class could have: the available
	// memory and what idle stores hold.
	AvailableMemory func() (int64, error)
	// MemoryBound returns what bounds that, as a suffix to the number: " (of ...)"; nil: unknown.
	MemoryBound func() string
	// Disk returns how many bytes are free on the disk of dir, which need not exist, and how many
	// it has in all.
	Disk func(dir string) (free, total int64, err error)
	// Directory returns an error if path is not a directory and cannot become one.
	Directory func(path string) error
	// Processors is the number of CPUs that the process may use, at least 1.
	Processors int
}

// Problem is one error in the configuration.
type Problem struct {
	Key     string // "memory"; "" for the file as a whole
	Value   string // as it was given
	Source  string // where the value came from
	Wrong   string // what is wrong with it
	Allowed string // what is allowed; may be empty
	Remedy  string // what to do, if that is more than to give a value that is allowed; may be empty
	Err     error  // the cause; may be nil
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
	if p.Remedy != "" {
		fmt.Fprintf(&b, "; %s", p.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause, or nil.
func (p *Problem) Unwrap() error { return p.Err }

// Resolve makes a Config from input. Its error joins one *Problem for each mistake.
func Resolve(input Input) (*Config, error) {
	r := resolver{
		input:  input,
		config: &Config{Origins: map[string]Origin{}},
		given:  map[string]given{},
	}
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

// DefaultFile returns the path of the file to read when the user names none: the one that
// HDMLP_CONFIG in env names, or hdmlp/config.toml in the user's configuration directory
// (XDG_CONFIG_HOME, or ~/.config), if it exists. It returns "" if there is none.
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

// argument is the source of values that are arguments.
const argument = "argument"

// given is a value as a user wrote it.
type given struct {
	text   string
	source string
}

// resolver holds the state of Resolve's passes. Each layer overwrites the values of those with
// lower precedence.
type resolver struct {
	input    Input
	config   *Config
	given    map[string]given
	classes  []fileClass // [[storage_class]]
	file     string
	settings map[string]origin // of a libconfig file, by the key that they give
	problems []error
}

func (r *resolver) problem(p Problem) {
	if o, is := r.settingOf(p.Key); is && p.Source == r.file {
		p.Key, p.Source = o.key, fmt.Sprintf("%s, line %d", r.file, o.line)
	}
	r.problems = append(r.problems, &p)
}

// settingOf returns the setting of a libconfig file that gives a key, or what it is part of.
func (r *resolver) settingOf(key string) (o origin, is bool) {
	for end := len(key); end > 0; end = strings.LastIndexByte(key[:end], '.') {
		if o, is = r.settings[key[:end]]; is {
			return o, true
		}
	}
	return o, false
}

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
			r.config.Warnings = append(r.config.Warnings, unknownVariable(name, names))
			continue
		}
		r.given[p.Key] = given{value, name}
	}
}

// unknownVariable returns the warning of a variable that is none of these, the keys' variables. It
// is no error: it may be another program's, or another release's. The value may be a secret.
func unknownVariable(name string, keys []string) string {
	near := nearestVariable(name, slices.Concat(keys, otherVariables[:]))
	if near == "" {
		near = "; allowed: HDMLP_ followed by a key that `hdmlp config` lists, in capital letters, " +
			"or " + human.List(otherVariables[:])
	}
	return name + " (environment) has no effect: unknown variable" + near
}

// nearestVariable is human.Nearest for variables, whose common prefix does not count.
func nearestVariable(unknown string, names []string) string {
	const prefix = "HDMLP_"
	rest := make([]string, len(names))
	for i, name := range names {
		rest[i] = strings.TrimPrefix(name, prefix)
	}
	near := human.Nearest(strings.TrimPrefix(unknown, prefix), rest)
	return strings.Replace(near, `"`, `"`+prefix, 1)
}

func (r *resolver) readArguments() {
	for _, key := range slices.Sorted(maps.Keys(r.input.Arguments)) {
		value := r.input.Arguments[key]
		if value == nil {
			continue
		}
		if p, known := Lookup(key); known && r.input.Scope != "" && p.Scope != r.input.Scope {
			text, _ := option.TextOf(value)
			r.problem(outOfScope(p, text))
			continue
		}
		r.take(key, value, argument, nil)
	}
}

// outOfScope is the problem of an argument that is a key of the other scope.
func outOfScope(p Parameter, value string) Problem {
	problem := Problem{Key: p.Key, Value: value, Source: argument}
	if p.Scope == Daemon {
		problem.Wrong = "a key of the daemon, which reads it when it starts"
		problem.Remedy = "set " + p.Variable() + " in the environment of the process that starts it, " +
			"write it into the configuration file, or use `hdmlp serve --set`"
		return problem
	}
	var keys []string
	for _, p := range parameters {
		if p.Scope == Daemon {
			keys = append(keys, p.Key)
		}
	}
	problem.Wrong = "a key of a job, not of the daemon"
	problem.Remedy = "give it to the loader, or set " + p.Variable() + " for the training process; " +
		"keys of the daemon are " + human.And(keys)
	return problem
}

// take records a key's value from one layer. otherKeys are allowed in addition to those of the
// table, and are read elsewhere.
func (r *resolver) take(key string, value any, source string, otherKeys []string) {
	text, scalar := option.TextOf(value)
	p, known := Lookup(key)
	switch {
	case !known:
		var keys []string
		for _, p := range parameters {
			keys = append(keys, p.Key)
		}
		keys = append(keys, otherKeys...)
		problem := Problem{
			Key: key, Value: text, Source: source,
			Wrong: "unknown key" + human.Nearest(key, keys),
		}
		if problem.Wrong == "unknown key" {
			problem.Allowed = "the keys that `hdmlp config` lists"
		}
		r.problem(problem)
	case !scalar:
		r.problem(Problem{
			Key:     key,
			Value:   text,
			Source:  source,
			Wrong:   "not a single value",
			Allowed: p.Allowed(),
		})
	default:
		r.given[key] = given{text, source}
	}
}

// parse parses every parameter's text, or else its default, into the Config.
func (r *resolver) parse() {
	for _, p := range parameters {
		from := given{p.Default, "default"}
		if g, ok := r.given[p.Key]; ok {
			from = g
		}
		if p.IsAuto(from.text) {
			r.config.Origins[p.Key] = Origin{Value: option.Auto, Source: "default: " + p.Derived}
			continue
		}
		value, _, err := p.Read(from.text)
		if value != nil {
			reflect.ValueOf(p.field(r.config)).Elem().Set(reflect.ValueOf(value))
		}
		if err != nil {
			r.refuse(p.Key, err, from.source)
			continue
		}
		r.config.Origins[p.Key] = Origin{Value: from.text, Source: from.source}
	}
}

// refuse reports the error of an option, an *option.Error, whose value came from source.
func (r *resolver) refuse(key string, err error, source string) {
	var e *option.Error
	if errors.As(err, &e) {
		r.problem(Problem{
			Key: key, Value: e.Value, Source: source, Wrong: e.Wrong, Allowed: e.Allowed, Err: e.Err,
		})
	}
}
