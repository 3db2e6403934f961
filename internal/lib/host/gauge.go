package host

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// MemoryGauge measures memory as often as several times per second: it looks for the process's
// control groups only now and then. It is not safe for concurrent use. The zero value is ready.
type MemoryGauge struct {
	root   string // "": "/"
	groups []group
	looked time.Time
}

const (
	// groupsTime is how long a MemoryGauge takes the control groups to be the same.
	groupsTime = 10 * time.Second
	// activeShare is the share of a group's active page cache that a MemoryGauge counts as
	// available. The kernel reclaims it before it kills, but files that are read again and again
	// are in it, and programs.
	activeShare = 0.5
)

// Measure measures the memory. Unlike Memory it counts half of a control group's active page cache
// as available, as the kernel does for the machine's: what is asked is not what is free for good,
// but how far the group is from its limit.
func (g *MemoryGauge) Measure() (MemoryInfo, error) {
	if g.root == "" {
		g.root = "/"
	}
	if g.looked.IsZero() || time.Since(g.looked) > groupsTime {
		g.groups, g.looked = groupsAt(g.root), time.Now()
	}
	return measure(g.root, g.groups, activeShare)
}

// Stalled returns the total time in which some task waited for memory (PSI): a task of the
// process's control group or, if that does not say, of the machine. ok is false if the kernel does
// not measure it.
func (g *MemoryGauge) Stalled() (total time.Duration, ok bool) {
	for _, group := range g.groups {
		if group.v2 {
			if total, ok = stalled(filepath.Join(group.dir, "memory.pressure")); ok {
				return total, true
			}
		}
	}
	return stalled(filepath.Join(g.root, "proc/pressure/memory"))
}

// stalled returns the total of the line "some" of a file of PSI.
func stalled(file string) (time.Duration, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "some ") {
			continue
		}
		_, total, found := strings.Cut(strings.TrimSpace(line), "total=")
		if n := parseNumber(total, -1); found && n >= 0 {
			return time.Duration(n) * time.Microsecond, true
		}
	}
	return 0, false
}
