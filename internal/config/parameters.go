package config

import (
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/placement/policies"
)

// Kind says how a parameter's text is read.
type Kind string

// The kinds of parameters.
const (
	Size     Kind = "size"     // bytes: "10GB", "64MiB", 1048576
	Int      Kind = "int"      // a whole number
	Duration Kind = "duration" // "30s", "2m"; a plain number is seconds
	Enum     Kind = "enum"     // one of Parameter.Values
	Path     Kind = "path"     // an absolute path, "~/" for the home directory; may be empty
	Address  Kind = "address"  // "host:port"; may be empty
	Switch   Kind = "switch"   // on or off; true and false as well
	Network  Kind = "network"  // of this host: an interface, an address, a network or a name; may be empty
)

// Scope says whose parameter it is.
type Scope string

// The scopes of parameters.
const (
	Job    Scope = "job"    // every job has its own
	Daemon Scope = "daemon" // the node's process; taken from whoever starts it
)

// Auto is the text that asks for what is derived or measured.
const Auto = "auto"

// Parameter is one key of the configuration.
type Parameter struct {
	Key     string
	Kind    Kind
	Scope   Scope
	Default string   // as a user would write it; Auto: derived, or measured on this machine
	Derived string   // what Auto stands for, in words
	Values  []string // of an Enum
	Min     int64    // bytes, a count, or nanoseconds
	Max     int64    // the same; 0: no limit
	Help    string   // one sentence, without its full stop

	field func(*Config) any // where the value goes: *int64, *int, *bool, *time.Duration or *string
}

// parameters is the one table of what can be configured. Flags, keys of the
// file, HDMLP_* variables, their help and the example file come from it.
var parameters = [...]Parameter{
	{
		Key: "memory", Kind: Size, Scope: Job, Default: Auto,
		Derived: "half of the memory that is available",
		Help:    "Memory in which the node caches samples of a job; 0: none",
		field:   func(c *Config) any { return &c.Memory },
	},
	{
		Key: "decode_memory", Kind: Size, Scope: Job, Default: Auto, Min: 16 << 20,
		Derived: "an eighth of the memory that is available; 64 MiB at least, and 4 GiB or 256 MiB per processor at most; less where memory leaves less",
		Help:    "Memory that all threads together may take to decode and transform images, beside memory and staging_buffer. Images that do not fit wait for others; one that can never fit is handled by on_error",
		field:   func(c *Config) any { return &c.DecodeMemory },
	},
	{
		Key: "cache_dir", Kind: Path, Scope: Job,
		Help:  "Directory on a fast local disk in which the node caches samples, also for later jobs; empty: none. HDMLP creates it, but not its parent, and refuses one that holds anything else",
		field: func(c *Config) any { return &c.CacheDir },
	},
	{
		Key: "cache_size", Kind: Size, Scope: Job, Default: Auto, Min: 1,
		Derived: "what the disk has free, less disk_reserve",
		Help:    "Bytes of cache_dir that samples may take",
		field:   func(c *Config) any { return &c.CacheSize },
	},
	{
		Key: "disk_reserve", Kind: Size, Scope: Job, Default: Auto, Min: 1,
		Derived: "5 % of the disk, at least 1 GiB",
		Help:    "Bytes of cache_dir's disk that are left free",
		field:   func(c *Config) any { return &c.DiskReserve },
	},
	{
		Key: "staging_buffer", Kind: Size, Scope: Job, Default: Auto, Min: 64 << 10,
		Derived: "chosen from the size of a batch",
		Help:    "Shared memory, per rank, in which batches wait for the training process",
		field:   func(c *Config) any { return &c.StagingBuffer },
	},
	{
		Key: "prefetch_batches", Kind: Int, Scope: Job, Default: "64", Min: 1, Max: 65536,
		Help:  "Batches that are staged ahead of the training process, at the most",
		field: func(c *Config) any { return &c.PrefetchBatches },
	},
	{
		Key: "source_threads", Kind: Int, Scope: Job, Default: "16", Min: 1, Max: 1024,
		Help:  "Samples that are read from the source at the same time",
		field: func(c *Config) any { return &c.SourceThreads },
	},
	{
		Key: "cache_threads", Kind: Int, Scope: Job, Default: "4", Min: 1, Max: 1024,
		Help:  "Samples that are read from each cache at the same time",
		field: func(c *Config) any { return &c.CacheThreads },
	},
	{
		Key: "transform_threads", Kind: Int, Scope: Job, Default: "0", Max: 1024,
		Help:  "Samples that are transformed at the same time; 0: as many as pay off, found while running. Never more than the processors that the daemon may use",
		field: func(c *Config) any { return &c.TransformThreads },
	},
	{
		Key: "source_timeout", Kind: Duration, Scope: Job, Default: "60s",
		Min: int64(100 * time.Millisecond), Max: int64(24 * time.Hour),
		Help:  "How long one read from the source may take, retries included, and one system call while the dataset is scanned",
		field: func(c *Config) any { return &c.SourceTimeout },
	},
	{
		Key: "on_error", Kind: Enum, Scope: Job, Default: "raise",
		Values: []string{"raise", "skip", "substitute"},
		Help:   "What happens when a sample cannot be read or decoded",
		field:  func(c *Config) any { return &c.OnError },
	},
	{
		Key: "policy", Kind: Enum, Scope: Job, Default: policies.Default().Name(),
		Values: policies.Names(policies.Engine()),
		Help:   "Who caches which samples: " + policiesDo(),
		field:  func(c *Config) any { return &c.Policy },
	},
	{
		Key: "index_dir", Kind: Path, Scope: Job, Default: Auto,
		Derived: "beside the dataset, or where that is read-only in the user's cache directory",
		Help:    "Directory that keeps the indexes of datasets, so that a scan is done once",
		field:   func(c *Config) any { return &c.IndexDir },
	},
	{
		Key: "port", Kind: Int, Scope: Job, Default: Auto, Min: 1, Max: 65532,
		Derived: "node 0's from the launcher's variables; the others are any that are free, and told",
		Help:    "First of the ports at which the daemons of a job on several nodes reach each other: node 0 is found there (TCP), samples are served at the next (TCP), and failure detection is at the one after (TCP and UDP); 4 more for each further loader",
		field:   func(c *Config) any { return &c.Port },
	},
	{
		Key: "interface", Kind: Network, Scope: Job,
		Help:  "Where the other nodes of a job reach this one, and the only place where it is listened for them; empty: all addresses, and the others are told the one that node 0 sees",
		field: func(c *Config) any { return &c.Interface },
	},
	{
		Key: "start_timeout", Kind: Duration, Scope: Job, Default: "5m", Min: int64(time.Second), Max: int64(24 * time.Hour),
		Help:  "How long the nodes of a job wait for each other at the start",
		field: func(c *Config) any { return &c.StartTimeout },
	},
	{
		Key: "tls", Kind: Switch, Scope: Job, Default: "off",
		Help:  "Whether control and samples go over TLS 1.3 between the nodes of a job; without tls_cert they trust each other by the job's secret alone",
		field: func(c *Config) any { return &c.TLS },
	},
	{
		Key: "tls_cert", Kind: Path, Scope: Job,
		Help:  "This node's certificate for tls, PEM, with those between it and tls_ca behind it; needs tls_key and tls_ca",
		field: func(c *Config) any { return &c.TLSCert },
	},
	{
		Key: "tls_key", Kind: Path, Scope: Job,
		Help:  "The private key of tls_cert, PEM",
		field: func(c *Config) any { return &c.TLSKey },
	},
	{
		Key: "tls_ca", Kind: Path, Scope: Job,
		Help:  "The authorities, PEM, of which the other nodes' certificates must come, for tls; whatever names these carry",
		field: func(c *Config) any { return &c.TLSCA },
	},
	{
		Key: "linger", Kind: Duration, Scope: Daemon, Default: "30s", Max: int64(7 * 24 * time.Hour),
		Help:  "How long the daemon stays, its caches warm, when the last process has gone",
		field: func(c *Config) any { return &c.Linger },
	},
	{
		Key: "metrics", Kind: Address, Scope: Daemon,
		Help:  "Where the daemon serves its metrics to Prometheus; empty: nowhere",
		field: func(c *Config) any { return &c.Metrics },
	},
	{
		Key: "log_level", Kind: Enum, Scope: Daemon, Default: "info",
		Values: []string{"debug", "info", "warn", "error"},
		Help:   "How much the daemon's log says",
		field:  func(c *Config) any { return &c.LogLevel },
	},
}

// Parameters returns the table of what can be configured, in the order in which
// it is shown to users.
func Parameters() []Parameter { return slices.Clone(parameters[:]) }

// Lookup finds a parameter by its key.
func Lookup(key string) (Parameter, bool) {
	i := slices.IndexFunc(parameters[:], func(p Parameter) bool { return p.Key == key })
	if i < 0 {
		return Parameter{}, false
	}
	return parameters[i], true
}

// Variable is the environment variable of the parameter: HDMLP_MEMORY.
func (p Parameter) Variable() string { return "HDMLP_" + strings.ToUpper(p.Key) }

// otherVariables are HDMLP_* variables that are not configuration keys; names
// that begin with daemonPrefix are the daemon's own.
var otherVariables = [...]string{
	"HDMLP_BINARY", "HDMLP_CONFIG", "HDMLP_NODE", "HDMLP_NODES", "HDMLP_SECRET", "HDMLP_SECRET_FILE", "HDMLP_SOCKET",
}

const daemonPrefix = "HDMLP_DAEMON_"

// policiesDo says in half a sentence for each policy what it does.
func policiesDo() string {
	var does []string
	for _, p := range policies.Engine() {
		does = append(does, p.Name()+" "+p.About().Does)
	}
	return strings.Join(does, "; ")
}
