// Package scenario reads scenario files: TOML files that describe a machine, a dataset, a training
// job and the policies to simulate. Overrides replace values of the file.
//
// Sizes are in MB (10^6 bytes) and rates in MB/s, as in the papers, or strings with units: "64
// MiB", "10 GB/s", "40 Gbit/s". All errors in a file are reported together, as Faults, each of
// which names the key, its value and what is allowed.
//
// A File keeps the sizes and orders that it has read or drawn, so that the points of a sweep share
// them. It is safe for concurrent use; callers must not modify what it returns.
package scenario

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/study/policyfile"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
	"github.com/hdmlp/hdmlp/internal/study/sizes"
)

// Scenario is one machine, dataset and job to simulate. It is complete and valid; only the sizes of
// a synthetic dataset's samples have not been drawn yet.
type Scenario struct {
	Title       string // from the file; may be empty
	Env         model.Environment
	ClassNames  []string // of the storage classes, the staging buffer first
	Nodes       int
	Dataset     Dataset
	Epochs      int
	GlobalBatch int
	DropLast    bool
	Scheme      access.Scheme
	Jobs        int  // that train on the nodes at the same time
	Share       bool // what they prepare
	Forms       model.Forms
	Policies    []string // each once
	Profile     simulate.Profile
	Seed        uint64

	named  bool                   // the policies were named individually: each must be able to run
	values map[string]plan.Policy // by name
	files  []string               // names of those that are tables
	order  string                 // the file with the permutations; may be empty
	mix    *access.Mixture        // nil: the samples are one dataset's
	file   *File
}

// Dataset describes the samples: those of a file, or Samples many with sizes from a distribution.
type Dataset struct {
	Samples int
	Sizes   sizes.Distribution
	File    string // the index or list of sizes; "" if sizes are drawn
}

// File is a scenario file, before overrides are applied.
type File struct {
	path  string
	text  []byte
	known cache
	// machine is an environment file whose values replace those of [environment]; nil: none does.
	machine []byte
}

// cache holds sizes and orders that were read or drawn, by path or by what they were drawn from.
type cache struct {
	mu         sync.Mutex // guards the following
	sizes      map[string][]float64
	order      map[string][][]int32
	tables     map[string]*policyfile.Table
	bins       map[string][]sizes.Bin
	drawnReads int // number of reads in the drawn orders
	fault      map[string]error
}

// maxFile is the largest scenario file, in bytes.
const maxFile = 1 << 20

// Open reads the scenario file at path. Paths in it are relative to its directory.
func Open(path string) (*File, error) {
	text, err := files.ReadText(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	return New(path, text)
}

// New returns the File with the given text; path is used in messages and to resolve relative paths
// in the file. It returns an error if the text is not TOML.
func New(path string, text []byte) (*File, error) {
	f := &File{path: path, text: text}
	if _, err := f.decode(); err != nil {
		return nil, err
	}
	f.known.sizes = map[string][]float64{}
	f.known.order = map[string][][]int32{}
	f.known.tables = map[string]*policyfile.Table{}
	f.known.bins = map[string][]sizes.Bin{}
	f.known.fault = map[string]error{}
	return f, nil
}

// decode parses the text into a new table.
func (f *File) decode() (map[string]any, error) {
	table, err := f.decodeText()
	if err != nil || f.machine == nil {
		return table, err
	}
	return table, f.replace(table)
}

func (f *File) decodeText() (map[string]any, error) {
	table := map[string]any{}
	err := toml.Unmarshal(f.text, &table)
	if syntax, ok := err.(*toml.DecodeError); ok {
		row, column := syntax.Position()
		return nil, fmt.Errorf("%s: line %d, column %d: not TOML: %s", f.path, row, column,
			strings.TrimPrefix(syntax.Error(), "toml: "))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not TOML: %w", f.path, err)
	}
	return table, nil
}

// Name returns the file's name without directory and extension.
func (f *File) Name() string {
	return strings.TrimSuffix(filepath.Base(f.path), filepath.Ext(f.path))
}

// Override is a value that replaces the file's value for a key.
type Override struct {
	Key, Value string
	// Given is what faults call the key, such as "--seed" for one that a flag sets; "": Key.
	Given string
}

// ParseOverride parses KEY=VALUE.
func ParseOverride(text string) (Override, error) {
	key, value, ok := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	if !ok || key == "" {
		return Override{}, fmt.Errorf("%q is not KEY=VALUE", text)
	}
	return Override{Key: key, Value: strings.TrimSpace(value)}, nil
}

// Scenario returns the file's scenario with the given overrides. If values are invalid, the error
// is of type Faults and lists all of them.
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
		for i := range r.faults {
			for _, o := range set {
				if o.Given != "" && FullKey(o.Key) == r.faults[i].Key {
					r.faults[i].Key = o.Given
				}
			}
		}
		return nil, r.faults
	}
	return r.scenario, nil
}

// Job returns the job to simulate. Its sizes and order are shared with other scenarios of the file
// and must not be modified.
func (s *Scenario) Job() (*simulate.Job, error) {
	job := &simulate.Job{
		Env: s.Env, Nodes: s.Nodes, Epochs: s.Epochs, GlobalBatch: s.GlobalBatch,
		DropLast: s.DropLast, Scheme: s.Scheme, Seed: s.Seed, Jobs: s.Jobs, Share: s.Share,
		Forms:   s.Forms,
		Mixture: s.mix,
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

// keptReads is the number of reads, at 4 bytes each, up to which orders are kept for all
// simulations instead of being drawn by each.
const keptReads = 1 << 28

// keepsOrder reports whether the epochs' permutations are drawn once for all simulations of the
// scenario. Jobs that read in orders of their own draw these themselves.
func (s *Scenario) keepsOrder() bool {
	return s.order == "" && s.mix == nil && (s.Jobs == 1 || s.Share) &&
		s.Dataset.Samples <= keptReads/s.Epochs
}

// drawnOrder returns the epochs' permutations, which it draws once for all scenarios with the same
// arguments. It returns nil if keeping them would exceed keptReads.
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

// drawn returns the sizes of a synthetic dataset, which it draws once; nil for a dataset from a
// file.
func (c *cache) drawn(seed uint64, d Dataset) []float64 {
	if d.File != "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint("drawn ", seed, d)
	sizes, ok := c.sizes[key]
	if !ok {
		sizes = d.Sizes.Draw(seed, d.Samples)
		c.sizes[key] = sizes
	}
	return sizes
}

// Bytes returns the expected size of the dataset in MB, which is exact for a dataset from a file,
// and leaves out the effect of draws that are made again.
func (s *Scenario) Bytes() float64 {
	if s.Dataset.File == "" {
		return s.Dataset.Sizes.Mean() * float64(s.Dataset.Samples)
	}
	sum := 0.0
	sizes, _ := s.file.sizesOf(s.Dataset.File)
	for _, v := range sizes {
		sum += v
	}
	return sum
}

// Steps returns the number of batches in an epoch.
func (s *Scenario) Steps() int {
	if s.DropLast {
		return s.positions() / s.GlobalBatch
	}
	return int(math.Ceil(float64(s.positions()) / float64(s.GlobalBatch)))
}

// positions returns how many samples an epoch has.
func (s *Scenario) positions() int {
	if s.mix != nil {
		return s.mix.Entries
	}
	return s.Dataset.Samples
}
