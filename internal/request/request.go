// Package request is what a process asks for when it opens a job as one rank: which dataset, in
// which order, on which nodes, by which settings. It checks that, reads the lists of samples that
// come in descriptors, and compares what ranks and nodes say.
//
// A request does not change once it is made. What its job settles with other nodes, such as a seed
// that is drawn, the job has.
package request

import (
	"encoding/json"
	"os"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/transform"
)

const (
	// MaxJob is how many bytes a job's name may have.
	MaxJob = 256
	// MaxList is how many samples a list may have that comes in a descriptor, and how many batches
	// an epoch that is given.
	MaxList = 1 << 28
	// MaxBatch is the most samples that a batch may have: its frame to the process has room for no
	// more.
	MaxBatch = 419_328
	// MaxEpoch is the largest epoch that may be given: frames count them in 32 bits.
	MaxEpoch = 1<<31 - 1
)

// Open asks for a job as one rank.
type Open struct {
	Job       string // its name
	Rank      int
	WorldSize int
	Dataset   dataset.Spec
	Stream    Stream
	// Transforms describes what is made of every sample (docs/FORMATS.md); nil: nothing.
	Transforms json.RawMessage
	Cluster    *Cluster // nil: all ranks are on this node
	// Verify: compare the bytes of every sample with the source's.
	Verify bool
	Settings
}

// Settings carry a process's configuration to the daemon, which resolves it.
type Settings struct {
	Arguments   map[string]any
	Environment map[string]string
	ConfigFile  string
}

// Stream has the access stream's parameters.
type Stream struct {
	Seed        *uint64 // nil: drawn by the daemon
	Epochs      int
	GlobalBatch int
	DropLast    bool
	Shuffle     string
	Scheme      string
	Tail        string
	// Subset: the stream is over a part of the dataset; Given: Shuffle is "given", and the process
	// says the order of each epoch. At most one of them; nil: neither.
	Subset *Subset
	Given  *Given
	// List is the descriptor that has the samples of either. It belongs to the caller of ReadOrder.
	List *os.File
}

// Subset says what the list holds: the samples of the subset, i32 each.
type Subset struct {
	Count int
}

// Given says what the list holds: the sizes of an epoch's batches, u32 each, then the samples of
// epochs from First on, i32 each. In a job of several ranks it is this rank's part: its batches
// have Batch samples, but for a last one that may be short, and the list holds no sizes.
type Given struct {
	Batches int
	Entries int // samples of an epoch
	Epochs  int // from 1
	First   int
	Batch   int
	// Seed is what random numbers would follow from if the rank read alone: that of rank 0 is the
	// job's.
	Seed uint64
	// Apart is why the rank gives no order that the ranks can share; then each reads by itself.
	// Empty: it gives one.
	Apart string
}

// Give brings the order of another epoch, in a descriptor: the samples, i32 each. Apart is as in
// Given, and then there are none.
type Give struct {
	Epoch   int
	Entries int
	Apart   string
}

// Cluster says which of a job's nodes this is, and how they find each other.
type Cluster struct {
	Nodes          int
	Node           int    // from 0
	LocalWorldSize int    // ranks on this node
	Address        string // host:port of node 0's daemon, for the job's first loader
	Loader         int    // this one's number: its ports are so many times 4 above; less than 256
	Secret         string // the job's, the same on all nodes
}

// Step says how far the opening of a job has come.
type Step struct {
	What    string
	Done    int64 // files of a scan
	Warning bool  // a user should look after it
}

// Progress is told of steps. It may be called often, and from any goroutine.
type Progress func(Step)

// Check refuses a rank that its job cannot have.
func (m *Open) Check() error {
	if m.WorldSize < 1 || m.Rank < 0 || m.Rank >= m.WorldSize {
		return failure.Input("rank %d is outside the world size %d: ranks are 0 to %d",
			m.Rank, m.WorldSize, m.WorldSize-1)
	}
	if len(m.Job) > MaxJob {
		return failure.Input("the job's name has %d bytes, %d are allowed: %.40s...", len(m.Job),
			MaxJob, m.Job)
	}
	return nil
}

// Spans reports whether the job has several nodes.
func (m *Open) Spans() bool { return m.Cluster != nil && m.Cluster.Nodes > 1 }

// Transformed reports whether anything is made of the samples.
func (m *Open) Transformed() bool { return Describes(m.Transforms) }

// Describes reports whether a description of transforms has any.
func Describes(transforms json.RawMessage) bool {
	return len(transforms) > 0 && string(transforms) != "null"
}

// Compile is the program that does what a description of transforms says.
func Compile(transforms json.RawMessage) (*transform.Program, error) {
	program, err := transform.Compile(transforms)
	if err != nil {
		return nil, failure.Input("%v", err)
	}
	return program, nil
}

// Name is a job's name as it can be shown.
func Name(job string) string { return printable.Name(job) }

// Scanning is the step of a dataset's scan that has found so many files.
func Scanning(path string, files int64) Step {
	return Step{What: "scanning " + printable.Name(path), Done: files}
}
