// Package request is a process's request to open a job as one rank: the dataset, its order, the
// nodes and the settings. It validates the request, reads the lists of samples that come in file
// descriptors, and compares the requests of ranks and nodes.
//
// A request does not change once it is made. Values that a job agrees on with other nodes, such as
// a seed that is drawn, are kept by the job.
package request

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/transform"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/targets"
)

const (
	// MaxJob is the limit on the bytes of a job's name.
	MaxJob = 256
	// MaxList is the limit on the samples of a list that comes in a descriptor, and on the batches
	// of a given epoch.
	MaxList = 1 << 28
	// MaxBatch is the limit on the samples of a batch: its frame to the process holds no more.
	MaxBatch = 381_184
	// MaxOutputs is the limit on the fields and views that are delivered of a sample.
	MaxOutputs = 64
	// MaxEpoch is the largest number of a given epoch: frames have 32 bits for it.
	MaxEpoch = 1<<31 - 1
)

// Open requests to create or join a job as one rank.
type Open struct {
	Job       string // its name
	Rank      int
	WorldSize int
	Dataset   source.Spec
	// Manifest is the descriptor with the dataset's manifest; nil: it has none. The caller of
	// ReadManifest closes it.
	Manifest *os.File
	Stream   Stream
	// Transforms describes what is delivered of every sample (Compile); nil: all its fields, as they
	// are.
	Transforms json.RawMessage
	Cluster    *Cluster // nil: all ranks are on this node
	Share      Share
	// Verify requests that the bytes of every sample are compared with the source's.
	Verify bool
	// Leave requests that samples which cannot be read are delivered without their fields, whatever
	// on_error says: the process makes of them what it can.
	Leave bool
	Settings
}

// Share describes a process's part in the group that the configuration key share names.
type Share struct {
	Loader string // the loader's name in its process
	Ahead  int    // up to how many batches its workers have at a time; 0: it has none
	Again  bool   // it was open before: the first batch need not wait for other members
}

// Settings carry a process's configuration to the daemon, which resolves it.
type Settings struct {
	Arguments   map[string]any
	Environment map[string]string
	ConfigFile  string
}

// Stream holds the access stream's parameters.
type Stream struct {
	Seed        *uint64 // nil: drawn by the daemon
	Epochs      int
	GlobalBatch int
	DropLast    bool
	Shuffle     string
	Scheme      string
	Tail        string
	// Subset restricts the stream to a part of the dataset. Given is set if Shuffle is "given": the
	// process gives the order of each epoch. At most one of the two is not nil.
	Subset *Subset
	Given  *Given
	// Mix has epochs take samples of several datasets; nil: there is one. Then neither is set.
	Mix *Mix
	// List is the descriptor with the samples of either. The caller of ReadOrder closes it.
	List *os.File
}

// Mix describes how epochs take samples of several datasets.
type Mix = access.Mixture

// Subset describes a list with the samples of the subset, as i32.
type Subset struct {
	Count int
}

// Given describes a list with the sizes of an epoch's batches, as u32, followed by the samples of
// Epochs epochs from First on, as i32. In a job with several ranks it describes this rank's part:
// each batch has Batch samples, except that the last may be shorter, and the list holds no sizes.
type Given struct {
	Batches int
	Entries int // samples of an epoch
	Epochs  int // at least 1
	First   int
	Batch   int
	// Rank is the process's, among Ranks that each give an order of their own to a job of their own;
	// 0 and 0: there are no others.
	Rank, Ranks int
	// Seed is the seed that the rank would use if it read alone; rank 0's is the job's.
	Seed uint64
	// Apart is why the rank gives no order that the ranks can share, so that each reads by itself. It
	// is empty if the rank gives one.
	Apart string
}

// Give gives the order of another epoch: a descriptor carries its samples, as i32. Apart is as in
// Given; if it is set, there are no samples.
type Give struct {
	Epoch   int
	Entries int
	Apart   string
}

// Cluster describes which of a job's nodes this is, and how they find each other.
type Cluster struct {
	Nodes          int
	Node           int    // from 0
	LocalWorldSize int    // ranks on this node
	Address        string // host:port of node 0's daemon, for the job's first loader
	Loader         int    // this loader's number, less than 256: its ports are 4*Loader higher
	Secret         string // the job's secret, the same on all nodes
}

// Launch describes which of the nodes this is that run the same script, and how they find each
// other, before it has a job.
type Launch struct {
	Name    string // the same on all nodes
	Nodes   int
	Node    int    // from 0
	Address string // as Cluster.Address
	Secret  string // as Cluster.Secret
}

// Step is a step of opening a job.
type Step struct {
	What    string
	Done    int64 // files of a scan
	Warning bool  // a problem that a user should look into
}

// CacheWaits returns the step of waiting for a cache directory that does not answer.
func CacheWaits(dir string) Step {
	return Step{
		What: "the cache directory " + human.Name(dir) + " does not respond; waiting for it, " +
			"up to start_timeout",
		Warning: true,
	}
}

// CachesOfAnotherWait is the step of waiting while another job opens or closes its caches of the
// dataset.
var CachesOfAnotherWait = Step{
	What: "another job on this dataset is still opening or closing its caches; waiting for it, " +
		"up to start_timeout",
	Warning: true,
}

// Progress is called with each step. It may be called often, and from any goroutine.
type Progress func(Step)

// Check validates the rank, the world size and the job's name.
func (m *Open) Check() error {
	if m.WorldSize < 1 || m.Rank < 0 || m.Rank >= m.WorldSize {
		return failure.Input("rank %d is out of range for world size %d: ranks are 0 to %d",
			m.Rank, m.WorldSize, m.WorldSize-1)
	}
	if len(m.Job) > MaxJob {
		return failure.Input("the job's name has %d bytes, but at most %d are allowed: %.40s...",
			len(m.Job), MaxJob, m.Job)
	}
	if m.Leave && m.Transformed() {
		return failure.Input("leave and transforms: samples that cannot be read cannot be " +
			"transformed; leave out one of the two")
	}
	return nil
}

// Spans reports whether the job has several nodes.
func (m *Open) Spans() bool { return m.Cluster != nil && m.Cluster.Nodes > 1 }

// Transformed reports whether the request has transforms.
func (m *Open) Transformed() bool { return Describes(m.Transforms) }

// Describes reports whether transforms describes any transforms.
func Describes(transforms json.RawMessage) bool {
	return len(transforms) > 0 && string(transforms) != "null"
}

// Output is a field of samples as it is delivered.
type Output struct {
	Field   string             // "" if Transforms names none: that of samples of one field
	Inputs  []string           // the fields that Program is applied to jointly; nil: to Field
	Program *transform.Program // nil: the field is delivered as it is
}

// Results returns how many results are delivered: 1, or the number of views.
func (o Output) Results() int {
	if o.Program == nil {
		return 1
	}
	return len(o.Program.Outputs())
}

// fields is the form of Transforms that says which fields are delivered.
type fields struct {
	Fields []struct {
		Field      string          `json:"field"`
		Transforms json.RawMessage `json:"transforms"`
		// Inputs are the fields that Transforms are applied to jointly, in the place of Field.
		Inputs []input `json:"inputs"`
		// Mask is how masks are sampled: "tensor", the default, or "pil".
		Mask string `json:"mask"`
	} `json:"fields"`
}

// input is a field of a joint list, with its kind and, of a mask, its type.
type input struct {
	Field string `json:"field"`
	Kind  string `json:"kind"`
	Type  string `json:"type"`
}

// joint compiles a list that is applied to several fields.
func joint(transforms json.RawMessage, inputs []input, mask string) (o Output, err error) {
	var list []targets.Input
	for _, in := range inputs {
		made := targets.Input{Kind: in.Kind}
		if in.Type != "" {
			i := slices.IndexFunc(targets.Types,
				func(t pixels.Type) bool { return t.String() == in.Type })
			if i < 0 {
				return o, failure.Input("field %s: %q is no type of masks", human.Name(in.Field), in.Type)
			}
			made.Type = targets.Types[i]
		}
		list = append(list, made)
		o.Inputs = append(o.Inputs, in.Field)
	}
	if mask != "" && mask != "tensor" && mask != "pil" {
		return o, failure.Input("mask: %q; allowed: tensor, pil", mask)
	}
	o.Field = o.Inputs[0]
	if o.Program, err = transform.CompileJoint(transforms, list, mask == "pil"); err != nil {
		return o, failure.Input("fields %s: %v", human.And(o.Inputs), err)
	}
	return o, nil
}

// Compile compiles a description of what is delivered (docs/FORMATS.md): a list of transforms for
// samples of one field, or which fields are delivered, each with a list of its own or as it is.
func Compile(transforms json.RawMessage) ([]Output, error) {
	if text := bytes.TrimSpace(transforms); len(text) == 0 || text[0] != '{' {
		program, err := transform.Compile(transforms)
		if err != nil {
			return nil, failure.Input("%v", err)
		}
		return []Output{{Program: program}}, nil
	}
	var given fields
	d := json.NewDecoder(bytes.NewReader(transforms))
	d.DisallowUnknownFields()
	if err := d.Decode(&given); err != nil {
		return nil, failure.Input("transforms: it must be a list of transforms, or say what is "+
			"delivered of each of the fields: %v", err)
	}
	if len(given.Fields) == 0 || len(given.Fields) > MaxOutputs {
		return nil, failure.Input("transforms: %d fields; at least 1 and at most %d are allowed",
			len(given.Fields), MaxOutputs)
	}
	var outputs []Output
	results := 0
	for _, f := range given.Fields {
		o := Output{Field: f.Field}
		if len(f.Inputs) > 0 {
			var err error
			if o, err = joint(f.Transforms, f.Inputs, f.Mask); err != nil {
				return nil, err
			}
		} else if Describes(f.Transforms) {
			var err error
			if o.Program, err = transform.Compile(f.Transforms); err != nil {
				return nil, failure.Input("field %s: %v", human.Name(f.Field), err)
			}
		}
		outputs = append(outputs, o)
		results += o.Results()
	}
	if results > MaxOutputs {
		return nil, failure.Input("transforms: %d views and other fields; at most %d are allowed",
			results, MaxOutputs)
	}
	return outputs, nil
}

// Name returns a job's name with unprintable characters escaped.
func Name(job string) string { return human.Name(job) }

// Scanning returns the step of a dataset's scan that has found so many files.
func Scanning(path string, files int64) Step {
	return Step{What: "scanning " + human.Name(path), Done: files}
}
