package config

import (
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// Kind is the type of a parameter's value, which says how its text is parsed.
type Kind string

// The kinds of parameters.
const (
	Size     Kind = "size"     // bytes: "10GB", "64MiB", 1048576
	Int      Kind = "int"      // a whole number
	Duration Kind = "duration" // "30s", "2m"; a plain number is seconds
	Enum     Kind = "enum"     // one of Parameter.Values
	Path     Kind = "path"     // an absolute path, or one below "~/"; may be empty
	Address  Kind = "address"  // "host:port"; may be empty
	Switch   Kind = "switch"   // on or off; true and false as well
	Text     Kind = "text"     // any text; may be empty
	// Network is an interface, address, network or name of this host; may be empty.
	Network Kind = "network"
)

// Scope says what a parameter belongs to: a job or the daemon.
type Scope string

// The scopes of parameters.
const (
	Job    Scope = "job"    // every job has its own
	Daemon Scope = "daemon" // the node's daemon; read when it starts
)

// Auto is the value that stands for a derived or measured one.
const Auto = "auto"

// Parameter is one key of the configuration.
type Parameter struct {
	Key     string
	Kind    Kind
	Scope   Scope
	Default string   // as a user would write it; Auto: derived, or measured on this machine
	Derived string   // what Auto stands for, in words
	Values  []string // allowed values of an Enum
	Min     int64    // in bytes, a count, or nanoseconds; of a Text: bytes
	Max     int64    // in the same unit; 0: no limit
	Help    string   // one sentence, without its full stop

	// field returns where the value goes: *int64, *int, *bool, *time.Duration or *string
	field func(*Config) any
}

// parameters is the only table of what can be configured. Flags, keys of the file, HDMLP_*
// variables, their help and the example file are generated from it.
var parameters = [...]Parameter{
	{
		Key: "memory", Kind: Size, Scope: Job, Default: Auto,
		Derived: "half of the available memory",
		Help:    "Memory in which the node caches samples of a job; 0: no cache in memory",
		field:   func(c *Config) any { return &c.Memory },
	},
	{
		Key: "decode_memory", Kind: Size, Scope: Job, Default: Auto, Min: 16 << 20,
		Derived: "an eighth of the available memory; at least 64 MiB, at most 4 GiB or 256 MiB " +
			"per processor, whichever is larger; less if memory leaves less",
		Help: "Memory that all threads together may use to decode and transform images, in " +
			"addition to memory and staging_buffer. Images that do not fit wait for others; one " +
			"that can never fit is handled as on_error says",
		field: func(c *Config) any { return &c.DecodeMemory },
	},
	{
		Key: "cache_dir", Kind: Path, Scope: Job,
		Help: "Directory on a fast local disk in which the node caches samples, also for later " +
			"jobs; empty: no cache on disk. HDMLP creates it, but not its parent, and refuses a " +
			"directory that holds anything else",
		field: func(c *Config) any { return &c.CacheDir },
	},
	{
		Key: "cache_size", Kind: Size, Scope: Job, Default: Auto, Min: 1,
		Derived: "the free space of the disk, less disk_reserve",
		Help:    "Bytes that samples may occupy in cache_dir",
		field:   func(c *Config) any { return &c.CacheSize },
	},
	{
		Key: "disk_reserve", Kind: Size, Scope: Job, Default: Auto, Min: 1,
		Derived: "5 % of the disk, at least 1 GiB",
		Help:    "Bytes to leave free on the disk of cache_dir",
		field:   func(c *Config) any { return &c.DiskReserve },
	},
	{
		Key: "staging_buffer", Kind: Size, Scope: Job, Default: Auto, Min: 64 << 10,
		Derived: "computed from the size of a batch; grows while the job runs if more is needed to " +
			"keep the source busy",
		Help: "Shared memory, per rank, that holds batches until the training " +
			"process takes them",
		field: func(c *Config) any { return &c.StagingBuffer },
	},
	{
		Key: "prefetch_batches", Kind: Int, Scope: Job, Default: "64", Min: 1, Max: 65536,
		Help: "Maximum number of batches staged ahead of the training process. The default grows " +
			"while the job runs if more are needed to keep the source busy; a given number is kept, " +
			"and limits how far staging_buffer grows",
		field: func(c *Config) any { return &c.PrefetchBatches },
	},
	{
		Key: "source_threads", Kind: Int, Scope: Job, Default: "0", Max: 1024,
		Help: "Samples read from the source at the same time; 0: tuned automatically while the job " +
			"runs",
		field: func(c *Config) any { return &c.SourceThreads },
	},
	{
		Key: "cache_threads", Kind: Int, Scope: Job, Default: "4", Min: 1, Max: 1024,
		Help:  "Samples written to each storage class in a directory at the same time",
		field: func(c *Config) any { return &c.CacheThreads },
	},
	{
		Key: "transform_threads", Kind: Int, Scope: Job, Default: "0", Max: 1024,
		Help: "Samples transformed at the same time, at most one per processor that the daemon " +
			"may use; 0: tuned automatically while the job runs",
		field: func(c *Config) any { return &c.TransformThreads },
	},
	{
		Key: "source_timeout", Kind: Duration, Scope: Job, Default: "60s",
		Min: int64(100 * time.Millisecond), Max: int64(24 * time.Hour),
		Help: "Limit on one read from the source, retries included, and on one system call while " +
			"the dataset is scanned",
		field: func(c *Config) any { return &c.SourceTimeout },
	},
	{
		Key: "on_error", Kind: Enum, Scope: Job, Default: "raise",
		Values: []string{"raise", "skip", "substitute"},
		Help:   "What to do when a sample cannot be read or decoded",
		field:  func(c *Config) any { return &c.OnError },
	},
	{
		Key: "policy", Kind: Enum, Scope: Job, Default: policies.Default().Name(),
		Values: policies.Names(policies.Engine()),
		Help:   "Which node caches which samples: " + policiesDo(),
		field:  func(c *Config) any { return &c.Policy },
	},
	{
		Key: "index_dir", Kind: Path, Scope: Job, Default: Auto,
		Derived: "in the dataset's directory or, if that is read-only, in the user's " +
			"cache directory",
		Help: "Directory that keeps the indexes of datasets, so that each is scanned only once. " +
			"HDMLP creates it, but not its parent",
		field: func(c *Config) any { return &c.IndexDir },
	},
	{
		Key: "port", Kind: Int, Scope: Job, Default: Auto, Min: 1, Max: 65532,
		Derived: "on node 0 derived from the launcher's variables; on other nodes any free " +
			"ports, which they announce",
		Help: "First of three consecutive ports on which the daemons of a multi-node job reach " +
			"each other: control on node 0 (TCP), samples (TCP) and failure detection (TCP and " +
			"UDP); each further loader of the script uses ports 4 higher",
		field: func(c *Config) any { return &c.Port },
	},
	{
		Key: "interface", Kind: Network, Scope: Job,
		Help: "Interface, network, address or name of this host at which the other nodes of a " +
			"job reach this one, which then listens nowhere else; empty: this node listens on " +
			"all addresses, and the others use the one from which it reaches node 0",
		field: func(c *Config) any { return &c.Interface },
	},
	{
		Key: "start_timeout", Kind: Duration, Scope: Job, Default: "5m", Min: int64(time.Second),
		Max:   int64(24 * time.Hour),
		Help:  "How long the nodes of a job wait for each other when it starts",
		field: func(c *Config) any { return &c.StartTimeout },
	},
	{
		Key: "tls", Kind: Switch, Scope: Job, Default: "off",
		Help: "Whether the nodes of a job use TLS 1.3 for control messages and samples; without " +
			"tls_cert they authenticate each other by the job's secret alone",
		field: func(c *Config) any { return &c.TLS },
	},
	{
		Key: "tls_cert", Kind: Path, Scope: Job,
		Help: "PEM file with this node's certificate for tls, followed by the intermediate ones " +
			"up to tls_ca; needs tls_key and tls_ca",
		field: func(c *Config) any { return &c.TLSCert },
	},
	{
		Key: "tls_key", Kind: Path, Scope: Job,
		Help:  "PEM file with the private key of tls_cert",
		field: func(c *Config) any { return &c.TLSKey },
	},
	{
		Key: "tls_ca", Kind: Path, Scope: Job,
		Help: "PEM bundle of the CAs that sign the nodes' certificates, for tls; host names are " +
			"not checked",
		field: func(c *Config) any { return &c.TLSCA },
	},
	{
		Key: "share", Kind: Text, Scope: Job, Max: 128,
		Help: "Name of a group of jobs of this node that are given the same batches, each prepared " +
			"once for all of them; empty: none. In HDMLP_SHARE or a file it applies to each loader " +
			"of the script, whose groups are distinct",
		field: func(c *Config) any { return &c.Share },
	},
	{
		Key: "share_members", Kind: Int, Scope: Job, Default: "0", Max: 1024,
		Help: "How many jobs the group's first batch waits for, up to start_timeout after the first " +
			"has asked for it; 0: for none",
		field: func(c *Config) any { return &c.ShareMembers },
	},
	{
		Key: "share_join", Kind: Switch, Scope: Job, Default: "off",
		Help:  "Begin in the epoch in which the group is, instead of epoch 0",
		field: func(c *Config) any { return &c.ShareJoin },
	},
	{
		Key: "linger", Kind: Duration, Scope: Daemon, Default: "30s",
		Max: int64(7 * 24 * time.Hour),
		Help: "How long the daemon stays, its caches warm, after the last process has " +
			"disconnected",
		field: func(c *Config) any { return &c.Linger },
	},
	{
		Key: "metrics", Kind: Address, Scope: Daemon,
		Help:  "Address at which the daemon serves Prometheus metrics; empty: none",
		field: func(c *Config) any { return &c.Metrics },
	},
	{
		Key: "log_level", Kind: Enum, Scope: Daemon, Default: "info",
		Values: []string{"debug", "info", "warn", "error"},
		Help:   "Least severe level of messages in the daemon's log",
		field:  func(c *Config) any { return &c.LogLevel },
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

// policiesDo returns half a sentence for each policy on what it does.
func policiesDo() string {
	var does []string
	for _, p := range policies.Engine() {
		does = append(does, p.Name()+" "+p.About().Does)
	}
	return strings.Join(does, "; ")
}
