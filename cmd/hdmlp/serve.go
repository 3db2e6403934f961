package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/admission"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/probe"
	"github.com/hdmlp/hdmlp/internal/stats"
	"github.com/hdmlp/hdmlp/internal/stats/prometheus"
)

// newServeCommand makes the command of a daemon whose node has these options.
func newServeCommand(options func(log *slog.Logger, processors int) node.Options) *cobra.Command {
	var fromProcess bool
	var set []string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run this node's daemon",
		Long: `Run this node's daemon in the foreground. Training processes start it by
themselves; run it by hand to keep caches warm between jobs for longer
(--set linger=12h), or to see its log.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			arguments, err := parseSettings(set)
			if err != nil {
				return err
			}
			return runServe(cmd.Context(), arguments, fromProcess, options)
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil,
		"key=value: a configuration key of the daemon: linger, metrics, log_level")
	cmd.Flags().BoolVar(&fromProcess, "from-process", false,
		"started by a training process: exit quietly if a daemon runs already")
	return cmd
}

// filesNeeded is the number of open files below which a daemon is of no use; a
// job's own need is checked when it opens.
const filesNeeded = 64

// fileSizeNeeded is the length of files in bytes below which a daemon is of no use; what a job
// needs is checked when it opens.
const fileSizeNeeded = 1 << 20

// checkFileSize raises the limit on the length of files as far as it goes, and refuses one that is
// too small: shared memory counts as a file.
func checkFileSize() error {
	limit, err := probe.RaiseFileSizeLimit()
	if err == nil && limit < fileSizeNeeded {
		return badInput("file size: the daemon needs files and shared memory of %d bytes, "+
			"RLIMIT_FSIZE allows %d: raise its hard limit (ulimit -Hf)", fileSizeNeeded, limit)
	}
	return nil
}

func runServe(ctx context.Context, arguments map[string]any, fromProcess bool,
	options func(*slog.Logger, int) node.Options,
) error {
	environment := hdmlpEnvironment()
	cfg, err := config.Resolve(config.Input{
		Arguments: arguments, Environment: environment, File: config.DefaultFile(environment),
		Classes: describedClasses(),
	})
	if err != nil {
		return inputError{err}
	}
	endpoint, err := address()
	if err != nil {
		return err
	}
	if err := checkFileSize(); err != nil {
		return err
	}
	listener, err := socket.Listen(endpoint)
	if errors.Is(err, socket.ErrRunning) {
		if fromProcess {
			return nil // another process was faster
		}
		return fmt.Errorf("%w at %s: see `hdmlp stats`, or end it with `hdmlp stop`", err,
			endpoint.Addr.Name)
	}
	if err != nil {
		return inputError{err}
	}
	defer listener.Close() // Run closes it as well
	log := newLogger(cfg.LogLevel)
	if err := giveWay(); err != nil {
		log.Debug("schedule as batch work", "error", err)
	}
	files, err := probe.RaiseFileLimit()
	if err != nil {
		log.Warn("raise the limit of open files", "error", err)
	}
	if err == nil && files < filesNeeded {
		return badInput("open files: the daemon needs %d, RLIMIT_NOFILE allows %d: raise its "+
			"hard limit (ulimit -Hn)", filesNeeded, files)
	}
	if fromProcess {
		signal.Ignore(syscall.SIGHUP)
	}
	logFile, err := sharedLog(fromProcess)
	if err != nil {
		return err
	}
	here := node.New(options(log, shareProcessors()), log)
	if cfg.Metrics != "" {
		stop, err := serveMetrics(cfg.Metrics, here, log)
		if err != nil {
			return inputError{err}
		}
		defer stop()
	}
	log.Info("daemon starts", "version", version, "pid", os.Getpid(), "socket", endpoint.Addr.Name,
		"linger", cfg.Linger)
	err = daemon.New(daemon.Config{
		Version: version,
		Node:    here,
		Linger:  cfg.Linger,
		Log:     log,
		LogFile: logFile,
	}).Run(ctx, listener)
	log.Info("daemon ends", "pid", os.Getpid())
	return err
}

// giveWay has the process scheduled as batch work (sched(7)): when it is woken it does not push the
// thread aside that woke it, a training process in the middle of a step.
//
// A thread begins with the policy of the one that starts it, which may be one whose turn has not
// come. So passes are made over all threads until one finds nothing to change: then every thread
// that it listed had been batch work before the pass began, and so had whatever started others
// meanwhile.
func giveWay() error {
	for {
		changed, err := giveWayOnce()
		if !changed || err != nil {
			return err
		}
	}
}

// giveWayOnce makes one pass, and reports whether it changed the policy of a thread.
func giveWayOnce() (changed bool, err error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return changed, err
		}
		attr, err := unix.SchedGetAttr(id, 0)
		if err == nil && attr.Policy == unix.SCHED_NORMAL {
			attr.Policy = unix.SCHED_BATCH // its niceness stays
			err = unix.SchedSetAttr(id, attr, 0)
			changed = true
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return changed, err
		}
	}
	return changed, nil
}

// shareProcessors returns how many processors the process may use, and lets Go schedule for twice
// as many: a goroutine that decodes an image in C holds one of Go's for longer than Go's monitor
// likes to wait, and where all are held so, the monitor polls every 20 microseconds and takes them
// away, which costs a tenth of the throughput. What computes is bounded by who uses the number.
func shareProcessors() int {
	processors := runtime.GOMAXPROCS(0)
	if processors > 1 {
		runtime.GOMAXPROCS(2 * processors)
	}
	return processors
}

// sharedLog is the file that processes read the daemon's last words from: its standard error if the
// process that started it has made that for the purpose, a memfd or another file without a name.
func sharedLog(fromProcess bool) (*os.File, error) {
	var st unix.Stat_t
	if fromProcess && unix.Fstat(2, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG &&
		st.Nlink == 0 {
		return os.Stderr, nil
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	return f, nil
}

func newLogger(level string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // config has checked it
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l}))
}

// What clients of the metrics may take. A scraper needs one connection, and asks in less than a
// second; the answer of a large cluster takes some.
const (
	metricsConns           = 32
	metricsConnsPerAddress = 8
	metricsHeader          = 8 << 10
	metricsRead            = 5 * time.Second
	metricsWrite           = time.Minute
	metricsIdle            = 2 * time.Minute // more than the usual scrape interval
)

// serveMetrics serves Prometheus's text format; stop ends it.
func serveMetrics(address string, here *node.Node, log *slog.Logger) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics = %q: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics",
		prometheus.Handler(func(context.Context) []*stats.ClusterReport {
			return summaries(here.Reports())
		}))
	mux.Handle("GET /metrics/cluster",
		prometheus.Handler(func(ctx context.Context) []*stats.ClusterReport {
			all, _ := here.ClusterReports(ctx, "") // only a name can be wrong
			return all
		}))
	server := &http.Server{
		Handler: mux, MaxHeaderBytes: metricsHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: metricsRead, ReadTimeout: metricsRead, WriteTimeout: metricsWrite,
		IdleTimeout: metricsIdle,
	}
	// Nobody proves anything here, so all connections stay pending: their number is what is
	// bounded.
	door := admission.Listen(l,
		admission.Limits{Total: metricsConns, PerAddress: metricsConnsPerAddress})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(door); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics", "error", err)
		}
	}()
	log.Info("metrics are served", "address", l.Addr())
	return func() {
		server.Close()
		<-done
	}, nil
}

// hdmlpEnvironment is the part of the environment that is ours.
func hdmlpEnvironment() map[string]string {
	out := map[string]string{}
	for _, kv := range os.Environ() {
		if k, v, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "HDMLP_") {
			out[k] = v
		}
	}
	return out
}

// parseSettings makes arguments of key=value flags.
func parseSettings(set []string) (map[string]any, error) {
	out := map[string]any{}
	for _, kv := range set {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, badInput("--set %q: give it as key=value", kv)
		}
		out[k] = v
	}
	return out, nil
}
