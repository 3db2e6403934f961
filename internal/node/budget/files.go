package budget

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/node/failure"
)

// sparedFiles is how many descriptors a job may need besides those of its source: stores, staging
// buffers, connections and their watches.
const sparedFiles = 16

// Files returns how many files a job may have open for reading at the same time. If that is less
// than threads (0: any number will do), it returns an error.
func Files(threads int) (most int, err error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return math.MaxInt32, nil // the reads then fail with the reason
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return math.MaxInt32, nil
	}
	need := uint64(len(open) + max(threads, 1) + sparedFiles)
	if need <= files.Cur {
		return int(min(files.Cur, math.MaxInt32)) - len(open) - sparedFiles, nil
	}
	return 0, failure.Over(fmt.Sprintf("open files: %d needed (%d are open, source_threads = "+
		"%d, and %d more), RLIMIT_NOFILE is %d; raise it (ulimit -n) up to %d before the daemon "+
		"starts, or make source_threads smaller",
		need, len(open), threads, sparedFiles, files.Cur, files.Max), int64(need), int64(files.Cur))
}
