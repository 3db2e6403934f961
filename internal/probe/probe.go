// Package probe finds out what this machine has for us: memory, disk and open files. It counts
// what the process may use, so limits of control groups (v1 and v2) count as well as the hardware.
//
// Nothing is cached; every call looks again. All functions are safe for
// concurrent use. What is read from /proc and /sys is parsed by pure functions.
package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MemoryInfo is memory in bytes.
type MemoryInfo struct {
	Total     int64 // what the process could ever have
	Available int64 // what it could take now without pushing anything out

	// Group is the directory of the control group that leaves less than the machine has available,
	// and than any other; "": none. Limit is what it may take, Used what it has taken that it could
	// not give up at once.
	Group       string
	Limit, Used int64
}

// Memory measures the memory: the smallest of what the kernel has available and
// what every control group that holds the process leaves. A group's page cache
// that is not in active use counts as available.
func Memory() (MemoryInfo, error) { return memoryAt("/") }

func memoryAt(root string) (MemoryInfo, error) {
	var m MemoryInfo
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	switch {
	case err == nil:
		m, err = parseMeminfo(string(text))
	case errors.Is(err, fs.ErrNotExist) && root == "/": // /proc is not mounted
		m, err = sysinfo()
	}
	if err != nil {
		return MemoryInfo{}, fmt.Errorf("measure memory: %w", err)
	}
	for _, g := range groupsAt(root, "memory") {
		if limit, used, ok := g.memory(); ok {
			m.Total = min(m.Total, limit)
			if left := max(limit-used, 0); left < m.Available {
				m.Available, m.Group, m.Limit, m.Used = left, g.dir, limit, used
			}
		}
	}
	return m, nil
}

// sysinfo is what the kernel tells without /proc. It knows nothing of most of the page cache, which
// could be taken as well.
func sysinfo() (MemoryInfo, error) {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return MemoryInfo{}, fmt.Errorf("sysinfo: %w", err)
	}
	unit := int64(max(s.Unit, 1))
	return MemoryInfo{
		Total:     blocks(s.Totalram, unit),
		Available: blocks(s.Freeram+s.Bufferram, unit),
	}, nil
}

// parseMeminfo reads /proc/meminfo. Kernels older than 3.14 have no
// MemAvailable; what is free, and caches, then stand for it.
func parseMeminfo(text string) (MemoryInfo, error) {
	values := map[string]int64{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64>>10 {
			continue
		}
		if len(fields) == 2 && fields[1] == "kB" {
			n <<= 10
		}
		values[name] = n
	}
	total, ok := values["MemTotal"]
	if !ok {
		return MemoryInfo{}, errors.New("meminfo has no MemTotal")
	}
	available, ok := values["MemAvailable"]
	if !ok {
		available = values["MemFree"] + values["Buffers"] + values["Cached"]
	}
	return MemoryInfo{Total: total, Available: min(available, total)}, nil
}

// DiskInfo is a file system's room in bytes.
type DiskInfo struct {
	Total int64
	Free  int64 // what this user may take
}

// Disk measures the file system that path lies on, or would lie on: of a path
// that does not exist, its nearest parent that does counts.
func Disk(path string) (DiskInfo, error) {
	for {
		var st unix.Statfs_t
		err := ignoringEINTR(func() error { return unix.Statfs(path, &st) })
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(path) != path {
			path = filepath.Dir(path)
			continue
		}
		if err != nil {
			return DiskInfo{}, fmt.Errorf("measure the disk of %s: %w", path, err)
		}
		return DiskInfo{Total: blocks(st.Blocks, st.Bsize), Free: blocks(st.Bavail, st.Bsize)}, nil
	}
}

// blocks is n*size, at most the largest number there is.
func blocks(n uint64, size int64) int64 {
	if size <= 0 || n > uint64(math.MaxInt64/size) {
		return math.MaxInt64
	}
	return int64(n) * size
}

// FileLimit is how many files the process may have open, and how far it may
// raise that itself.
func FileLimit() (soft, hard uint64, err error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return limit.Cur, limit.Max, nil
}

// RaiseFileLimit raises the number of files that may be open as far as it goes,
// and returns it.
func RaiseFileLimit() (uint64, error) {
	soft, hard, err := FileLimit()
	if err != nil || soft == hard {
		return soft, err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: hard, Max: hard}); err != nil {
		return soft, fmt.Errorf("raise the limit of open files from %d to %d: %w", soft, hard, err)
	}
	return hard, nil
}

// RaiseFileSizeLimit raises the length that a file may have as far as it goes, and returns it in
// bytes.
func RaiseFileSizeLimit() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of files' length: %w", err)
	}
	if limit.Cur == limit.Max {
		return limit.Cur, nil
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE,
		&unix.Rlimit{Cur: limit.Max, Max: limit.Max}); err != nil {
		return limit.Cur, fmt.Errorf("raise the limit of files' length from %d to %d: %w",
			limit.Cur, limit.Max, err)
	}
	return limit.Max, nil
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
