package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/cluster"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// setting is a parameter as a rank gave it.
type setting struct {
	key   string
	value any
}

// shared are the settings that all ranks of a job must share, on all nodes. The seed is not among them: node 0 may draw it.
func shared(m *protocol.OpenMessage, cfg *config.Config) []setting {
	return []setting{
		{"epochs", m.Stream.Epochs},
		{"global batch size", m.Stream.GlobalBatch},
		{"drop_last", m.Stream.DropLast},
		{"shuffle", m.Stream.Shuffle},
		{"scheme", m.Stream.Scheme},
		{"tail", m.Stream.Tail},
		{"transforms", listed(m)},
		{"policy", cfg.Policy},
		{"on_error", cfg.OnError},
	}
}

// settings are those that all ranks of a node must share. seed is what a rank means that leaves it open. What is derived or measured may differ:
// it is what the first rank found.
func settings(m *protocol.OpenMessage, cfg *config.Config, seed uint64) []setting {
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
	}, shared(m, cfg), caching(cfg), []setting{
		given(cfg, "staging_buffer", cfg.StagingBuffer),
		{"prefetch_batches", cfg.PrefetchBatches},
		{"transform_threads", cfg.TransformThreads},
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
func (j *Job) compare(m *protocol.OpenMessage, cfg *config.Config) error {
	first := &j.message
	theirs := settings(first, j.cfg, 0)
	for i, mine := range settings(m, cfg, *first.Stream.Seed) {
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

// facts are what the nodes of a job must agree on.
func (j *Job) facts() []cluster.Fact {
	fingerprint := j.dataset.Index().Fingerprint()
	seed := "drawn"
	if given := j.message.Stream.Seed; given != nil {
		seed = strconv.FormatUint(*given, 10)
	}
	facts := []cluster.Fact{
		{Key: "hdmlp's version", Value: j.node.options.Version},
		{Key: "protocol", Value: strconv.Itoa(protocol.Version)},
		{Key: "dataset fingerprint", Value: fmt.Sprintf("%x", fingerprint[:8])},
		{Key: "seed", Value: seed},
	}
	for _, s := range shared(&j.message, j.cfg) {
		facts = append(facts, cluster.Fact{Key: s.key, Value: fmt.Sprint(s.value)})
	}
	return facts
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
