// Package host measures what this process may use of the machine: memory, disk space and open
// files. The limits of control groups (v1 and v2) count as well as the hardware.
//
// Nothing is cached; every call measures anew. All functions are safe for concurrent use. The
// contents of /proc and /sys are parsed by pure functions.
package host

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

// MemoryInfo describes memory, in bytes.
type MemoryInfo struct {
	Total     int64 // the most the process could ever use
	Available int64 // what it could allocate now without evicting anything

	// Group is the directory of the control group that determines Available; "" if the machine
	// does. Limit is the group's limit, and Used what it uses and cannot reclaim at once.
	Group       string
	Limit, Used int64
}

// Memory measures the memory: the least of what the kernel has available and what each control
// group of the process leaves. A group's inactive page cache counts as available.
func Memory() (MemoryInfo, error) { return memoryAt("/") }

func memoryAt(root string) (MemoryInfo, error) {
	return measure(root, groupsAt(root), 0)
}

// measure measures the memory of a machine with these control groups of the process. active is the
// share of a group's active page cache that counts as available.
func measure(root string, groups []group, active float64) (MemoryInfo, error) {
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
	for _, g := range groups {
		if limit, used, ok := g.memory(active); ok {
			m.Total = min(m.Total, limit)
			if left := max(limit-used, 0); left < m.Available {
				m.Available = left
				m.Group = g.dir
				m.Limit = limit
				m.Used = used
			}
		}
	}
	return m, nil
}

// sysinfo is what the kernel reports without /proc. It leaves out most of the page cache, which
// could be reclaimed as well.
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

// parseMeminfo parses /proc/meminfo. Kernels before 3.14 have no MemAvailable; free memory and
// caches take its place.
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

// DiskInfo describes a file system's space, in bytes.
type DiskInfo struct {
	Total int64
	Free  int64 // what this user may use
}

// Disk measures the file system that holds path, or would hold it: if path does not exist, that of
// its nearest existing parent.
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

// blocks returns n*size, or math.MaxInt64 if that is less.
func blocks(n uint64, size int64) int64 {
	if size <= 0 || n > uint64(math.MaxInt64/size) {
		return math.MaxInt64
	}
	return int64(n) * size
}

// FileLimit returns how many files the process may have open, and how far it may raise that limit
// itself.
func FileLimit() (soft, hard uint64, err error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return limit.Cur, limit.Max, nil
}

// RaiseFileLimit raises the limit of open files as far as the process may, and returns it.
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

// RaiseFileSizeLimit raises the limit of a file's size as far as the process may, and returns it in
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
