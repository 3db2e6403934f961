package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// TooManyFiles adds the limit that was reached to err, which is EMFILE or ENFILE.
func TooManyFiles(err error) error {
	if errors.Is(err, unix.ENFILE) {
		return fmt.Errorf("%w: this machine's limit on open files is reached; raise fs.file-max",
			err)
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return fmt.Errorf("%w: raise RLIMIT_NOFILE (ulimit -n)", err)
	}
	return fmt.Errorf("%w: RLIMIT_NOFILE is %d; raise it (ulimit -n) up to %d", err, limit.Cur,
		limit.Max)
}
