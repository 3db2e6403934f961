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

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/report/prometheus"
)

// newServeCommand returns the command that runs a daemon whose node has these options.
func newServeCommand(options func(log *slog.Logger, processors int) node.Options) *cobra.Command {
	var fromProcess bool
	var set []string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run this node's daemon",
		Long: `Run this node's daemon in the foreground. Training processes start a daemon by
themselves; run it by hand to keep caches warm between jobs for longer
(--set linger=12h), or to see its log.

EXIT STATUS
  0  the daemon was stopped, or ended after the linger time
  1  failure, such as a daemon that is running already
  2  wrong input (arguments, files or configuration); nothing was started`,
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
		"set a configuration key of the daemon (linger, metrics, log_level), as "+
			"`KEY=VALUE`; may be repeated")
	cmd.Flags().BoolVar(&fromProcess, "from-process", false,
		"started by a training process: exit without an error if a daemon is running already")
	return cmd
}

// filesNeeded is the smallest limit on open files with which a daemon starts. What a job needs is
// checked when it opens.
const filesNeeded = 64

// fileSizeNeeded is the smallest limit on file sizes, in bytes, with which a daemon starts. What a
// job needs is checked when it opens.
const fileSizeNeeded = 1 << 20

// checkFileSize raises the limit on file sizes as far as possible, and returns an error if it is
// still too small: it applies to shared memory, too.
func checkFileSize() error {
	limit, err := host.RaiseFileSizeLimit()
	if err == nil && limit < fileSizeNeeded {
		return badInput("file size: the daemon needs files and shared memory of %d bytes, but "+
			"RLIMIT_FSIZE allows %d; raise its hard limit (ulimit -Hf)", fileSizeNeeded, limit)
	}
	return nil
}

func runServe(ctx context.Context, arguments map[string]any, fromProcess bool,
	options func(*slog.Logger, int) node.Options,
) error {
	environment := hdmlpEnvironment()
	cfg, err := config.Resolve(config.Input{
		Arguments: arguments, Scope: config.Daemon,
		Environment: environment, File: config.DefaultFile(environment),
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
		return fmt.Errorf("%w at %s; see `hdmlp stats`, or end it with `hdmlp stop`", err,
			endpoint.Addr.Name)
	}
	if err != nil {
		return inputError{err}
	}
	defer listener.Close() // Run closes it as well
	log := newLogger(cfg.LogLevel)
	if !fromProcess { // which warns of its own
		warnOfConfig(cfg)
	}
	if err := scheduleAsBatch(); err != nil {
		log.Debug("cannot schedule the daemon as batch work", "error", err)
	}
	files, err := host.RaiseFileLimit()
	if err != nil {
		log.Warn("cannot raise the limit on open files", "error", err)
	}
	if err == nil && files < filesNeeded {
		return badInput("open files: the daemon needs %d, but RLIMIT_NOFILE allows %d; "+
			"raise its hard limit (ulimit -Hn)", filesNeeded, files)
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

// scheduleAsBatch sets the scheduling policy of all threads to SCHED_BATCH (sched(7)), so that a
// thread that wakes up does not preempt the one that woke it: a training process in the middle of a
// step.
//
// A thread inherits the policy of the thread that starts it, which may not have been changed yet.
// So passes are made over all threads until one finds nothing to change: then every listed thread
// had the policy before that pass began, and so had every thread that it started meanwhile.
func scheduleAsBatch() error {
	for {
		changed, err := batchPass()
		if !changed || err != nil {
			return err
		}
	}
}

// batchPass makes one pass, and reports whether it changed the policy of a thread.
func batchPass() (changed bool, err error) {
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
			attr.Policy = unix.SCHED_BATCH // the nice value stays
			err = unix.SchedSetAttr(id, attr, 0)
			changed = true
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return changed, err
		}
	}
	return changed, nil
}

// shareProcessors returns the number of CPUs that the process may use, and sets GOMAXPROCS to twice
// that. A goroutine that decodes an image in C occupies a P for longer than Go's monitor waits; if
// all are occupied, the monitor polls every 20 microseconds and retakes them, which costs a tenth
// of the throughput. With one P alone, reads that wait in the kernel follow one another: each keeps
// it until the monitor retakes it, and then waits for what computes. Callers use the returned
// number to bound what computes.
func shareProcessors() int {
	processors := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(2 * processors)
	return processors
}

// sharedLog returns the file from which processes read why the daemon died. It is the daemon's
// standard error if the process that started it provided a file for the purpose, a memfd or another
// file without a name.
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
	_ = l.UnmarshalText([]byte(level)) // config has validated it
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l}))
}

// Limits for clients of the metrics. A scraper needs one connection, and sends its request within a
// second; the answer of a large cluster takes several.
const (
	metricsConns           = 32
	metricsConnsPerAddress = 8
	metricsHeader          = 8 << 10
	metricsRead            = 5 * time.Second
	metricsWrite           = time.Minute
	metricsIdle            = 2 * time.Minute // more than the usual scrape interval
)

// serveMetrics serves metrics in Prometheus's text format until stop is called.
func serveMetrics(address string, here *node.Node, log *slog.Logger) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics = %q: cannot listen there: %w; choose another address",
			address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics",
		prometheus.Handler(func(context.Context) []*report.ClusterReport {
			return summaries(here.Reports())
		}))
	mux.Handle("GET /metrics/cluster",
		prometheus.Handler(func(ctx context.Context) []*report.ClusterReport {
			all, _ := here.ClusterReports(ctx, "") // without a name there is no error
			return all
		}))
	server := &http.Server{
		Handler: mux, MaxHeaderBytes: metricsHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: metricsRead, ReadTimeout: metricsRead, WriteTimeout: metricsWrite,
		IdleTimeout: metricsIdle,
	}
	// Connections are never authenticated here, so that all of them count as pending, and their
	// number is limited.
	door := auth.Listen(l,
		auth.Limits{Total: metricsConns, PerAddress: metricsConnsPerAddress})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(door); !errors.Is(err, http.ErrServerClosed) {
			log.Error("cannot serve metrics", "error", err)
		}
	}()
	log.Info("metrics are served", "address", l.Addr())
	return func() {
		server.Close()
		<-done
	}, nil
}

// hdmlpEnvironment returns the HDMLP_* variables of the environment.
func hdmlpEnvironment() map[string]string {
	out := map[string]string{}
	for _, kv := range os.Environ() {
		if k, v, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "HDMLP_") {
			out[k] = v
		}
	}
	return out
}

// parseSettings parses key=value flags into arguments.
func parseSettings(set []string) (map[string]any, error) {
	out := map[string]any{}
	for _, kv := range set {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, badInput("--set %q is not of the form key=value", kv)
		}
		out[k] = v
	}
	return out, nil
}
