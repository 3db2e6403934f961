package budget

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/failure"
)

// sparedFiles is how many descriptors a job may need besides those of its source: stores, staging
// buffers, connections and their watches.
const sparedFiles = 16

// CheckFiles returns an error if a job with so many reading threads would exceed the limit of open
// files.
func CheckFiles(threads int) error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil // the reads then fail with the reason
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	need := uint64(len(open) + threads + sparedFiles)
	if need <= files.Cur {
		return nil
	}
	return failure.Over(fmt.Sprintf("open files: %d needed (%d are open, source_threads = %d, and "+
		"%d more), RLIMIT_NOFILE is %d; raise it (ulimit -n) up to %d before the daemon starts, "+
		"or make source_threads smaller",
		need, len(open), threads, sparedFiles, files.Cur, files.Max), int64(need), int64(files.Cur))
}
