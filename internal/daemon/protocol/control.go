package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// HelloMessage opens every connection.
type HelloMessage struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
}

// WelcomeMessage answers HELLO.
type WelcomeMessage struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
}

// DatasetMessage names a dataset.
type DatasetMessage struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
	// Options are those of the kind, by key: texts, numbers, switches and lists of texts.
	Options map[string]Option `json:"options"`
	// View is set if two file descriptors come with the frame's first byte: of the dataset's root
	// directory, and of the process's "/".
	View bool `json:"view"`
	// Manifest is set if one more follows, with the dataset's records, as the process lists them.
	Manifest bool `json:"manifest"`
}

// Option is the value of a dataset's option: a string, float64, bool or []string.
type Option struct{ Value any }

// UnmarshalJSON implements json.Unmarshaler. Texts are decoded as names are.
func (o *Option) UnmarshalJSON(text []byte) error {
	switch text[0] {
	case '"':
		var name Name
		err := json.Unmarshal(text, &name)
		o.Value = string(name)
		return err
	case '[':
		var names []Name
		err := json.Unmarshal(text, &names)
		list := make([]string, len(names))
		for i, n := range names {
			list[i] = string(n)
		}
		o.Value = list
		return err
	}
	return json.Unmarshal(text, &o.Value)
}

// MarshalJSON implements json.Marshaler.
func (o Option) MarshalJSON() ([]byte, error) {
	switch v := o.Value.(type) {
	case string:
		return json.Marshal(Name(v))
	case []string:
		return json.Marshal(Names(v))
	}
	return json.Marshal(o.Value)
}

// ViewMessage answers RENEW.
type ViewMessage struct {
	View  bool   `json:"view"`  // two descriptors come with it, as for DatasetMessage
	Error string `json:"error"` // why View is false
}

// StreamMessage holds the access stream's parameters.
type StreamMessage struct {
	Seed        *uint64 `json:"seed"` // nil: drawn by the daemon
	Epochs      int     `json:"epochs"`
	GlobalBatch int     `json:"global_batch"`
	DropLast    bool    `json:"drop_last"`
	Shuffle     string  `json:"shuffle"`
	Scheme      string  `json:"scheme"`
	Tail        string  `json:"tail"`
	// Subset restricts the stream to a part of the dataset. Given is set if Shuffle is "given": the
	// process gives the order of each epoch. At most one of the two is not nil; the frame then
	// carries one more descriptor, after those of the view.
	Subset *SubsetMessage `json:"subset"`
	Given  *GivenMessage  `json:"given"`
	// Mix has epochs take samples of several datasets; nil: there is one.
	Mix *MixMessage `json:"mix"`
	// List is that descriptor, once it has been received.
	List *os.File `json:"-"`
}

// SubsetMessage describes a list with the samples of the subset, as i32.
type SubsetMessage struct {
	Count int `json:"count"`
}

// MixMessage is how epochs take samples of several datasets, which follow one another in the list
// of samples; see access.Mixture.
type MixMessage struct {
	Sizes   []int      `json:"sizes"`   // samples of each dataset
	Weights [][]uint64 `json:"weights"` // by epoch, the last for all later ones, then by dataset
	Entries int        `json:"entries"` // samples of an epoch
	Single  bool       `json:"single"`  // each global batch has samples of one dataset
}

// GivenMessage describes a list with the sizes of an epoch's batches, as u32, followed by the
// samples of Epochs epochs from First on, as i32. In a job with several ranks it describes this
// rank's part: each batch has Batch samples, except that the last may be shorter, and the list
// holds no sizes.
type GivenMessage struct {
	Batches int `json:"batches"`
	Entries int `json:"entries"` // samples of an epoch
	Epochs  int `json:"epochs"`  // at least 1
	First   int `json:"first"`
	Batch   int `json:"batch"`
	// Rank is the process's, among Ranks that each give an order of their own to a job of their own;
	// 0 and 0: there are no others.
	Rank  int `json:"rank"`
	Ranks int `json:"ranks"`
	// Seed is the seed that the rank would use if it read alone; rank 0's is the job's.
	Seed uint64 `json:"seed"`
	// Apart is why the rank gives no order that the ranks can share, so that each reads by itself. It
	// is empty if the rank gives one.
	Apart string `json:"apart"`
}

// GiveMessage gives the order of another epoch: a descriptor carries its samples, as i32. Apart is
// as in GivenMessage; if it is set, there are no samples.
type GiveMessage struct {
	Epoch   int    `json:"epoch"`
	Entries int    `json:"entries"`
	Apart   string `json:"apart"`
}

// Settings carry a process's configuration to the daemon, which resolves it.
type Settings struct {
	Arguments   map[string]any    `json:"arguments"`
	Environment map[string]string `json:"environment"`
	ConfigFile  string            `json:"config_file"`
}

// OpenMessage creates or joins a job as one rank.
type OpenMessage struct {
	Job       string         `json:"job"`
	Rank      int            `json:"rank"`
	WorldSize int            `json:"world_size"`
	Dataset   DatasetMessage `json:"dataset"`
	Stream    StreamMessage  `json:"stream"`
	// Transforms describes what is delivered of every sample (docs/FORMATS.md); nil: all its fields,
	// as they are.
	Transforms json.RawMessage `json:"transforms"`
	Cluster    *ClusterMessage `json:"cluster"` // nil: all ranks are on this node
	Share      ShareMessage    `json:"share"`
	// Verify requests that the bytes of every sample are compared with the source's.
	Verify bool `json:"verify"`
	// Leave requests that samples which cannot be read are delivered without their fields.
	Leave bool `json:"leave"`
	Settings
}

// ShareMessage describes a loader whose job may be in a group.
type ShareMessage struct {
	Loader string `json:"loader"` // its name in its process
	Ahead  int    `json:"ahead"`  // up to how many batches its workers have; 0: it has none
	Again  bool   `json:"again"`  // the loader was open before: it does not wait for other jobs
}

// ClusterMessage identifies this node among a job's nodes, and describes how they find each other.
type ClusterMessage struct {
	Nodes          int `json:"nodes"`
	Node           int `json:"node"`             // from 0
	LocalWorldSize int `json:"local_world_size"` // ranks on this node
	// Address is the host:port of node 0's daemon, for the job's first loader.
	Address string `json:"address"`
	// Loader is this loader's number, less than 256: its ports are 4*Loader higher.
	Loader int `json:"loader"`
	// Secret is the job's secret, the same on all nodes.
	Secret string `json:"secret"`
}

// LaunchMessage identifies this node among those that run the same script, for calls about a
// dataset before there is a job.
type LaunchMessage struct {
	Name    string `json:"name"` // the same on all nodes
	Nodes   int    `json:"nodes"`
	Node    int    `json:"node"` // from 0
	Address string `json:"address"`
	Secret  string `json:"secret"`
}

// OpenedMessage answers OPEN.
type OpenedMessage struct {
	Samples     int    `json:"samples"`
	Classes     []Name `json:"classes"`
	ClassSizes  []int  `json:"class_sizes"` // samples of each class
	Bytes       int64  `json:"bytes"`
	Fingerprint string `json:"fingerprint"`
	Seed        uint64 `json:"seed"`
	Epoch       int    `json:"epoch"` // in which the process is to begin
	Steps       int    `json:"steps"`
	RankSamples int    `json:"rank_samples"`
	// Positions is the length of an epoch before it is padded or cut: samples of the dataset, of
	// the subset, or of a given epoch.
	Positions int `json:"positions"`
	// PrefetchBatches is the maximum number of staged batches that no ACK has covered yet.
	PrefetchBatches int `json:"prefetch_batches"`
	// Order describes the order that the policy draws of its own; "": it reads what was asked for.
	Order    string   `json:"order,omitempty"`
	Warnings []string `json:"warnings"`
	// Outputs describe what is delivered of each sample, in the order of a batch's columns.
	Outputs []OutputMessage `json:"outputs"`
}

// OutputMessage describes what is delivered of a field.
type OutputMessage struct {
	Field Name `json:"field"` // "": samples have no named fields
	// Shape is the shape of the array that transforms make. If height and width, the first two, are
	// 0, they differ between samples and precede each sample's pixels. nil: the field is delivered
	// as it is, or as boxes.
	Shape []int `json:"shape"`
	// Type is the element type: uint8, float16, bfloat16 or float32; "" without a shape.
	Type string `json:"type"`
	// View is which of the views of the field it is, from 0 on; nil: it is no view.
	View *int `json:"view,omitempty"`
	// ChannelsLast means that Shape is channels, height, width, and that channels are last in
	// memory.
	ChannelsLast bool `json:"channels_last,omitempty"`
	// Sized means that the height and the width, which are 0 in Shape, precede each sample's
	// elements, of an output of a joint list.
	Sized bool `json:"sized,omitempty"`
}

// CallMessage calls a method. It is answered by a ReplyMessage with the same ID.
type CallMessage struct {
	ID     uint64          `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// ReplyMessage answers a call.
type ReplyMessage struct {
	ID     uint64        `json:"id"`
	Result any           `json:"result,omitempty"`
	Error  *ErrorMessage `json:"error,omitempty"`
}

// ProgressMessage reports the progress of a slow operation. A Total of 0 means unknown; if Done is
// 0 too, only What counts.
type ProgressMessage struct {
	What  string `json:"what"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	// Warning marks a problem that a user should look into.
	Warning bool `json:"warning,omitempty"`
}

// ErrorMessage is an error as a process sees it. Kind decides which Python exception it becomes.
type ErrorMessage struct {
	Kind       string         `json:"kind"`
	Message    string         `json:"message"`
	Details    map[string]any `json:"details,omitempty"`
	Generation uint64         `json:"generation,omitempty"`
}

// Kinds of errors.
const (
	KindConfig     = "config"
	KindDataset    = "dataset"
	KindSample     = "sample"
	KindMismatch   = "mismatch"
	KindLimit      = "limit"
	KindBusy       = "busy"
	KindPermission = "permission"
	KindVersion    = "version"
	KindProtocol   = "protocol"
	KindAudit      = "audit"
	KindInternal   = "internal"
)

func (e *ErrorMessage) Error() string { return e.Message }

// MarshalJSON escapes unprintable characters in the text, which may contain file names. Details are
// exact.
func (e ErrorMessage) MarshalJSON() ([]byte, error) {
	type plain ErrorMessage
	e.Message = human.Text(e.Message)
	return json.Marshal(plain(e))
}

// MarshalJSON escapes unprintable characters in warnings, and encodes them as a list even if there
// are none.
func (m OpenedMessage) MarshalJSON() ([]byte, error) {
	type plain OpenedMessage
	warnings := make([]string, len(m.Warnings))
	for i, text := range m.Warnings {
		warnings[i] = human.Text(text)
	}
	m.Warnings = warnings
	return json.Marshal(plain(m))
}

// MarshalJSON escapes unprintable characters in the text.
func (m ProgressMessage) MarshalJSON() ([]byte, error) {
	type plain ProgressMessage
	m.What = human.Text(m.What)
	return json.Marshal(plain(m))
}

// DecodeJSON decodes a request strictly: unknown keys, and anything after the object, are errors.
func DecodeJSON(p []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	var number *json.UnmarshalTypeError
	err := d.Decode(v)
	if errors.As(err, &number) && strings.HasPrefix(number.Value, "number ") {
		return outOfRange(number)
	}
	if err != nil {
		return malformed("%v", err)
	}
	if d.More() {
		return malformed("unexpected data after the JSON object")
	}
	return nil
}

// outOfRange is the error for a user's number that does not fit its field.
func outOfRange(e *json.UnmarshalTypeError) error {
	name := e.Field[strings.LastIndexByte(e.Field, '.')+1:]
	if name == "global_batch" {
		name = "batch_size, over all ranks,"
	}
	return &ErrorMessage{
		Kind: KindConfig,
		Message: fmt.Sprintf("%s is %s; allowed: a whole number up to %d", name,
			strings.TrimPrefix(e.Value, "number "), int64(math.MaxInt64)),
		Details: map[string]any{"key": e.Field},
	}
}

// AppendJSON appends a frame with v as JSON.
func AppendJSON(dst []byte, t Type, v any) ([]byte, error) {
	p, err := json.Marshal(v)
	if err != nil {
		return dst, err
	}
	if len(p) > MaxPayload {
		return dst, malformed("frame of type %d would have %d bytes, the limit is %d", t, len(p),
			MaxPayload)
	}
	return AppendFrame(dst, t, p), nil
}
