package host

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// TestMemoryOfMachines measures the machines in testdata, each a root directory.
func TestMemoryOfMachines(t *testing.T) {
	for name, want := range map[string]MemoryInfo{
		"plain": {Total: 32 * gib, Available: 20 * gib}, // no control groups
		"old":   {Total: 32 * gib, Available: 3 * gib},  // no MemAvailable
		// own group: 8 GiB, 4 used, 2 of them inactive
		"v2": {Total: 8 * gib, Available: 6 * gib},
		// own group unlimited, its parent not
		"v2-parent": {Total: 4 * gib, Available: 1 * gib},
		"v2-high":   {Total: 2 * gib, Available: gib},               // memory.high below memory.max
		"v1":        {Total: 16 * gib, Available: 10*gib + 512*mib}, // nested groups, as from Slurm
		// the mount shows only the container's group
		"docker-v1": {Total: 2 * gib, Available: 1 * gib},
		"full":      {Total: gib, Available: 0}, // more used than the limit
		// the number that means "no limit" in v1
		"unlimited": {Total: 32 * gib, Available: 20 * gib},
		// invalid contents of the groups' files
		"damaged": {Total: 32 * gib, Available: 20 * gib},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join("testdata", name)
			got, err := memoryAt(root)
			group, left := got.Group, got.Limit-got.Used
			got.Group = ""
			got.Limit = 0
			got.Used = 0
			if group != "" && (max(left, 0) != got.Available || !strings.HasPrefix(group, root)) ||
				group == "" && left != 0 {
				t.Errorf("group %q leaves %d, of %+v", group, left, got)
			}
			if err != nil || got != want {
				t.Errorf("memory %+v, %v; want %+v", got, err, want)
			}
		})
	}
	if _, err := memoryAt("testdata/nowhere"); err == nil {
		t.Error("measured the memory of a machine that does not exist")
	}
	if _, err := parseMeminfo("MemFree: 1 kB\n"); err == nil {
		t.Error("measured memory without a total")
	}
}

func TestMemoryAndDiskOfThisMachine(t *testing.T) {
	m, err := Memory()
	if err != nil || m.Available <= 0 || m.Available > m.Total {
		t.Errorf("memory %+v, %v", m, err)
	}
	dir := t.TempDir()
	d, err := Disk(filepath.Join(dir, "not", "made", "yet"))
	if err != nil || d.Free > d.Total || d.Total == 0 {
		t.Errorf("disk %+v, %v", d, err)
	}
	if _, err := Disk("\x00"); err == nil {
		t.Error("measured the disk of an invalid path")
	}
}

func TestRaiseFileLimitRaisesToTheHardLimit(t *testing.T) {
	soft, hard, err := FileLimit()
	if err != nil || hard < 100 {
		t.Fatalf("%d, %d, %v", soft, hard, err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: soft, Max: hard}) })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100, Max: hard}); err != nil {
		t.Fatal(err)
	}
	if n, err := RaiseFileLimit(); err != nil || n != hard {
		t.Fatalf("raised to %d, %v; want %d", n, err, hard)
	}
	if soft, _, _ := FileLimit(); soft != hard {
		t.Fatalf("soft limit %d, want %d", soft, hard)
	}
}

func TestBlocksSaturate(t *testing.T) {
	if got := blocks(3, 4096); got != 12288 {
		t.Error(got)
	}
	if got := blocks(math.MaxUint64, 4096); got != math.MaxInt64 {
		t.Error(got)
	}
}
