package host

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// group is a directory of a control group.
type group struct {
	dir string
	v2  bool
}

// controller is that of the control groups which are read.
const controller = "memory"

// groupsAt returns the control groups that limit the memory of the process: its own and all above
// it, of both versions. A group that cannot be read imposes no limit.
func groupsAt(root string) []group {
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	var groups []group
	for _, m := range parseMounts(string(mounts)) {
		path, ok := parseMembership(string(own), m.v2)
		if !ok {
			continue
		}
		// In a container the mount may show only a part of the hierarchy.
		below, err := filepath.Rel(m.root, path)
		if err != nil || below == ".." || strings.HasPrefix(below, "../") {
			below = "."
		}
		for {
			groups = append(groups, group{filepath.Join(root, m.at, below), m.v2})
			if below == "." {
				break
			}
			below = filepath.Dir(below)
		}
	}
	return groups
}

// mount is a mounted hierarchy of control groups.
type mount struct {
	root string // the group that is mounted
	at   string // the mount point
	v2   bool
}

// parseMounts returns the hierarchies in /proc/self/mountinfo that may have the controller.
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		v2 := kind[0] == "cgroup2"
		v1 := kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), controller)
		if v1 || v2 {
			mounts = append(mounts, mount{unescape(fields[3]), unescape(fields[4]), v2})
		}
	}
	return mounts
}

// unescape decodes mountinfo's octal escapes.
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}

// parseMembership returns the process's group in the controller's hierarchy, from
// /proc/self/cgroup.
func parseMembership(text string, v2 bool) (path string, ok bool) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		if v2 && parts[0] == "0" && parts[1] == "" ||
			!v2 && slices.Contains(strings.Split(parts[1], ","), controller) {
			return parts[2], true
		}
	}
	return "", false
}

// memory returns the group's limit in bytes, and what it uses and cannot reclaim at once: all but
// its inactive page cache, and this share of the active one. ok is false if it has no limit.
func (g group) memory(active float64) (limit, used int64, ok bool) {
	names := []string{
		"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file",
	}
	limit = math.MaxInt64
	if g.v2 {
		names = []string{"memory.max", "memory.current", "inactive_file", "active_file"}
		limit = g.number("memory.high") // above it, the kernel throttles the group
	}
	limit = min(limit, g.number(names[0]))
	used = g.number(names[1])
	if limit >= math.MaxInt64>>1 || used == math.MaxInt64 {
		return 0, 0, false
	}
	stat, _ := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case names[2]:
			used -= max(parseNumber(value, 0), 0)
		case names[3]:
			used -= int64(active * float64(max(parseNumber(value, 0), 0)))
		}
	}
	return limit, max(used, 0), true
}

// number returns the number in a file, or math.MaxInt64 if there is none.
func (g group) number(name string) int64 {
	text, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		return math.MaxInt64
	}
	return parseNumber(strings.TrimSpace(string(text)), math.MaxInt64)
}

func parseNumber(text string, otherwise int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}
