package config

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// Scope is what a parameter belongs to: a job or the daemon.
type Scope string

// The scopes of parameters.
const (
	Job    Scope = "job"    // every job has its own
	Daemon Scope = "daemon" // the node's daemon; read when it starts
)

// Parameter is one key of the configuration.
type Parameter struct {
	option.Option
	Scope Scope

	// field returns where the value goes: a pointer to the type that values of its kind have
	field func(*Config) any
}

// parameters is the only table of what can be configured. Flags, keys of the file, HDMLP_*
// variables, their help and the example file are generated from it.
var parameters = [...]Parameter{
	{
		Option: option.Option{
			Key: "memory", Kind: option.Size, Default: option.Auto,
			Derived: "half of the available memory",
			Help:    "Memory in which the node caches samples of a job; 0: no cache in memory",
		},
		Scope: Job, field: func(c *Config) any { return &c.Memory },
	},
	{
		Option: option.Option{
			Key: "decode_memory", Kind: option.Size, Default: option.Auto, Min: 16 << 20,
			Derived: "an eighth of the available memory; at least 64 MiB, at most 4 GiB or 256 MiB " +
				"per processor, whichever is larger; less if memory leaves less",
			Help: "Memory that all threads together may use to decode and transform images, in " +
				"addition to memory and staging_buffer. Images that do not fit wait for others; one " +
				"that can never fit is handled as on_error says",
		},
		Scope: Job, field: func(c *Config) any { return &c.DecodeMemory },
	},
	{
		Option: option.Option{
			Key: "cache_dir", Kind: option.Path,
			Help: "Directory on a fast local disk in which the node caches samples, also for later " +
				"jobs; empty: no cache on disk. HDMLP creates it, but not its parent, and refuses a " +
				"directory that holds anything else",
		},
		Scope: Job, field: func(c *Config) any { return &c.CacheDir },
	},
	{
		Option: option.Option{
			Key: "cache_size", Kind: option.Size, Default: option.Auto, Min: 1,
			Derived: "the free space of the disk, less disk_reserve",
			Help:    "Bytes that samples may occupy in cache_dir",
		},
		Scope: Job, field: func(c *Config) any { return &c.CacheSize },
	},
	{
		Option: option.Option{
			Key: "disk_reserve", Kind: option.Size, Default: option.Auto, Min: 1,
			Derived: "5 % of the disk, at least 1 GiB",
			Help:    "Bytes to leave free on the disk of cache_dir",
		},
		Scope: Job, field: func(c *Config) any { return &c.DiskReserve },
	},
	{
		Option: option.Option{
			Key: "cache_trust", Kind: option.Enum, Default: "instance",
			Values: []string{"instance", "version"},
			Help: "Which cached copies of earlier jobs are used: instance: of files that are the " +
				"same ones now (inode and change time); version: also of a dataset at another path, " +
				"if the listing and the excerpts agree. Files beyond the excerpts that differ, with " +
				"equal names, sizes and times, are then not noticed",
		},
		Scope: Job, field: func(c *Config) any { return &c.CacheTrust },
	},
	{
		Option: option.Option{
			Key: "forms", Kind: option.Enum, Default: option.Auto, Values: []string{"off"},
			Derived: "on, for a folder's images that every job on this node decodes, without verify, " +
				"if one of the jobs has 6 epochs or more",
			Help: "Whether JPEGs are kept in memory as coefficients, which take about 1.1 times their " +
				"bytes and half the time to be decoded, and PNGs and WebPs with their pixels, which " +
				"take 3 times and more, and a seventh of the time of a photograph, or all with what " +
				"the first transforms make of them, if these draw nothing, with the same pixels, " +
				"while memory has room for that beside all samples of the plan",
		},
		Scope: Job, field: func(c *Config) any { return &c.Forms },
	},
	{
		Option: option.Option{
			Key: "staging_buffer", Kind: option.Size, Default: option.Auto, Min: 64 << 10,
			Derived: "computed from the size of a batch; grows while the job runs if more is needed to " +
				"keep the source busy",
			Help: "Shared memory, per rank, that holds batches until the training " +
				"process takes them",
		},
		Scope: Job, field: func(c *Config) any { return &c.StagingBuffer },
	},
	{
		Option: option.Option{
			Key: "prefetch_batches", Kind: option.Int, Default: "64", Min: 1, Max: 65536,
			Help: "Maximum number of batches staged ahead of the training process. The default grows " +
				"while the job runs if more are needed to keep the source busy; a given number is kept, " +
				"and limits how far staging_buffer grows",
		},
		Scope: Job, field: func(c *Config) any { return &c.PrefetchBatches },
	},
	{
		Option: option.Option{
			Key: "source_threads", Kind: option.Int, Default: "0", Max: 1024,
			Help: "Samples read from the source at the same time; 0: tuned automatically while the job " +
				"runs",
		},
		Scope: Job, field: func(c *Config) any { return &c.SourceThreads },
	},
	{
		Option: option.Option{
			Key: "cache_threads", Kind: option.Int, Default: "4", Min: 1, Max: 1024,
			Help: "Samples written to each storage class in a directory at the same time",
		},
		Scope: Job, field: func(c *Config) any { return &c.CacheThreads },
	},
	{
		Option: option.Option{
			Key: "transform_threads", Kind: option.Int, Default: "0", Max: 1024,
			Help: "Samples transformed at the same time, at most one per processor that the daemon " +
				"may use; 0: tuned automatically while the job runs",
		},
		Scope: Job, field: func(c *Config) any { return &c.TransformThreads },
	},
	{
		Option: option.Option{
			Key: "source_timeout", Kind: option.Duration, Default: "60s",
			Min: int64(100 * time.Millisecond), Max: int64(24 * time.Hour),
			Help: "Limit on one read from the source, retries included, and on one system call while " +
				"the dataset is scanned",
		},
		Scope: Job, field: func(c *Config) any { return &c.SourceTimeout },
	},
	{
		Option: option.Option{
			Key: "on_error", Kind: option.Enum, Default: "raise",
			Values: []string{"raise", "skip", "substitute"},
			Help:   "What to do when a sample cannot be read or decoded",
		},
		Scope: Job, field: func(c *Config) any { return &c.OnError },
	},
	{
		Option: option.Option{
			Key: "policy", Kind: option.Enum, Default: policies.Default().Name(),
			Values: policies.Names(policies.Engine()), Parse: parsePolicy,
			Help: "Which node caches which samples: " + policiesDo(),
		},
		Scope: Job, field: func(c *Config) any { return &c.Policy },
	},
	{
		Option: option.Option{
			Key: "index_dir", Kind: option.Path, Default: option.Auto,
			Derived: "in the dataset's directory or, if that is read-only, in the user's " +
				"cache directory",
			Help: "Directory that keeps the indexes of datasets, so that each is scanned only once. " +
				"HDMLP creates it, but not its parent",
		},
		Scope: Job, field: func(c *Config) any { return &c.IndexDir },
	},
	{
		Option: option.Option{
			Key: "port", Kind: option.Int, Default: option.Auto, Min: 1, Max: 65532,
			Derived: "on node 0 derived from the launcher's variables; on other nodes any free " +
				"ports, which they announce",
			Help: "First of four consecutive ports on which the daemons of a multi-node job reach " +
				"each other: control on node 0 (TCP), samples (TCP), failure detection (TCP and UDP) " +
				"and, on node 0, indexes of datasets at URLs (TCP); each further loader of the script " +
				"uses ports 4 higher",
		},
		Scope: Job, field: func(c *Config) any { return &c.Port },
	},
	{
		Option: option.Option{
			Key: "interface", Kind: option.Network,
			Help: "Interface, network, address or name of this host at which the other nodes of a " +
				"job reach this one, which then listens nowhere else; empty: this node listens on " +
				"all addresses, and the others use the one from which it reaches node 0",
		},
		Scope: Job, field: func(c *Config) any { return &c.Interface },
	},
	{
		Option: option.Option{
			Key: "start_timeout", Kind: option.Duration, Default: "5m", Min: int64(time.Second),
			Max:  int64(24 * time.Hour),
			Help: "How long the nodes of a job wait for each other when it starts",
		},
		Scope: Job, field: func(c *Config) any { return &c.StartTimeout },
	},
	{
		Option: option.Option{
			Key: "preload_timeout", Kind: option.Duration, Default: "1h", Min: int64(time.Second),
			Max: int64(30 * 24 * time.Hour),
			Help: "How long a job may take to fill the caches, of all nodes, if its policy does so " +
				"before training",
		},
		Scope: Job, field: func(c *Config) any { return &c.PreloadTimeout },
	},
	{
		Option: option.Option{
			Key: "tls", Kind: option.Switch, Default: "off",
			Help: "Whether the nodes of a job use TLS 1.3 for control messages and samples; without " +
				"tls_cert they authenticate each other by the job's secret alone",
		},
		Scope: Job, field: func(c *Config) any { return &c.TLS },
	},
	{
		Option: option.Option{
			Key: "tls_cert", Kind: option.Path,
			Help: "PEM file with this node's certificate for tls, followed by the intermediate ones " +
				"up to tls_ca; needs tls_key and tls_ca",
		},
		Scope: Job, field: func(c *Config) any { return &c.TLSCert },
	},
	{
		Option: option.Option{
			Key: "tls_key", Kind: option.Path,
			Help: "PEM file with the private key of tls_cert",
		},
		Scope: Job, field: func(c *Config) any { return &c.TLSKey },
	},
	{
		Option: option.Option{
			Key: "tls_ca", Kind: option.Path,
			Help: "PEM bundle of the CAs that sign the nodes' certificates, for tls; host names are " +
				"not checked",
		},
		Scope: Job, field: func(c *Config) any { return &c.TLSCA },
	},
	{
		Option: option.Option{
			Key: "share", Kind: option.Text, Max: 128,
			Help: "Name of a group of jobs of this node that are given the same batches, each prepared " +
				"once for all of them; empty: none. In HDMLP_SHARE or a file it applies to each loader " +
				"of the script, whose groups are distinct",
		},
		Scope: Job, field: func(c *Config) any { return &c.Share },
	},
	{
		Option: option.Option{
			Key: "share_members", Kind: option.Int, Default: "0", Max: 1024,
			Help: "How many jobs the group's first batch waits for, up to start_timeout after the " +
				"first has asked for it; 0: for none",
		},
		Scope: Job, field: func(c *Config) any { return &c.ShareMembers },
	},
	{
		Option: option.Option{
			Key: "share_join", Kind: option.Switch, Default: "off",
			Help: "Begin in the epoch in which the group is, instead of epoch 0",
		},
		Scope: Job, field: func(c *Config) any { return &c.ShareJoin },
	},
	{
		Option: option.Option{
			Key: "linger", Kind: option.Duration, Default: "30s",
			Max: int64(7 * 24 * time.Hour),
			Help: "How long the daemon stays, its caches warm, after the last process has " +
				"disconnected",
		},
		Scope: Daemon, field: func(c *Config) any { return &c.Linger },
	},
	{
		Option: option.Option{
			Key: "metrics", Kind: option.Address,
			Help: "Address at which the daemon serves Prometheus metrics; empty: none",
		},
		Scope: Daemon, field: func(c *Config) any { return &c.Metrics },
	},
	{
		Option: option.Option{
			Key: "log_level", Kind: option.Enum, Default: "info",
			Values: []string{"debug", "info", "warn", "error"},
			Help:   "Least severe level of messages in the daemon's log",
		},
		Scope: Daemon, field: func(c *Config) any { return &c.LogLevel },
	},
}

// Parameters returns a copy of the table of parameters, in the order in which users see it.
func Parameters() []Parameter { return slices.Clone(parameters[:]) }

// Lookup returns the parameter of this key, and whether there is one.
func Lookup(key string) (Parameter, bool) {
	i := slices.IndexFunc(parameters[:], func(p Parameter) bool { return p.Key == key })
	if i < 0 {
		return Parameter{}, false
	}
	return parameters[i], true
}

// Variable returns the name of the parameter's environment variable, such as HDMLP_MEMORY.
func (p Parameter) Variable() string { return "HDMLP_" + strings.ToUpper(p.Key) }

// otherVariables are HDMLP_* variables that are not configuration keys. Names that begin with
// daemonPrefix are reserved for the daemon.
var otherVariables = [...]string{
	"HDMLP_BINARY", "HDMLP_CONFIG", "HDMLP_NODE", "HDMLP_NODES", "HDMLP_SECRET",
	"HDMLP_SECRET_FILE", "HDMLP_SOCKET",
}

const daemonPrefix = "HDMLP_DAEMON_"

// parsePolicy checks the name of a policy, with the options that it may have.
func parsePolicy(text string) (string, error) {
	if known := policies.Names(policies.Engine()); !slices.Contains(known, plan.Base(text)) {
		return "", errors.New("unknown value" + human.Nearest(plan.Base(text), known))
	}
	p, err := policies.ByName(text)
	if err != nil {
		return "", err
	}
	return p.Name(), nil
}

// policiesDo returns half a sentence for each policy on what it does.
func policiesDo() string {
	var does []string
	for _, p := range policies.Engine() {
		does = append(does, p.Name()+" "+p.About().Does)
	}
	return strings.Join(does, "; ")
}
