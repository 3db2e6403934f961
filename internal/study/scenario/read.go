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
	loaded   []loadedTable // the policies that are tables
	// epochSize is the length of an epoch of a mix, whose value the file has as given.
	epochSize int
	given     any
	unread    bool // job.forms is not a part
	sent      any  // job.forms_sent as given; nil: it is not
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
				{name: "policy_files", read: r.policyFiles},
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
		{name: "forms", read: func(key string, v any) {
			faults := len(r.faults)
			r.part(&s.Forms.Time)(key, v)
			r.unread = len(r.faults) > faults
		}},
		{name: "forms_size", read: r.times(&s.Forms.Size)},
		{name: "forms_sent", read: func(key string, v any) {
			r.sent = v
			r.truth(&s.Forms.Sent)(key, v)
		}},
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
		{name: "epoch_size", read: r.whole(&r.epochSize, 1, maxSamples)},
		{name: "mix", read: r.mix},
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

// mix reads the datasets that epochs are mixed of: the samples and the weight of each.
func (r *reader) mix(key string, v any) {
	const allowed = "a list of [samples, weight], of which samples are 1 or more, and weights " +
		"whole numbers of which one is not 0"
	list, _ := v.([]any)
	r.given = v
	m := &access.Mixture{Weights: [][]uint64{nil}}
	sum := int64(0)
	for _, entry := range list {
		pair, _ := entry.([]any)
		if len(pair) != 2 {
			r.fault(key, v, "not a list of pairs", allowed)
			return
		}
		n, whole := pair[0].(int64)
		w, other := pair[1].(int64)
		if !whole || !other || n < 1 || n > maxSamples || w < 0 || w > math.MaxInt32 {
			r.fault(key, v, fmt.Sprintf("%v is no such pair", pair), allowed)
			return
		}
		m.Sizes = append(m.Sizes, int(n))
		m.Weights[0] = append(m.Weights[0], uint64(w))
		sum += w
	}
	if sum < 1 || sum > math.MaxUint32 {
		r.fault(key, v, "no weights, or too large ones", allowed)
		return
	}
	r.scenario.mix = m
}

// times returns a reader of a number that is at least 1.
func (r *reader) times(to *float64) func(string, any) {
	return func(key string, v any) {
		switch n := v.(type) {
		case float64:
			*to = n
		case int64:
			*to = float64(n)
		}
		if !(*to >= 1 && *to <= model.MostForm) {
			r.fault(key, v, "not how many times as large",
				fmt.Sprintf("a number from 1 to %d", model.MostForm))
		}
	}
}

// part returns a reader of a number above 0, up to 1.
func (r *reader) part(to *float64) func(string, any) {
	return func(key string, v any) {
		switch n := v.(type) {
		case float64:
			*to = n
		case int64:
			*to = float64(n)
		}
		if !(*to > 0 && *to <= 1) {
			r.fault(key, v, "not a part", "a number above 0, at most 1")
		}
	}
}

// truth returns a reader of a boolean.
func (r *reader) truth(to *bool) func(string, any) {
	return func(key string, v any) {
		b, ok := v.(bool)
		if !ok {
			r.fault(key, v, "neither true nor false", "true or false")
		}
		*to = b
	}
}
