package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/hdmlp/hdmlp/internal/printable"
)

// HelloMessage opens every connection.
type HelloMessage struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
}

// WelcomeMessage answers it.
type WelcomeMessage struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
}

// DatasetMessage names a dataset.
type DatasetMessage struct {
	Kind       string   `json:"kind"` // "folder"
	Path       string   `json:"path"`
	Extensions []string `json:"extensions"` // nil: torchvision's
	// View: with the frame's first byte come two descriptors: of the dataset's root directory, and
	// of the process's "/".
	View bool `json:"view"`
}

// ViewMessage answers Renew.
type ViewMessage struct {
	View  bool   `json:"view"`  // descriptors came along, as with DatasetMessage
	Error string `json:"error"` // why not
}

// StreamMessage gives the access stream's parameters.
type StreamMessage struct {
	Seed        *uint64 `json:"seed"` // nil: drawn by the daemon
	Epochs      int     `json:"epochs"`
	GlobalBatch int     `json:"global_batch"`
	DropLast    bool    `json:"drop_last"`
	Shuffle     string  `json:"shuffle"`
	Scheme      string  `json:"scheme"`
	Tail        string  `json:"tail"`
	// Subset: the stream is over a part of the dataset; Given: Shuffle is "given", and the process
	// says the order of each epoch. At most one of them; with either a descriptor comes, after
	// those of the view. nil: neither.
	Subset *SubsetMessage `json:"subset"`
	Given  *GivenMessage  `json:"given"`
	// List is that descriptor, once it has come.
	List *os.File `json:"-"`
}

// SubsetMessage says what the list holds: the samples of the subset, i32 each.
type SubsetMessage struct {
	Count int `json:"count"`
}

// GivenMessage says what the list holds: the sizes of an epoch's batches, u32 each, then the
// samples of epochs from First on, i32 each. In a job of several ranks it is this rank's part: its
// batches have Batch samples, but for a last one that may be short, and the list holds no sizes.
type GivenMessage struct {
	Batches int `json:"batches"`
	Entries int `json:"entries"` // samples of an epoch
	Epochs  int `json:"epochs"`  // from 1
	First   int `json:"first"`
	Batch   int `json:"batch"`
	// Seed is what random numbers would follow from if the rank read alone: that of rank 0 is the
	// job's.
	Seed uint64 `json:"seed"`
	// Apart is why the rank gives no order that the ranks can share; then each reads by itself.
	// Empty: it gives one.
	Apart string `json:"apart"`
}

// GiveMessage brings the order of another epoch, in a descriptor: the samples, i32 each. Apart is
// as in GivenMessage, and then there are none.
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

// OpenMessage makes or joins a job as one rank.
type OpenMessage struct {
	Job       string         `json:"job"`
	Rank      int            `json:"rank"`
	WorldSize int            `json:"world_size"`
	Dataset   DatasetMessage `json:"dataset"`
	Stream    StreamMessage  `json:"stream"`
	// Transforms describes what is made of every sample (docs/FORMATS.md); nil: nothing.
	Transforms json.RawMessage `json:"transforms"`
	Cluster    *ClusterMessage `json:"cluster"` // nil: all ranks are on this node
	// Verify: compare the bytes of every sample with the source's.
	Verify bool `json:"verify"`
	Settings
}

// ClusterMessage says which of a job's nodes this is, and how they find each other.
type ClusterMessage struct {
	Nodes          int `json:"nodes"`
	Node           int `json:"node"`             // from 0
	LocalWorldSize int `json:"local_world_size"` // ranks on this node
	// host:port of node 0's daemon, for the job's first loader
	Address string `json:"address"`
	// this one's number: its ports are so many times 4 above; less than 256
	Loader int `json:"loader"`
	// the job's, the same on all nodes, and nobody else's
	Secret string `json:"secret"`
}

// OpenedMessage answers it.
type OpenedMessage struct {
	Samples     int      `json:"samples"`
	Classes     []string `json:"classes"`
	ClassSizes  []int    `json:"class_sizes"` // samples of each class
	Bytes       int64    `json:"bytes"`
	Fingerprint string   `json:"fingerprint"`
	Seed        uint64   `json:"seed"`
	Steps       int      `json:"steps"`
	RankSamples int      `json:"rank_samples"`
	// that an epoch has before it is padded or cut: samples of the dataset, of the subset, of an
	// epoch that is given
	Positions int `json:"positions"`
	// PrefetchBatches is how many batches the daemon stages that no ACK has spoken for, at the
	// most.
	PrefetchBatches int      `json:"prefetch_batches"`
	Warnings        []string `json:"warnings"`
	// Output is what every sample becomes; nil: it stays as it is.
	Output *OutputMessage `json:"output"`
}

// OutputMessage says what transforms make of every sample: an array.
type OutputMessage struct {
	// Shape is the array's. Where height and width, the first two, are 0, they differ, and stand
	// before each sample's own levels.
	Shape []int `json:"shape"`
	// Type is the elements': uint8, float16, bfloat16 or float32.
	Type string `json:"type"`
}

// CallMessage asks for something and gets a ReplyMessage with the same ID.
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

// ProgressMessage tells how far something slow has come. Total 0: unknown; Done as well: What says
// it all.
type ProgressMessage struct {
	What  string `json:"what"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	// Warning: somebody should look after it.
	Warning bool `json:"warning,omitempty"`
}

// ErrorMessage is an error as a process sees it; Kind decides which Python
// exception it becomes.
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

// MarshalJSON encodes the message with its text printable: it may have names of files in it.
// Details are exact.
func (e ErrorMessage) MarshalJSON() ([]byte, error) {
	type plain ErrorMessage
	e.Message = printable.Text(e.Message)
	return json.Marshal(plain(e))
}

// MarshalJSON encodes the message with its warnings printable, and as a list even if there are
// none.
func (m OpenedMessage) MarshalJSON() ([]byte, error) {
	type plain OpenedMessage
	warnings := make([]string, len(m.Warnings))
	for i, text := range m.Warnings {
		warnings[i] = printable.Text(text)
	}
	m.Warnings = warnings
	return json.Marshal(plain(m))
}

// MarshalJSON encodes the message with its text printable.
func (m ProgressMessage) MarshalJSON() ([]byte, error) {
	type plain ProgressMessage
	m.What = printable.Text(m.What)
	return json.Marshal(plain(m))
}

// DecodeJSON decodes a request strictly: unknown keys, and anything behind the
// object, are errors.
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
		return malformed("something follows the JSON object")
	}
	return nil
}

// outOfRange is the error for a number that a user gave, and that does not fit where it belongs.
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
