package job

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// limitMessage tells a process which of the system's limits it has come to.
func limitMessage(text string, need, limit int64) *protocol.ErrorMessage {
	return &protocol.ErrorMessage{
		Kind: protocol.KindLimit, Message: text, Details: map[string]any{"need": need, "limit": limit},
	}
}

// checkRoom refuses what the memory has no room for: its pages
// are taken as they are used, and who uses more than there is gets killed. advice says how less is needed.
func (n *Node) checkRoom(bytes int64, what, advice string) error {
	available := n.options.Machine.AvailableMemory
	if available == nil {
		return nil
	}
	limit, err := available()
	if err != nil {
		return fmt.Errorf("%s: how much memory there is: %w", what, err)
	}
	if bytes <= limit {
		return nil
	}
	return limitMessage(fmt.Sprintf("%s: %s needed, %s of memory are available; %s, or give the job more memory",
		what, size.Format(bytes), size.Format(limit), advice), bytes, limit)
}

// sparedFiles is how many descriptors a job may need beside those of its source:
// stores, staging buffers, connections and their watches.
const sparedFiles = 16

// checkFiles refuses a job whose reads would run into the limit of open files.
func checkFiles(threads int) error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil // then the reads say so
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	need := uint64(len(open) + threads + sparedFiles)
	if need <= files.Cur {
		return nil
	}
	return limitMessage(fmt.Sprintf("open files: %d needed (%d are open, source_threads = %d, and %d more), RLIMIT_NOFILE is %d; raise it (ulimit -n) up to %d before the daemon starts, or make source_threads smaller",
		need, len(open), threads, sparedFiles, files.Cur, files.Max), int64(need), int64(files.Cur))
}
