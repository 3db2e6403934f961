package compare

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Settings are what the results of a comparison depend on. Results of other settings cannot be
// continued. Sizes are in bytes, times in seconds.
type Settings struct {
	Dataset    string   `json:"dataset"`
	Version    string   `json:"version"` // of the dataset
	Options    string   `json:"options"` // of its kind
	Nodes      int      `json:"nodes"`
	Epochs     int      `json:"epochs"`
	Batch      int      `json:"batch"` // of a rank
	Seed       uint64   `json:"seed"`
	StepTime   float64  `json:"step_time_s"`
	Rate       string   `json:"rate"`             // of links
	SourceRate float64  `json:"source_rate_mbps"` // of all nodes together; 0: no limit
	Transforms string   `json:"transforms"`
	Memory     int64    `json:"memory"` // of a node, for the whole dataset; 0: none; negative: auto
	Cache      string   `json:"cache"`  // "": none
	CacheSize  int64    `json:"cache_size"`
	Samples    int      `json:"samples_asked"` // 0: as many as the time allows
	Time       float64  `json:"time_s"`
	ProbeTime  float64  `json:"probe_time_s"`
	Paths      []string `json:"paths"`
	Program    string   `json:"program"`   // the version of hdmlp
	Variables  string   `json:"variables"` // HDMLP_*
}

// fields returns the settings by the names that messages have for them.
func (s *Settings) fields() [][2]string {
	text := func(v any) string { return strings.Trim(fmt.Sprint(v), "[]") }
	return [][2]string{
		{"the dataset", s.Dataset},
		{"the dataset's version", s.Version},
		{"--option", s.Options},
		{"-n", text(s.Nodes)},
		{"--epochs", text(s.Epochs)},
		{"--batch", text(s.Batch)},
		{"--seed", text(s.Seed)},
		{"--step-time", text(s.StepTime)},
		{"--rate", s.Rate},
		{"--source-rate", text(s.SourceRate)},
		{"--transforms", s.Transforms},
		{"--memory", text(s.Memory)},
		{"--cache", s.Cache},
		{"--cache-size", text(s.CacheSize)},
		{"--samples", text(s.Samples)},
		{"--time", text(s.Time)},
		{"--probe-time", text(s.ProbeTime)},
		{"the paths", text(s.Paths)},
		{"hdmlp's version", s.Program},
		{"the environment", s.Variables},
	}
}

// Key returns a name for the settings: others have another one.
func (s *Settings) Key() string {
	text, _ := json.Marshal(s) // plain values
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// Differs returns the first setting that differs, in words, with both values; "" if none does.
func (s *Settings) Differs(from *Settings) string {
	others := from.fields()
	for i, mine := range s.fields() {
		if mine != others[i] {
			return fmt.Sprintf("%s is %q there and %q here", mine[0], others[i][1], mine[1])
		}
	}
	return ""
}

// version is that of Kept's format.
const version = 2

// Kept is what is saved of a comparison after each policy, so that it goes on where it was
// interrupted.
type Kept struct {
	Version  int      `json:"version"`
	Settings Settings `json:"settings"`
	// Samples is how many samples were chosen, Estimate the seconds that were expected, and
	// Environment what was measured of the machine before the first run, as `hdmlp probe` writes it.
	// Network is what the nodes are. Capacity are the bytes of each class of a node for the whole
	// dataset, of which some depend on what was free.
	Samples     int            `json:"samples"`
	Capacity    []int64        `json:"capacity"`
	Network     string         `json:"network"`
	Estimate    float64        `json:"estimated_s"`
	Environment string         `json:"environment"`
	Runs        map[string]Run `json:"runs"`
	// Digest is the SHA-256 of the same with an empty one.
	Digest string `json:"sha256"`
}

// NewKept returns what is kept of a comparison of which no policy ran.
func NewKept(s Settings) *Kept {
	return &Kept{Version: version, Settings: s, Runs: map[string]Run{}}
}

// ReadKept reads what Encode returns.
func ReadKept(data []byte) (*Kept, error) {
	k := new(Kept)
	if err := json.Unmarshal(data, k); err != nil {
		return nil, fmt.Errorf("not what hdmlp compare saves: %w", err)
	}
	if k.Version != version {
		return nil, fmt.Errorf("it is of version %d of what hdmlp compare saves; this is version %d",
			k.Version, version)
	}
	was := k.Digest
	if _, err := k.Encode(); err != nil {
		return nil, err
	}
	if k.Digest != was {
		return nil, errors.New("damaged: it is not what hdmlp compare saved")
	}
	return k, nil
}

// Encode sets the digest, and returns the text of the file.
func (k *Kept) Encode() ([]byte, error) {
	k.Digest = ""
	data, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	k.Digest = fmt.Sprintf("%x", sha256.Sum256(data))
	return json.MarshalIndent(k, "", "  ")
}

// Missing returns those of the policies that did not run to the end, in their order.
func (k *Kept) Missing(policies []string) []string {
	return slices.DeleteFunc(slices.Clone(policies), func(name string) bool {
		run, ok := k.Runs[name]
		return ok && len(run.Epochs) == k.Settings.Epochs
	})
}

// Rows returns a row for each of the policies, with what is kept of it.
func (k *Kept) Rows(policies []string) []Row {
	rows := make([]Row, len(policies))
	missing := k.Missing(policies)
	for i, name := range policies {
		rows[i].Policy = name
		if !slices.Contains(missing, name) {
			run := k.Runs[name]
			rows[i].Measured = &run
		}
	}
	return rows
}
