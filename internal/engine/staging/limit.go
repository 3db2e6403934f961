package staging

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// LimitError reports a system limit that keeps a buffer from being created.
type LimitError struct {
	What  string // what was tried
	Need  int64  // bytes, or number of open files
	Limit int64  // bytes or files; 0: unknown
	Hint  string // which limit it is, and what to do
	Err   error  // the system's error
}

func (e *LimitError) Error() string { return fmt.Sprintf("%s: %v: %s", e.What, e.Err, e.Hint) }

// Unwrap returns the system's error.
func (e *LimitError) Unwrap() error { return e.Err }

// limited returns err as a *LimitError if a system limit caused it.
func limited(what string, size int64, err error) error {
	var limit unix.Rlimit
	e := &LimitError{What: what, Need: size, Err: err}
	switch {
	case errors.Is(err, unix.EMFILE):
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // 0: unknown
		e.Need, e.Limit = int64(limit.Cur)+1, int64(limit.Cur)
		e.Hint = fmt.Sprintf("all %d files that RLIMIT_NOFILE allows are open, and one more is "+
			"needed; raise it (ulimit -n) up to %d", limit.Cur, limit.Max)
	case errors.Is(err, unix.ENFILE):
		e.Need = 1
		e.Hint = "this machine has as many files open as fs.file-max allows, and one more is needed"
	case errors.Is(err, unix.EFBIG):
		_ = unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) // 0: unknown
		e.Limit = int64(min(limit.Cur, math.MaxInt64))
		e.Hint = fmt.Sprintf("%d bytes are needed, but RLIMIT_FSIZE limits files, including "+
			"shared memory, to %d bytes; raise it (ulimit -f) before the daemon starts, or reduce "+
			"staging_buffer or the batch size", size, limit.Cur)
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		e.Hint = fmt.Sprintf("%d bytes are needed; reduce staging_buffer or the batch size", size)
		if unix.Getrlimit(unix.RLIMIT_AS, &limit) == nil && limit.Cur != unix.RLIM_INFINITY {
			e.Limit = int64(limit.Cur)
			e.Hint = fmt.Sprintf("%d more bytes are needed, but RLIMIT_AS is %d; raise it (ulimit "+
				"-v), or reduce staging_buffer or the batch size", size,
				limit.Cur)
		}
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
	return e
}

// notMade converts an error of memfd_create into a *LimitError.
func notMade(what string, size int64, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		return &LimitError{
			What: what,
			Need: size,
			Err:  err,
			Hint: "batches are passed in shared memory from memfd_create; allow that system call " +
				"in the container's seccomp profile (it needs Linux 3.17 or later)",
		}
	}
	return limited(what, size, err)
}
