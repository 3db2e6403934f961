package request

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/failure"
)

// Setting is a parameter's key and value, as given by a rank.
type Setting struct {
	Key   string
	Value any
}

// Shared returns the settings that all ranks of a job must share, on all nodes. The seed is not
// among them, because node 0 may draw it.
func Shared(m *Open, cfg *config.Config, o *Order) []Setting {
	batch := m.Stream.GlobalBatch
	if o.Part != nil { // the batches of parts are compared separately
		batch = 0
	}
	return []Setting{
		{"epochs", m.Stream.Epochs},
		{"global batch size", batch},
		{"drop_last", m.Stream.DropLast},
		{"shuffle", m.Stream.Shuffle},
		{"scheme", m.Stream.Scheme},
		{"tail", m.Stream.Tail},
		{"subset or batches", o.Digest},
		{"transforms", listed(m)},
		{"policy", cfg.Policy},
		{"on_error", cfg.OnError},
	}
}

// settings returns what all ranks of a node must share. Derived and measured values may differ; the
// first rank's apply.
func settings(m *Open, cfg *config.Config, o *Order, seed uint64) []Setting {
	return slices.Concat([]Setting{
		{"world_size", m.WorldSize},
		{"nodes", node(m)},
		{"dataset kind", m.Dataset.Kind},
		{"dataset", m.Dataset.Path},
		{"extensions", fmt.Sprint(m.Dataset.Extensions)},
		{"seed", seed},
	}, Shared(m, cfg, o), caching(cfg), []Setting{
		given(cfg, "staging_buffer", cfg.StagingBuffer),
		{"prefetch_batches", cfg.PrefetchBatches},
		{"transform_threads", cfg.TransformThreads},
		given(cfg, "decode_memory", cfg.DecodeMemory),
		{"index_dir", cfg.IndexDir},
		{"port", cfg.Port},
		{"interface", cfg.Interface},
		{"start_timeout", cfg.StartTimeout.String()},
		{"tls", cfg.TLS},
		{"tls_cert", cfg.TLSCert},
		{"tls_key", cfg.TLSKey},
		{"tls_ca", cfg.TLSCA},
	})
}

// caching returns the settings that determine a dataset's cache.
func caching(cfg *config.Config) []Setting {
	classes := "none"
	if strings.HasSuffix(cfg.Origins["memory"].Source, "replaces it") {
		classes = fmt.Sprintf("%+v", cfg.StorageClasses)
	}
	return []Setting{
		{"storage_class", classes},
		given(cfg, "memory", cfg.Memory),
		{"cache_dir", cfg.CacheDir},
		given(cfg, "cache_size", cfg.CacheSize),
		given(cfg, "disk_reserve", cfg.DiskReserve),
		{"source_threads", cfg.SourceThreads},
		{"cache_threads", cfg.CacheThreads},
		{"source_timeout", cfg.SourceTimeout.String()},
	}
}

// given returns a setting with the user's value, or Auto if the value was derived, measured or a
// default.
func given(cfg *config.Config, key string, value any) Setting {
	if source := cfg.Origins[key].Source; source == "" || strings.HasPrefix(source, "default") ||
		strings.HasPrefix(source, "measured") {
		return Setting{key, config.Auto}
	}
	return Setting{key, fmt.Sprint(value)}
}

// Differences lists the cache settings that differ between two configurations; "" if there are
// none.
func Differences(theirs, mine *config.Config) string {
	var out []string
	others := caching(theirs)
	for i, s := range caching(mine) {
		if s.Value != others[i].Value {
			out = append(out, fmt.Sprintf("%s is %s there and %s here", s.Key,
				written(theirs, others[i]), written(mine, s)))
		}
	}
	return strings.Join(out, ", ")
}

// written returns a setting's value as the user wrote it.
func written(cfg *config.Config, s Setting) string {
	value := fmt.Sprint(s.Value)
	if origin := cfg.Origins[s.Key].Value; origin != "" && value != config.Auto {
		value = origin
	}
	if value == "" {
		return "not set"
	}
	return value
}

// Derived reports whether a key of the configuration was not set by the user.
func Derived(cfg *config.Config, key string) bool {
	return given(cfg, key, nil).Value == config.Auto
}

// Alongside returns an error for a rank on another node of the job than the first rank, which this
// daemon already serves: its own node would wait for it in vain.
func (m *Open) Alongside(first *Open) error {
	here := first.Cluster
	if here == nil || m.Cluster == nil || m.Cluster.Node == here.Node {
		return nil
	}
	return failure.Differs("node", m.Cluster.Node, here.Node, nil,
		"rank %d of job %s is on node %d, but this daemon already serves node %d of the job; "+
			"nodes on the same host need a daemon each: set a different HDMLP_SOCKET for each node",
		m.Rank, m.Job, m.Cluster.Node, here.Node)
}

// Said is a rank's request together with the configuration and the order made from it.
type Said struct {
	Open   *Open
	Config *config.Config
	Order  *Order
}

// Compare returns an error if a rank's settings differ from those of the rank that created the job.
// seed is the one that the job agreed on; a rank without a seed of its own uses it.
func Compare(first, other Said, seed uint64) error {
	theirs := settings(first.Open, first.Config, first.Order, seed)
	if given := other.Open.Stream.Seed; given != nil {
		seed = *given
	}
	for i, mine := range settings(other.Open, other.Config, other.Order, seed) {
		if mine.Value != theirs[i].Value {
			return failure.Differs(mine.Key, mine.Value, theirs[i].Value, nil,
				"rank %d disagrees with rank %d of job %s: %s is %v here and %v there; all ranks "+
					"must use the same value",
				other.Open.Rank, first.Open.Rank, first.Open.Job, mine.Key, mine.Value,
				theirs[i].Value)
		}
	}
	return nil
}

// OfOrder returns the failure in err, an error of Compare, and reports whether it is about which
// samples ranks get and in which order.
func OfOrder(err error) (refused *failure.Error, ok bool) {
	if !errors.As(err, &refused) {
		return nil, false
	}
	switch refused.Details["key"] {
	case "world_size", "seed", "global batch size", "drop_last", "shuffle", "scheme", "tail",
		"subset or batches":
		return refused, true
	}
	return nil, false
}

// mostClasses is the number of classes up to which a dataset's classes are compared one by one.
const mostClasses = 1000

// Listing returns the agreement keys of a dataset's listing, which nodes compare; contents are
// compared separately. An error names the first key that differs: so those of classes come first,
// and say what differs.
func Listing(x *dataset.Index) []Setting {
	names, sizes := x.Classes(), x.ClassSizes()
	if len(names) > mostClasses {
		names, sizes = []string{""}, []int{x.Len()}
	}
	var keys []Setting
	var line []byte
	id := 0
	for i, name := range names {
		var total int64
		files := xxh3.New()
		for range sizes[i] {
			total += x.Size(id)
			line = binary.LittleEndian.AppendUint64(append(x.AppendName(line[:0], id), 0),
				uint64(x.Size(id)))
			_, _ = files.Write(line) // a hash never fails
			id++
		}
		key := "the dataset"
		if name != "" {
			key = fmt.Sprintf("class %q of the dataset", name)
		}
		keys = append(keys, Setting{
			Key: key,
			Value: fmt.Sprintf("%d samples of %d bytes (hash of names and sizes: %016x)",
				sizes[i], total, files.Sum64()),
		})
	}
	// This one differs alone only if everything else is equal.
	hash := x.Listing()
	return append(keys, Setting{
		Key:   "dataset fingerprint (names and sizes are equal, modification times differ)",
		Value: fmt.Sprintf("%x", hash[:8]),
	})
}

// listed returns a rank's transforms as text without blanks.
func listed(m *Open) string {
	if !m.Transformed() {
		return "none"
	}
	var b bytes.Buffer
	if json.Compact(&b, m.Transforms) != nil {
		return string(m.Transforms)
	}
	return b.String()
}

// node describes a rank's node for comparison.
func node(m *Open) string {
	if m.Cluster == nil {
		return "one"
	}
	return fmt.Sprintf("node %d of %d, with %d ranks, node 0 at %s",
		m.Cluster.Node, m.Cluster.Nodes, m.Cluster.LocalWorldSize, m.Cluster.Address)
}
