package job

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/cluster"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// setting is a parameter as a rank gave it.
type setting struct {
	key   string
	value any
}

// shared are the settings that all ranks of a job must share, on all nodes. The seed is not among them: node 0 may draw it.
func shared(m *protocol.OpenMessage, cfg *config.Config, o *order) []setting {
	batch := m.Stream.GlobalBatch
	if o.part != nil { // of batches that differ, parts tells
		batch = 0
	}
	return []setting{
		{"epochs", m.Stream.Epochs},
		{"global batch size", batch},
		{"drop_last", m.Stream.DropLast},
		{"shuffle", m.Stream.Shuffle},
		{"scheme", m.Stream.Scheme},
		{"tail", m.Stream.Tail},
		{"subset or batches", o.digest},
		{"transforms", listed(m)},
		{"policy", cfg.Policy},
		{"on_error", cfg.OnError},
	}
}

// settings are those that all ranks of a node must share. seed is what a rank means that leaves it open. What is derived or measured may differ:
// it is what the first rank found.
func settings(m *protocol.OpenMessage, cfg *config.Config, o *order, seed uint64) []setting {
	if m.Stream.Seed != nil {
		seed = *m.Stream.Seed
	}
	return slices.Concat([]setting{
		{"world_size", m.WorldSize},
		{"nodes", node(m)},
		{"dataset kind", m.Dataset.Kind},
		{"dataset", m.Dataset.Path},
		{"extensions", fmt.Sprint(m.Dataset.Extensions)},
		{"seed", seed},
	}, shared(m, cfg, o), caching(cfg), []setting{
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

// caching are those that make a dataset's cache.
func caching(cfg *config.Config) []setting {
	classes := "none"
	if strings.HasSuffix(cfg.Origins["memory"].Source, "replaces it") {
		classes = fmt.Sprintf("%+v", cfg.StorageClasses)
	}
	return []setting{
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

// given is a setting of which only what the user said counts.
func given(cfg *config.Config, key string, value any) setting {
	if source := cfg.Origins[key].Source; source == "" || strings.HasPrefix(source, "default") || strings.HasPrefix(source, "measured") {
		return setting{key, config.Auto}
	}
	return setting{key, fmt.Sprint(value)}
}

// differences names what the configurations would make of a dataset's cache, where they differ; empty: nowhere.
func differences(theirs, mine *config.Config) string {
	var out []string
	others := caching(theirs)
	for i, s := range caching(mine) {
		if s.value != others[i].value {
			out = append(out, fmt.Sprintf("%s is %v there and %v here", s.key, others[i].value, s.value))
		}
	}
	return strings.Join(out, ", ")
}

// alongside refuses a rank that is on another node of the job than those of this daemon: it would be waited for, and not come.
func (j *Job) alongside(m *protocol.OpenMessage) error {
	here := j.message.Cluster
	if here == nil || m.Cluster == nil || m.Cluster.Node == here.Node {
		return nil
	}
	return &protocol.ErrorMessage{
		Kind: protocol.KindMismatch,
		Message: fmt.Sprintf("rank %d of job %s is on node %d, but this daemon is the job's on node %d: nodes that share a host need daemons of their own, "+
			"by another HDMLP_SOCKET for each node", m.Rank, m.Job, m.Cluster.Node, here.Node),
		Details: map[string]any{"key": "node", "mine": m.Cluster.Node, "theirs": here.Node},
	}
}

// compare refuses a rank whose settings differ from those of the rank that made the job.
func (j *Job) compare(m *protocol.OpenMessage, cfg *config.Config, o *order) error {
	first := &j.message
	theirs := settings(first, j.cfg, j.order, 0)
	for i, mine := range settings(m, cfg, o, *first.Stream.Seed) {
		if mine.value != theirs[i].value {
			return &protocol.ErrorMessage{
				Kind: protocol.KindMismatch,
				Message: fmt.Sprintf("rank %d disagrees with rank %d of job %s: %s is %v here and %v there; all ranks must say the same",
					m.Rank, first.Rank, first.Job, mine.key, mine.value, theirs[i].value),
				Details: map[string]any{"key": mine.key, "mine": mine.value, "theirs": theirs[i].value},
			}
		}
	}
	return nil
}

// disagree ends the job on all its ranks here if a rank that was never in it means another order: without it the others could not train either, and
// would wait for it. One that was in the job, and comes again with another order, is refused alone: the others may come again as well.
func (j *Job) disagree(rank int, refused error) {
	var e *protocol.ErrorMessage
	if !errors.As(refused, &e) || !ofOrder(e.Details["key"]) {
		return
	}
	j.mu.Lock()
	was := j.ledgers[rank] != nil
	j.mu.Unlock()
	if !was {
		j.fail(&protocol.ErrorMessage{Kind: e.Kind, Message: "the job's ranks disagree, and all of them end: " + e.Message, Details: e.Details})
	}
}

// ofOrder reports whether a key of settings says which samples ranks get, and in which order.
func ofOrder(key any) bool {
	switch key {
	case "world_size", "seed", "global batch size", "drop_last", "shuffle", "scheme", "tail", "subset or batches":
		return true
	}
	return false
}

// facts are what the nodes of a job must agree on.
func (j *Job) facts() []cluster.Fact {
	seed := "drawn"
	if given := j.message.Stream.Seed; given != nil {
		seed = strconv.FormatUint(*given, 10)
	}
	facts := []cluster.Fact{
		{Key: "hdmlp's version", Value: j.node.options.Version},
		{Key: "protocol", Value: strconv.Itoa(protocol.Version)},
	}
	facts = append(facts, listing(j.dataset.Index())...)
	facts = append(facts, cluster.Fact{Key: "seed", Value: seed})
	for _, s := range shared(&j.message, j.cfg, j.order) {
		facts = append(facts, cluster.Fact{Key: s.key, Value: fmt.Sprint(s.value)})
	}
	return facts
}

// mostClasses is how many classes of a dataset are compared one by one.
const mostClasses = 1000

// listing are the facts of a dataset's listing; contents are compared apart. The first that differs is what a user gets to read: so
// it is that of a class, and says what of it differs.
func listing(x *dataset.Index) []cluster.Fact {
	names, sizes := x.Classes(), x.ClassSizes()
	if len(names) > mostClasses {
		names, sizes = []string{""}, []int{x.Len()}
	}
	var facts []cluster.Fact
	var line []byte
	id := 0
	for i, name := range names {
		var total int64
		files := xxh3.New()
		for range sizes[i] {
			total += x.Size(id)
			line = binary.LittleEndian.AppendUint64(append(x.AppendName(line[:0], id), 0), uint64(x.Size(id)))
			_, _ = files.Write(line) // a hash never fails
			id++
		}
		key := "the dataset"
		if name != "" {
			key = fmt.Sprintf("class %q of the dataset", name)
		}
		facts = append(facts, cluster.Fact{Key: key, Value: fmt.Sprintf("%d samples of %d bytes (hash of names and sizes: %016x)", sizes[i], total, files.Sum64())})
	}
	// All else being equal.
	hash := x.Listing()
	return append(facts, cluster.Fact{
		Key: "dataset fingerprint (names and sizes are equal, modification times differ)", Value: fmt.Sprintf("%x", hash[:8]),
	})
}

// listed is what a rank wants done to the samples, as text without blanks.
func listed(m *protocol.OpenMessage) string {
	if !transforms(m) {
		return "none"
	}
	var b bytes.Buffer
	if json.Compact(&b, m.Transforms) != nil {
		return string(m.Transforms)
	}
	return b.String()
}

// node says which of how many nodes a rank is on.
func node(m *protocol.OpenMessage) string {
	if m.Cluster == nil {
		return "one"
	}
	return fmt.Sprintf("node %d of %d, with %d ranks, node 0 at %s", m.Cluster.Node, m.Cluster.Nodes, m.Cluster.LocalWorldSize, m.Cluster.Address)
}
