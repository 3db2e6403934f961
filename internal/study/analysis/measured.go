// Package analysis determines what a training job waits for, and what would help: the equations of
// DS-Analyzer (CoorDL 3.4, appendix C), applied to the rates that were measured of the job.
//
// Measured is what was measured; everything else follows from it. Everything here is pure: values
// and arithmetic, without I/O. Rates are in samples/s unless a name has another unit, sizes in MB
// (1e6 bytes), times in seconds.
package analysis

import "github.com/hdmlp/hdmlp/internal/model"

// Version is the version of Measured's JSON; it changes when a field changes its meaning.
const Version = 1

// Measured is what was measured of a job. Rates are of one node, over all of its ranks, unless they
// say otherwise; nodes are taken to be equal. A rate that could not be measured is nil or empty,
// and Notes say why.
type Measured struct {
	Version int      `json:"version"`
	Command []string `json:"command,omitempty"` // the script with its arguments
	Dataset Dataset  `json:"dataset"`
	Loader  Loader   `json:"loader"`
	Batch   int      `json:"batch_samples"` // per rank
	Ranks   int      `json:"ranks"`         // of all nodes
	Nodes   int      `json:"nodes"`
	Cores   int      `json:"cores"`        // that the job may use on a node
	Room    int64    `json:"memory_bytes"` // that a cache may have on a node

	// Training is G: how fast the job takes samples that are ready in memory. Device is the same
	// without what the process does besides, if there is a device.
	Training *Rate `json:"training,omitempty"`
	Device   *Rate `json:"device,omitempty"`
	// Preparation is P(n): what n threads or workers of the loader in use make ready of samples in
	// memory, while nothing trains; empty if nothing is prepared. Switched is the same of hdmlp's
	// threads, if another loader is in use.
	Preparation []Point `json:"preparation,omitempty"`
	Switched    []Point `json:"preparation_by_hdmlp,omitempty"`
	// Forms is what hdmlp's cache may keep of samples in the place of files, and what preparing these
	// takes (decisions 95 and 100); nil: nothing that takes less time.
	Forms *model.Forms `json:"forms,omitempty"`
	// Source is S(n): reads of n streams in random order, without the page cache, of one node.
	// Sources is by the number of nodes that read at the same time, of all of them together, each
	// with as many streams as were fastest.
	Source  []Point `json:"source,omitempty"`
	Sources []Point `json:"source_by_nodes,omitempty"`
	// SourceWork is what a read of a sample from the source takes of a processor, in seconds. P is
	// measured with all samples in memory, and so without it.
	SourceWork float64 `json:"source_processor_s,omitempty"`
	// Memory is C, reads from a cache in memory; Directory those from a cache directory, and Peers
	// those from another node.
	Memory    *Rate `json:"memory,omitempty"`
	Directory *Rate `json:"directory,omitempty"`
	Peers     *Rate `json:"peers,omitempty"`
	// AsIs is the job as it is, and Waited and Computed the mean time of an iteration of it in which
	// a rank waited for its batch, and did not. First means that it is that of its first epoch, or of
	// that and later ones: samples may not have been in caches.
	AsIs     *Rate   `json:"as_is,omitempty"`
	First    bool    `json:"as_is_of_first_epoch,omitempty"`
	Waited   float64 `json:"waited_s_per_iteration"`
	Computed float64 `json:"computed_s_per_iteration"`

	// Validation is what the job did with hdmlp's loader; nil: that was not tried.
	Validation *Validation `json:"validation,omitempty"`

	Notes []Note `json:"notes,omitempty"`
}

// Validation compares a later epoch of the job after a change with what was predicted of it: after
// the first change that is advised, or with hdmlp's loader as it is configured if that cannot be
// applied.
type Validation struct {
	Change    string  `json:"change"`
	Predicted float64 `json:"predicted_epoch_s"`
	Measured  float64 `json:"measured_epoch_s"`
	Low       float64 `json:"low_epoch_s"` // 95 %, as of a Rate
	High      float64 `json:"high_epoch_s"`
	Error     float64 `json:"error"` // of the prediction, as a share of what was measured
}

// Dataset is what the job reads.
type Dataset struct {
	Path    string  `json:"path,omitempty"`
	Samples int     `json:"samples"` // of an epoch, over all ranks
	MB      float64 `json:"mb"`      // as they lie in the source
	// NoSamples and NoSize mean that the number of samples, and their size, are not known: then
	// Samples and MB are assumed.
	NoSamples bool `json:"samples_unknown,omitempty"`
	NoSize    bool `json:"size_unknown,omitempty"`
}

// Loader is the loader in use.
type Loader struct {
	Name string `json:"name"` // "hdmlp" or "torch"
	// Workers is how many threads or processes prepare samples on a node; 0: the ranks themselves.
	Workers int `json:"workers"`
	// Streams is how many samples a node reads at the same time; 0: as many as are fastest.
	Streams int `json:"streams"`
	// CacheMB is what a node can keep of the dataset in memory, as files or, if Forms are measured,
	// in forms (FormBytes): hdmlp's cache, or the page cache; and DirectoryMB what it can keep in a
	// cache directory.
	CacheMB     float64 `json:"cache_mb"`
	DirectoryMB float64 `json:"directory_mb,omitempty"`
}

// Rate is a median with the 95 % interval of its measurements.
type Rate struct {
	Median float64 `json:"samples_per_s"`
	Low    float64 `json:"low_samples_per_s"`
	High   float64 `json:"high_samples_per_s"`
	// Few means that there were too few measurements for an interval: Low and High are the least
	// and the largest.
	Few bool `json:"too_few,omitempty"`
}

// Point is the rate of a number of threads, streams or nodes.
type Point struct {
	N int `json:"n"`
	// Streams is with how many streams each of N nodes read; 0: N does not count nodes.
	Streams int `json:"streams,omitempty"`
	Rate
}

// Note is a remark on what was measured, or why it could not be measured.
type Note struct {
	About string `json:"about"` // the JSON name of a field of Measured; "": the whole
	Text  string `json:"text"`
}
