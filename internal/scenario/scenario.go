// Package scenario reads what the simulator is to simulate: a TOML file that
// describes a machine, a dataset, a training job and the policies to compare, with values that
// may be set from outside in the file's place (Overrides).
//
// Sizes are in MB (10^6 bytes) and rates in MB/s, as in the papers, or strings with their units:
// "64 MiB", "10 GB/s", "40 Gbit/s". All that is wrong with a file is said at once, as Faults, each
// of which names the key, its value and what is allowed.
//
// A File keeps what it has read or drawn, so that the points of a sweep share
// their samples' sizes. It is safe for concurrent use; what it gives out must not be changed.
package scenario

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/inputfile"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
	"github.com/hdmlp/hdmlp/internal/simulate"
)

// Policies returns the names of all policies, in the order in which they are shown.
func Policies() []string { return policies.Names(policies.All()) }

// Scenario is one machine, dataset and job to simulate. It is complete and valid; only the sizes of
// the samples of a synthetic dataset are yet to be drawn.
type Scenario struct {
	Title       string // what the file calls itself; may be empty
	Env         perfmodel.Environment
	ClassNames  []string // of the storage classes, the staging buffer first
	Nodes       int
	Dataset     Dataset
	Epochs      int
	GlobalBatch int
	DropLast    bool
	Scheme      access.Scheme
	Policies    []string // each once
	Profile     simulate.Profile
	Seed        uint64

	named bool   // the policies were named one by one, so each must be able to run
	order string // the file with the permutations; may be empty
	file  *File
}

// Dataset says what the samples are: those of a file, or as many as Samples, of
// sizes from a normal distribution. Sizes in MB.
type Dataset struct {
	Samples        int
	Mu, Sigma, Min float64 // of the normal distribution; a size below Min is drawn again
	File           string  // the index or list of sizes that they come from; "": they are drawn
}

// File is a scenario file that has been read, but for the values that are set in its place.
type File struct {
	path  string
	text  []byte
	known cache
}

// cache holds what is read or drawn once, by what it is made of.
type cache struct {
	mu         sync.Mutex // guards the following
	sizes      map[string][]float64
	order      map[string][][]int32
	drawnReads int // of the orders that were drawn
	fault      map[string]error
}

// maxFile is the largest scenario file, in bytes.
const maxFile = 1 << 20

// Open reads a scenario file. Paths in it are relative to its directory.
func Open(path string) (*File, error) {
	text, err := inputfile.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	return New(path, text)
}

// New takes the text of a scenario file; path tells where it stands, for messages and for relative
// paths in it.
func New(path string, text []byte) (*File, error) {
	f := &File{path: path, text: text}
	if _, err := f.decode(); err != nil {
		return nil, err
	}
	f.known.sizes = map[string][]float64{}
	f.known.order = map[string][][]int32{}
	f.known.fault = map[string]error{}
	return f, nil
}

// decode makes a new table of the text.
func (f *File) decode() (map[string]any, error) {
	table := map[string]any{}
	err := toml.Unmarshal(f.text, &table)
	if syntax, ok := err.(*toml.DecodeError); ok {
		row, column := syntax.Position()
		return nil, fmt.Errorf("%s: line %d, column %d: not TOML: %w", f.path, row, column, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not TOML: %w", f.path, err)
	}
	return table, nil
}

// Name is the file's name, without directory and ending.
func (f *File) Name() string {
	return strings.TrimSuffix(filepath.Base(f.path), filepath.Ext(f.path))
}

// Override is a value that stands in the place of the file's.
type Override struct{ Key, Value string }

// ParseOverride reads KEY=VALUE.
func ParseOverride(text string) (Override, error) {
	key, value, ok := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	if !ok || key == "" {
		return Override{}, fmt.Errorf("%q is not KEY=VALUE", text)
	}
	return Override{key, strings.TrimSpace(value)}, nil
}

// Scenario makes the scenario of the file, with the values that are set in the place of the file's.
// All that is wrong is in the error, which is then of type Faults.
func (f *File) Scenario(set ...Override) (*Scenario, error) {
	table, err := f.decode()
	if err != nil {
		return nil, err
	}
	r := &reader{file: f, scenario: &Scenario{file: f}}
	for _, o := range set {
		r.set(table, o)
	}
	r.read(table)
	if len(r.faults) > 0 {
		return nil, r.faults
	}
	return r.scenario, nil
}

// Job makes the job to simulate. Its sizes are shared with the other scenarios of the file, and
// must not be changed.
func (s *Scenario) Job() (*simulate.Job, error) {
	job := &simulate.Job{
		Env: s.Env, Nodes: s.Nodes, Epochs: s.Epochs, GlobalBatch: s.GlobalBatch,
		DropLast: s.DropLast, Scheme: s.Scheme, Seed: s.Seed,
	}
	job.Sizes = s.file.known.drawn(s.Seed, s.Dataset)
	if s.Dataset.File != "" {
		sizes, err := s.file.sizesOf(s.Dataset.File)
		if err != nil {
			return nil, err
		}
		job.Sizes = sizes
	}
	if s.order != "" {
		order, err := s.file.orderOf(s.order)
		if err != nil {
			return nil, err
		}
		job.Order = order
	}
	if s.keepsOrder() {
		order, err := s.file.known.drawnOrder(s.Seed, s.Dataset.Samples, s.Epochs)
		if err != nil {
			return nil, err
		}
		job.Order = order
	}
	return job, nil
}

// keptReads is how many reads may have their order kept for all simulations, 4 bytes each, instead
// of drawn by each.
const keptReads = 1 << 28

// keepsOrder reports whether the epochs' permutations are drawn once, for all simulations of the
// scenario.
func (s *Scenario) keepsOrder() bool {
	return s.order == "" && s.Dataset.Samples <= keptReads/s.Epochs
}

// drawnOrder draws the permutations of the epochs, once for all scenarios that have the same, as
// long as there is room for them.
func (c *cache) drawnOrder(seed uint64, samples, epochs int) ([][]int32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint("drawn ", seed, samples, epochs)
	order, ok := c.order[key]
	if ok || c.drawnReads+samples*epochs > keptReads {
		return order, nil
	}
	order, err := simulate.DrawOrder(seed, samples, epochs)
	if err != nil {
		return nil, err
	}
	c.order[key] = order
	c.drawnReads += samples * epochs
	return order, nil
}

// drawn draws the sizes of a synthetic dataset, once; nil for one from a file.
func (c *cache) drawn(seed uint64, d Dataset) []float64 {
	if d.File != "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint("drawn ", seed, d)
	sizes, ok := c.sizes[key]
	if !ok {
		sizes = simulate.DrawSizes(seed, d.Samples, d.Mu, d.Sigma, d.Min)
		c.sizes[key] = sizes
	}
	return sizes
}

// Needs tells what in the machine the policy cannot do without and does not find, or "".
func (s *Scenario) Needs(policy string) string {
	class := func(j int) float64 {
		if j < len(s.Env.Classes) {
			return s.Env.Classes[j].Capacity
		}
		return 0
	}
	about := aboutOf(policy)
	switch {
	case about.Needs == placement.FirstClass && class(1) == 0:
		return policy + " keeps samples in storage class 1, which has no capacity"
	case about.Needs == placement.SomeClass && s.Env.LocalCapacity() == 0:
		return policy + " keeps samples in the storage classes from 1, which have no capacity"
	case about.Stages && class(0) == 0:
		return policy + " prefetches to the staging buffer, storage class 0, which has no capacity"
	}
	return ""
}

// aboutOf describes a policy of a scenario, all of which are known.
func aboutOf(name string) placement.About {
	p, err := policies.ForSimulator(name)
	if err != nil {
		return placement.About{}
	}
	return p.About()
}

// Bytes is the size of the dataset, in MB, as expected: exact for one from a file.
func (s *Scenario) Bytes() float64 {
	if s.Dataset.File == "" {
		return s.Dataset.Mu * float64(s.Dataset.Samples)
	}
	sum := 0.0
	sizes, _ := s.file.sizesOf(s.Dataset.File)
	for _, v := range sizes {
		sum += v
	}
	return sum
}

// Steps is the number of batches of an epoch.
func (s *Scenario) Steps() int {
	if s.DropLast {
		return s.Dataset.Samples / s.GlobalBatch
	}
	return int(math.Ceil(float64(s.Dataset.Samples) / float64(s.GlobalBatch)))
}
