// Command throttle mounts a read-only view of a directory that is slow on purpose: with a bandwidth
// shared by all readers, a latency for every open of a regular file, and optional faults. It stands
// in for a shared file system in measurements and tests.
//
// It owns:
//
//   - The mount. Files are opened for direct I/O, so the page cache hides nothing: every byte that
//     a reader gets passed through this process and was counted. Names and attributes are neither
//     throttled nor counted, and the kernel may cache them for --attr-timeout.
//   - The counters: opens, reads and bytes, exact, served as JSON over a Unix socket outside the
//     mount (control.go).
//   - Its own priority. The server runs in the real-time class if it is permitted to; otherwise a
//     busy machine would make the source slower than configured, and measurements would depend on
//     the load.
//
// With --writable it stands in for a slow disk (writable.go).
//
// It exits and unmounts on SIGINT, on SIGTERM, and when the process that started it ends, however
// that ends. Without --writable it never writes to the directory.
//
// Concurrency: go-fuse calls the nodes from one goroutine per request; they share the bucket (a
// mutex), the settings (an atomic pointer to an immutable value), the sleeper and the counters
// (atomics).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processors is GOMAXPROCS of the server: the readers that may sleep at the same time at no cost
// (see sleeper), plus spareProcessors for the others.
const (
	processors      = 32
	spareProcessors = 8
)

type options struct {
	source, mount string
	stats         string
	attrTimeout   time.Duration
	normal        bool
	writable      bool
	settings      settings
}

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "throttle: %v\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "throttle: %v\n", err)
		os.Exit(1)
	}
}

// usageError reports a wrong command line.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// run mounts the source, prints one line to out when the mount can be used, and blocks until it is
// unmounted.
func run(ctx context.Context, args []string, out, errs io.Writer) error {
	opts, err := parse(args, errs)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(processors)
	priority := "normal"
	if !opts.normal {
		if priority, err = raisePriority(); err != nil {
			fmt.Fprintf(errs,
				"throttle: no real-time priority; figures depend on the load of the machine: %v\n",
				err)
		}
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := onParentEnd(cancel); err != nil {
		return fmt.Errorf("watch the parent process: %w", err)
	}

	src := newSource(opts.source, opts.settings)
	var m *mounted
	if opts.writable {
		m, err = mountDisk(src, opts.mount)
	} else {
		m, err = mount(src, opts.mount, opts.attrTimeout)
	}
	if err != nil {
		return err
	}
	defer m.close()
	if opts.stats != "" {
		c, err := listen(opts.stats, src, priority)
		if err != nil {
			return err
		}
		defer c.close()
	}
	fmt.Fprintf(out, "mounted %s on %s, priority %s\n", opts.source, opts.mount, priority)
	select {
	case <-ctx.Done():
	case <-m.gone:
	}
	return nil
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	var bandwidth string
	fs := flag.NewFlagSet("throttle", flag.ContinueOnError)
	fs.SetOutput(errs)
	fs.Usage = func() {
		fmt.Fprint(errs, "Usage: throttle --source DIR --mount DIR [flags]\n\n"+
			"Mount a read-only, throttled, counted view of a directory, until SIGTERM or the end "+
			"of the parent process.\n\nFlags:\n")
		fs.PrintDefaults()
		fmt.Fprint(errs, "\nEXIT STATUS\n  0  the source was unmounted\n  1  it could not be "+
			"mounted\n  2  the command line is wrong\n")
	}
	fs.StringVar(&o.source, "source", "", "`directory` to show")
	fs.StringVar(&o.mount, "mount", "", "empty `directory` to mount it on")
	fs.StringVar(&o.stats, "stats-socket", "",
		"`path` of a Unix socket that returns the counters and accepts changes")
	fs.StringVar(&bandwidth, "bandwidth", "0",
		"`bytes` per second over all readers, such as 40MB; 0: unlimited")
	fs.Float64Var(&o.settings.loss, "loss", 0,
		"share of the bandwidth that each reader above 4 costs all of them, 0 to 1")
	fs.DurationVar(&o.settings.latency, "latency", 0, "time that every open of a file takes")
	fs.Float64Var(&o.settings.failRate, "fail-rate", 0, "share of reads that fail with EIO, 0 to 1")
	fs.Uint64Var(&o.settings.failSeed, "fail-seed", 1, "seed of the random failures")
	fs.StringVar(&o.settings.fail, "fail", "",
		"`pattern` of files whose reads all fail with EIO, matched with the name or the path "+
			"below the source")
	fs.StringVar(&o.settings.failNames, "fail-names", "",
		"`pattern` of files whose lookup and status fail")
	fs.BoolVar(&o.settings.stale, "stale", false, "fail with ESTALE in the place of EIO")
	fs.StringVar(&o.settings.hang, "hang", "", "`pattern` of files whose reads never return")
	fs.StringVar(&o.settings.hangNames, "hang-names", "",
		"`pattern` of files and directories whose lookup and listing never return")
	fs.DurationVar(&o.attrTimeout, "attr-timeout", time.Minute,
		"how long the kernel may cache names and attributes")
	fs.BoolVar(&o.writable, "writable", false,
		"mount for writing as well: a slow disk, whose reads and writes share the bandwidth, "+
			"without latency and faults")
	fs.BoolVar(&o.normal, "normal-priority", false, "stay in the normal scheduling class")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, &usageError{err}
	}
	if fs.NArg() > 0 {
		return o, usagef("unexpected argument %q", fs.Arg(0))
	}
	var err error
	if o.settings.bandwidth, err = parseBytes(bandwidth); err != nil {
		return o, usagef("--bandwidth: %w", err)
	}
	if err := o.settings.validate(); err != nil {
		return o, &usageError{err}
	}
	for _, dir := range []struct{ flag, path string }{
		{"--source", o.source},
		{"--mount", o.mount},
	} {
		if dir.path == "" {
			return o, usagef("%s is missing", dir.flag)
		}
		st, err := os.Stat(dir.path)
		if err != nil {
			return o, usagef("%s: %w", dir.flag, err)
		}
		if !st.IsDir() {
			return o, usagef("%s: %s is not a directory", dir.flag, dir.path)
		}
	}
	return o, nil
}

// settings are the behavior of the source. A value is never modified, only replaced.
type settings struct {
	bandwidth int64   // bytes per second; 0: unlimited
	loss      float64 // share of bandwidth that each reader above lossless costs
	latency   time.Duration
	failRate  float64
	failSeed  uint64
	fail      string // pattern; empty: none
	failNames string // pattern; empty: none
	stale     bool   // fail with ESTALE in the place of EIO
	hang      string // pattern; empty: none
	hangNames string // pattern; empty: none
}

// errno returns the error of what fails.
func (s *settings) errno() syscall.Errno {
	if s.stale {
		return syscall.ESTALE
	}
	return syscall.EIO
}

func (s settings) validate() error {
	switch {
	case s.bandwidth < 0:
		return fmt.Errorf("bandwidth %d is negative", s.bandwidth)
	case !(s.loss >= 0 && s.loss <= 1):
		return fmt.Errorf("loss %v is not between 0 and 1", s.loss)
	case s.latency < 0:
		return fmt.Errorf("latency %v is negative", s.latency)
	case !(s.failRate >= 0 && s.failRate <= 1):
		return fmt.Errorf("fail-rate %v is not between 0 and 1", s.failRate)
	}
	for name, pattern := range map[string]string{
		"fail":       s.fail,
		"fail-names": s.failNames,
		"hang":       s.hang,
		"hang-names": s.hangNames,
	} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%s %q: %w", name, pattern, err)
		}
	}
	return nil
}
