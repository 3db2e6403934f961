package request

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Setting is a parameter's key and value, as given by a rank.
type Setting struct {
	Key   string
	Value any
	// Text is how messages show the value; "": Value itself.
	Text string
}

// String returns the value as messages show it.
func (s Setting) String() string {
	if text := cmp.Or(s.Text, fmt.Sprint(s.Value)); text != "" {
		return text
	}
	return "not set"
}

// apart returns how a message shows two values that differ: of lists, their first entries that do.
func apart(a, b Setting) (string, string) {
	var as, bs []json.RawMessage
	if a.Key != "transforms" || json.Unmarshal([]byte(fmt.Sprint(a.Value)), &as) != nil ||
		json.Unmarshal([]byte(fmt.Sprint(b.Value)), &bs) != nil {
		return a.String(), b.String()
	}
	i := 0
	for i < min(len(as), len(bs)) && bytes.Equal(as[i], bs[i]) {
		i++
	}
	entry := func(list []json.RawMessage) string {
		if i >= len(list) {
			return fmt.Sprintf("a list of %d", len(list))
		}
		return fmt.Sprintf("%s as number %d", list[i], i+1)
	}
	return entry(as), entry(bs)
}

// detail returns the value as a failure's details have it: numbers as they are, texts as messages
// show them.
func (s Setting) detail() any {
	if _, text := s.Value.(string); text {
		return cmp.Or(s.Text, fmt.Sprint(s.Value))
	}
	return s.Value
}

// Shared returns the settings that all ranks of a job must share, on all nodes. The seed is not
// among them, because node 0 may draw it.
func Shared(m *Open, cfg *config.Config, o *Order) []Setting {
	batch := m.Stream.GlobalBatch
	if o.Part != nil { // the batches of parts are compared separately
		batch = 0
	}
	return []Setting{
		{Key: "epochs", Value: m.Stream.Epochs},
		{Key: "global batch size", Value: batch},
		{Key: "drop_last", Value: m.Stream.DropLast},
		{Key: "shuffle", Value: m.Stream.Shuffle},
		{Key: "scheme", Value: m.Stream.Scheme},
		{Key: "tail", Value: m.Stream.Tail},
		{Key: "subset or batches", Value: o.Digest},
		{Key: "mix", Value: mixed(m)},
		{Key: "transforms", Value: listed(m)},
		{Key: "policy", Value: cfg.Policy},
		{Key: "on_error", Value: cfg.OnError},
		{Key: "share", Value: m.Group(cfg)},
		{Key: "share_join", Value: cfg.ShareJoin},
	}
}

// Group returns the name of the group that a rank's job is to be in; "": none. A name that was
// given as an argument is meant for that loader; elsewhere it is meant for all loaders of a script,
// whose groups are distinct.
func (m *Open) Group(cfg *config.Config) string {
	if cfg.Share == "" || cfg.Origins["share"].Source == "argument" {
		return cfg.Share
	}
	return cfg.Share + "/" + m.Share.Loader
}

// settings returns what all ranks of a node must share. Derived and measured values may differ; the
// first rank's apply. options are as for datasetOf.
func settings(s Said, options []string, seed uint64) []Setting {
	m := s.Open
	cfg := s.Config
	o := s.Order
	return slices.Concat([]Setting{
		{Key: "world_size", Value: m.WorldSize},
		{Key: "nodes", Value: node(m)},
	}, datasetOf(m, options), []Setting{seedOf(m, seed)}, Shared(m, cfg, o), caching(cfg), []Setting{
		given(cfg, "staging_buffer", cfg.StagingBuffer),
		set(cfg, "prefetch_batches", cfg.PrefetchBatches),
		set(cfg, "transform_threads", cfg.TransformThreads),
		given(cfg, "decode_memory", cfg.DecodeMemory),
		set(cfg, "index_dir", cfg.IndexDir),
		set(cfg, "port", cfg.Port),
		set(cfg, "interface", cfg.Interface),
		set(cfg, "start_timeout", cfg.StartTimeout.String()),
		set(cfg, "preload_timeout", cfg.PreloadTimeout.String()),
		set(cfg, "tls", cfg.TLS),
		set(cfg, "tls_cert", cfg.TLSCert),
		set(cfg, "tls_key", cfg.TLSKey),
		set(cfg, "tls_ca", cfg.TLSCA),
	})
}

// datasetOf returns what names a rank's dataset; options are keys of its kind's options.
func datasetOf(m *Open, options []string) []Setting {
	settings := []Setting{
		{Key: "dataset kind", Value: m.Dataset.Kind},
		{Key: "dataset", Value: m.Dataset.Path},
	}
	for _, key := range options {
		s := Setting{Key: key, Value: ""}
		if value, given := m.Dataset.Options[key]; given {
			s.Value = fmt.Sprint(value)
		}
		settings = append(settings, s)
	}
	return append(settings, Setting{Key: "manifest", Value: m.Dataset.Manifest.Sum()})
}

// options returns the keys of the options that one of two ranks gives for its dataset, sorted.
func options(a, b *Open) []string {
	keys := slices.Collect(maps.Keys(a.Dataset.Options))
	keys = slices.AppendSeq(keys, maps.Keys(b.Dataset.Options))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// seedOf returns the seed of a rank, which the job has drawn if the rank gave none.
func seedOf(m *Open, seed uint64) Setting {
	s := Setting{Key: "seed", Value: seed}
	if m.Stream.Seed == nil {
		s.Text = fmt.Sprintf("%d (drawn, as none was given)", seed)
	}
	return s
}

// caching returns the settings that determine a dataset's cache.
func caching(cfg *config.Config) []Setting {
	classes := Setting{Key: "storage_class", Value: "none"}
	if cfg.Entries != "" {
		var texts []string
		for _, class := range cfg.StorageClasses {
			texts = append(texts, class.Text())
		}
		classes.Value, classes.Text = fmt.Sprintf("%+v", cfg.StorageClasses),
			strings.Join(texts, " and ")
	}
	return []Setting{
		classes,
		given(cfg, "memory", cfg.Memory),
		set(cfg, "cache_dir", cfg.CacheDir),
		given(cfg, "cache_size", cfg.CacheSize),
		given(cfg, "disk_reserve", cfg.DiskReserve),
		set(cfg, "cache_trust", cfg.CacheTrust),
		set(cfg, "forms", cfg.Forms),
		set(cfg, "source_threads", cfg.SourceThreads),
		set(cfg, "cache_threads", cfg.CacheThreads),
		set(cfg, "source_timeout", cfg.SourceTimeout.String()),
	}
}

// set returns a setting whose value messages show as the user wrote it.
func set(cfg *config.Config, key string, value any) Setting {
	return Setting{Key: key, Value: value, Text: cfg.Origins[key].Value}
}

// given returns a setting with the user's value, or Auto if the value was derived, measured or a
// default.
func given(cfg *config.Config, key string, value any) Setting {
	if source := cfg.Origins[key].Source; source == "" || strings.HasPrefix(source, "default") ||
		strings.HasPrefix(source, "measured") {
		return Setting{Key: key, Value: option.Auto}
	}
	return set(cfg, key, fmt.Sprint(value))
}

// Differences lists the cache settings that differ between the configuration of the job that opened
// a dataset first and that of a later one; "" if there are none.
func Differences(first, later *config.Config) string {
	var out []string
	others := caching(first)
	for i, s := range caching(later) {
		if s.Value != others[i].Value {
			out = append(out,
				fmt.Sprintf("%s (%s in that job, %s in this one)", s.Key, others[i], s))
		}
	}
	return strings.Join(out, ", ")
}

// Derived reports whether a key of the configuration was not set by the user.
func Derived(cfg *config.Config, key string) bool {
	return given(cfg, key, nil).Value == option.Auto
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
	Root   source.DirectoryID // the dataset's root directory, which may have several paths
}

// Compare returns an error if a rank's settings differ from those of the rank that created the job.
// seed is the one that the job agreed on; a rank without a seed of its own uses it.
func Compare(first, other Said, seed uint64) error {
	keys := options(first.Open, other.Open)
	theirs := settings(first, keys, seed)
	if given := other.Open.Stream.Seed; given != nil {
		seed = *given
	}
	for i, mine := range settings(other, keys, seed) {
		if mine.Value != theirs[i].Value {
			shown, others := apart(mine, theirs[i])
			return failure.Differs(mine.Key, mine.detail(), theirs[i].detail(), nil,
				"rank %d disagrees with rank %d of job %s: %s is %s on rank %[1]d and %[6]s on "+
					"rank %[2]d; %[7]s",
				other.Open.Rank, first.Open.Rank, Name(first.Open.Job), mine.Key, shown, others,
				Remedy(mine.Key))
		}
	}
	return nil
}

// SameGroup returns an error if a job cannot be in a group with its first member, because it would
// deliver other batches. seed is the first member's.
func SameGroup(group string, first, other Said, seed uint64) error {
	keys := options(first.Open, other.Open)
	theirs := delivered(first, keys, seed)
	if given := other.Open.Stream.Seed; given != nil {
		seed = *given
	}
	for i, mine := range delivered(other, keys, seed) {
		same := mine.Key == "dataset" && other.Root.Same(first.Root)
		if mine.Value != theirs[i].Value && !same {
			shown, others := apart(mine, theirs[i])
			return failure.Differs(mine.Key, mine.detail(), theirs[i].detail(), nil,
				"share = %q: this job cannot be given the same batches as job %s, the group's "+
					"first: %s is %s in this job and %s in that one; give both the same, or this "+
					"one another group", group, Name(first.Open.Job), mine.Key, shown, others)
		}
	}
	return nil
}

// delivered returns what decides which batches a job delivers; options are as for datasetOf.
func delivered(s Said, options []string, seed uint64) []Setting {
	m := s.Open
	settings := append(datasetOf(m, options),
		Setting{Key: "world_size", Value: m.WorldSize},
		Setting{Key: "node", Value: nodeOf(m)},
		Setting{Key: "verify", Value: m.Verify},
	)
	if m.Spans() { // the nodes of the group's job must agree in these
		settings = append(settings, Setting{Key: "policy", Value: s.Config.Policy},
			Setting{Key: "tls", Value: s.Config.TLS})
	}
	for _, k := range Shared(m, s.Config, s.Order) {
		switch {
		case k.Key == "epochs", k.Key == "policy", k.Key == "share", k.Key == "share_join":
		case k.Key == "global batch size" && anySize(m):
		default:
			settings = append(settings, k)
		}
	}
	// Last: a job that does not shuffle has a seed that was not given, and differs in shuffle.
	return append(settings, Setting{Key: "seed", Value: seed})
}

// nodeOf describes which node of how many a rank is on.
func nodeOf(m *Open) string {
	if !m.Spans() {
		return "the only one"
	}
	return fmt.Sprintf("number %d of %d", m.Cluster.Node, m.Cluster.Nodes)
}

// anySize reports whether the order in which a rank reads does not depend on the batch size.
func anySize(m *Open) bool {
	return m.WorldSize == 1 || access.Scheme(m.Stream.Scheme) == access.Strided
}

// Remedy returns what to do if ranks or nodes have different values for a key.
func Remedy(key string) string {
	switch {
	case key == "global batch size":
		return "give all ranks the same batch_size"
	case key == "subset or batches":
		return "give all ranks the same subset, sampler and batch_size"
	case key == "mix":
		return "give all ranks the same datasets, weights, epoch_size, stopping_strategy and batches"
	case key == "world_size", key == "nodes":
		return "start all ranks of the job with the same launcher, in one launch"
	case key == "hdmlp's version", key == "protocol":
		return "install the same version of hdmlp on all nodes"
	case strings.Contains(key, "fingerprint"):
		return "copy the dataset with its modification times (rsync -a, cp -a)"
	case strings.Contains(key, "of the dataset"), key == "the dataset":
		return "mount the same dataset on all nodes, or copy it again"
	}
	return "all ranks must use the same value"
}

// OfOrder returns the failure in err, an error of Compare, and reports whether it is about which
// samples ranks get and in which order.
func OfOrder(err error) (refused *failure.Error, ok bool) {
	if !errors.As(err, &refused) {
		return nil, false
	}
	switch refused.Details["key"] {
	case "world_size", "seed", "global batch size", "drop_last", "shuffle", "scheme", "tail",
		"subset or batches", "mix":
		return refused, true
	}
	return refused, false
}

// mostClasses is the number of classes up to which a dataset's classes are compared one by one.
const mostClasses = 1000

// Listing returns the agreement keys of a dataset's listing, which nodes compare; contents are
// compared separately. An error names the first key that differs: so those of classes come first,
// and say what differs.
func Listing(x *source.Index) []Setting {
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
			Value: fmt.Sprintf("%s with %d bytes (hash of names and sizes: %016x)",
				samples(sizes[i]), total, files.Sum64()),
		})
	}
	// This one differs alone only if everything else is equal.
	hash := x.Listing()
	return append(keys, Setting{
		Key:   "dataset fingerprint (names and sizes are equal, modification times differ)",
		Value: fmt.Sprintf("%x", hash[:8]),
	})
}

// samples returns a number of samples in words.
func samples(n int) string {
	if n == 1 {
		return "1 sample"
	}
	return fmt.Sprintf("%d samples", n)
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

// mixed describes a rank's mix of datasets for comparison.
func mixed(m *Open) string {
	x := m.Stream.Mix
	if x == nil {
		return "none"
	}
	batches := "mixed"
	if x.Single {
		batches = "of one dataset each"
	}
	sum := xxh3.HashString(fmt.Sprint(x.Sizes, x.Weights))
	return fmt.Sprintf("%d datasets, %d samples of them in an epoch, batches %s, sizes and weights "+
		"with the hash %016x", len(x.Sizes), x.Entries, batches, sum)
}

// node describes a rank's node for comparison.
func node(m *Open) string {
	if m.Cluster == nil {
		return "one"
	}
	return fmt.Sprintf("node %d of %d, with %d ranks, node 0 at %s",
		m.Cluster.Node, m.Cluster.Nodes, m.Cluster.LocalWorldSize, m.Cluster.Address)
}

// Nominal returns the configured capacities of the storage classes, in bytes, fastest first;
// plan.Unlimited: it is derived from what this machine has.
func Nominal(cfg *config.Config) []int64 {
	capacities := make([]int64, len(cfg.StorageClasses))
	for i, c := range cfg.StorageClasses {
		key := "cache_size"
		if c.Memory {
			key = "memory"
		}
		capacities[i] = plan.Unlimited
		if c.Capacity() > 0 && (cfg.Entries != "" || !Derived(cfg, key)) {
			capacities[i] = c.Capacity()
		}
	}
	return capacities
}
