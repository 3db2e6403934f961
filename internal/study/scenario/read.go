package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// Limits of what can be simulated.
const (
	maxNodes   = 1<<16 - 1 // the largest node number in the placement's tables
	maxSamples = math.MaxInt32
	maxEpochs  = 1_000_000
	maxThreads = 1 << 16
	maxJobs    = 1024
)

// reader reads a table into a Scenario and collects the faults.
type reader struct {
	file     *File
	scenario *Scenario
	faults   Faults
}

// field is a key that a table may have.
type field struct {
	name     string
	required string // what is allowed, for a required key; "" for an optional one
	read     func(key string, value any)
}

func (r *reader) fault(key string, value any, wrong, allowed string) {
	r.faults = append(r.faults, Fault{
		Key: key, Value: envfile.Text(value), Wrong: wrong, Allowed: allowed,
	})
}

// table reads the keys of a table; path is the prefix of its keys.
func (r *reader) table(path string, value any, fields []field) {
	table, ok := value.(map[string]any)
	if !ok {
		r.fault(path, value, "not a table", "["+path+"]")
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
		key := join(path, f.name)
		if v, given := table[f.name]; given {
			f.read(key, v)
		} else if f.required != "" {
			r.fault(key, nil, "missing", f.required)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(names, name) {
			r.fault(join(path, name), table[name], "unknown key"+human.Nearest(name, names),
				human.List(names))
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// read reads the whole file.
func (r *reader) read(table map[string]any) {
	s := r.scenario
	s.Profile = simulate.Model
	s.Seed = 1
	s.Scheme = access.Uniform
	s.Policies = Policies()
	s.Env.Classes, s.Jobs = nil, 1
	r.table("", table, []field{
		{name: "title", read: r.string(&s.Title)},
		{"environment", "[environment], the machine", func(key string, v any) {
			r.environment(key, v)
		}},
		{"dataset", "[dataset], the samples", func(key string, v any) { r.dataset(key, v) }},
		{"job", "[job], the training", func(key string, v any) { r.job(key, v) }},
		{name: "simulate", read: func(key string, v any) {
			r.table(key, v, []field{
				{name: "policies", read: r.policies},
				{name: "profile", read: func(key string, v any) {
					if name, ok := v.(string); ok &&
						(name == string(simulate.Model) || name == string(simulate.Thesis)) {
						s.Profile = simulate.Profile(name)
						return
					}
					r.fault(key, v, "not a profile", `"model" or "thesis"`)
				}},
				{name: "seed", read: func(key string, v any) {
					seed, ok := v.(int64)
					if !ok || seed < 0 {
						r.fault(key, v, "not a seed",
							fmt.Sprintf("a whole number from 0 to %d", int64(math.MaxInt64)))
						return
					}
					s.Seed = uint64(seed)
				}},
			})
		}},
	})
	r.together()
}

func (r *reader) environment(path string, value any) {
	s := r.scenario
	needed := envfile.Rate.Allowed
	r.table(path, value, []field{
		{"nodes", "a whole number from 1", r.whole(&s.Nodes, 1, maxNodes)},
		{"compute", needed, r.rate(&s.Env.Compute)},
		{"preprocess", needed, r.rate(&s.Env.Preprocess)},
		{"network", needed, r.rate(&s.Env.PeerBandwidth)},
		{"source_network", needed, r.rate(&s.Env.SourceBandwidth)},
		{"source", envfile.CurveAllowed, r.curve(&s.Env.SourceThroughput)},
		{name: "source_latency", read: r.quantity(&s.Env.SourceLatency, envfile.Time)},
		{name: "source_work", read: r.quantity(&s.Env.SourceWork, envfile.Time)},
		{name: "cores", read: r.whole(&s.Env.Processors.Cores, 1, maxThreads)},
		{name: "hyperthreads", read: r.whole(&s.Env.Processors.Hyperthreads, 1, maxThreads)},
		{name: "sample_size", read: ignored}, // what an environment file has besides
		{
			"storage_class", "[[environment.storage_class]], at least class 0, the staging buffer",
			func(key string, v any) {
				entries, ok := v.([]any)
				if !ok || len(entries) == 0 {
					r.fault(key, v, "not a list of storage classes",
						"[[environment.storage_class]], at least class 0, the staging buffer")
					return
				}
				for j, entry := range entries {
					s.Env.Classes = append(s.Env.Classes,
						r.class(fmt.Sprintf("%s.%d", key, j), j, entry))
				}
			},
		},
	})
}

// ignored reads a key that is of no use to a scenario.
func ignored(string, any) {}

func (r *reader) class(path string, j int, value any) model.Class {
	c := model.Class{Threads: 1}
	name := fmt.Sprintf("class %d", j)
	if j == 0 {
		name = "staging"
	}
	r.table(path, value, []field{
		{name: "name", read: r.string(&name)},
		{name: "path", read: ignored},
		{"capacity", envfile.Size.Allowed, r.quantity(&c.Capacity, envfile.Size)},
		{name: "threads", read: r.whole(&c.Threads, 1, maxThreads)},
		{"read", envfile.CurveAllowed, r.curve(&c.Read)},
		{name: "write", read: r.curve(&c.Write)},
	})
	if c.Write == nil {
		c.Write = c.Read
	}
	r.scenario.ClassNames = append(r.scenario.ClassNames, name)
	return c
}

func (r *reader) dataset(path string, value any) {
	d := &r.scenario.Dataset
	table, _ := value.(map[string]any)
	_, index := table["index"]
	_, sizes := table["sizes"]
	if !index && !sizes {
		r.table(path, value, []field{
			{
				"samples", "a whole number from 1; or give index or sizes, a file",
				r.whole(&d.Samples, 1, maxSamples),
			},
			{"mu", envfile.Size.Allowed, r.aboveZero(&d.Mu, envfile.Size)},
			{name: "sigma", read: r.quantity(&d.Sigma, envfile.Size)},
			{name: "min", read: r.quantity(&d.Min, envfile.Size)},
			{name: "index", read: nil},
			{name: "sizes", read: nil},
		})
		return
	}
	open := func(load func(path string) ([]float64, error)) func(string, any) {
		return func(key string, v any) {
			name, ok := v.(string)
			if !ok || name == "" {
				r.fault(key, v, "not the name of a file", "a path, relative to the scenario file")
				return
			}
			d.File = r.file.resolve(name)
			found, err := load(d.File)
			if err != nil {
				r.fault(key, v, err.Error(), "")
			}
			d.Samples = len(found)
		}
	}
	other := func(name string) func(string, any) {
		return func(key string, v any) {
			r.fault(key, v, "the samples come from a file already",
				"either index, or sizes, or "+name)
		}
	}
	drawn := other("samples, mu, sigma and min")
	fields := []field{
		{name: "index", read: open(r.file.indexOf)},
		{name: "sizes", read: open(r.file.listOf)},
		{name: "samples", read: drawn},
		{name: "mu", read: drawn},
		{name: "sigma", read: drawn},
		{name: "min", read: drawn},
	}
	if index && sizes {
		fields[1].read = drawn
	}
	r.table(path, value, fields)
}

func (r *reader) job(path string, value any) {
	s := r.scenario
	r.table(path, value, []field{
		{"epochs", "a whole number from 1", r.whole(&s.Epochs, 1, maxEpochs)},
		{
			"global_batch_size", "a whole number from 1, at least one sample per node",
			r.whole(&s.GlobalBatch, 1, maxSamples),
		},
		{name: "drop_last", read: r.truth(&s.DropLast)},
		{name: "jobs", read: r.whole(&s.Jobs, 1, maxJobs)},
		{name: "share", read: r.truth(&s.Share)},
		{name: "scheme", read: func(key string, v any) {
			schemes := []string{
				string(access.Uniform), string(access.Strided),
				string(access.Whole), string(access.Imbalanced),
			}
			name, _ := v.(string)
			if !slices.Contains(schemes, name) {
				r.fault(key, v, "not a distribution scheme"+human.Nearest(name, schemes),
					human.List(schemes))
			}
			s.Scheme = access.Scheme(name)
		}},
		{name: "order", read: func(key string, v any) {
			name, ok := v.(string)
			if !ok || name == "" {
				r.fault(key, v, "not the name of a file", "a path, relative to the scenario file")
				return
			}
			s.order = r.file.resolve(name)
		}},
	})
}

// truth reads a boolean.
func (r *reader) truth(to *bool) func(string, any) {
	return func(key string, v any) {
		b, ok := v.(bool)
		if !ok {
			r.fault(key, v, "neither true nor false", "true or false")
		}
		*to = b
	}
}

func (r *reader) policies(key string, value any) {
	var names []string
	switch v := value.(type) {
	case string:
		names = []string{v}
	case []any:
		for i, entry := range v {
			name, ok := entry.(string)
			if !ok {
				r.fault(fmt.Sprintf("%s.%d", key, i), entry, "not a name",
					human.List(append(Policies(), "all")))
				continue
			}
			names = append(names, name)
		}
	default:
		r.fault(key, value, "not a list of policies",
			`["all"] or names of `+human.List(Policies()))
		return
	}
	chosen, err := ChoosePolicies(names)
	if err != nil {
		r.faults = append(r.faults, err.(Faults)...)
		return
	}
	r.scenario.Policies = chosen
	if !slices.Contains(names, "all") {
		r.scenario.named = true
	}
}

// ChoosePolicies returns the named policies, each once, in the order in which they are first named.
// The name "all" stands for every policy. It returns Faults if a name is unknown or names is empty.
func ChoosePolicies(names []string) ([]string, error) {
	policies := Policies()
	var chosen []string
	var faults Faults
	for _, name := range names {
		switch {
		case name == "all":
			chosen = append(chosen, policies...)
		case slices.Contains(policies, name):
			chosen = append(chosen, name)
		default:
			faults = append(faults, Fault{
				Key: "simulate.policies", Value: envfile.Text(name),
				Wrong:   "unknown policy" + human.Nearest(name, policies),
				Allowed: "all, or " + human.List(policies),
			})
		}
	}
	if len(names) == 0 {
		faults = append(faults,
			Fault{
				Key: "simulate.policies", Wrong: "empty",
				Allowed: "all, or " + human.List(policies),
			})
	}
	if faults != nil {
		return nil, faults
	}
	var once []string
	for _, name := range chosen {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once, nil
}
