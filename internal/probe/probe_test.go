package probe

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"runtime"
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

// TestMachines looks at the machines in testdata, each a root directory.
func TestMachines(t *testing.T) {
	for name, want := range map[string]struct {
		memory MemoryInfo
		cpus   int // of 64
	}{
		"plain":     {MemoryInfo{Total: 32 * gib, Available: 20 * gib}, 64},        // no control groups
		"old":       {MemoryInfo{Total: 32 * gib, Available: 3 * gib}, 64},         // no MemAvailable
		"v2":        {MemoryInfo{Total: 8 * gib, Available: 6 * gib}, 3},           // own group: 8 GiB, 4 used, 2 of them inactive; 2.5 CPUs
		"v2-parent": {MemoryInfo{Total: 4 * gib, Available: 1 * gib}, 2},           // own group unlimited, its parent not
		"v2-high":   {MemoryInfo{Total: 2 * gib, Available: gib}, 64},              // memory.high below memory.max
		"v1":        {MemoryInfo{Total: 16 * gib, Available: 10*gib + 512*mib}, 8}, // slurm's nesting
		"docker-v1": {MemoryInfo{Total: 2 * gib, Available: 1 * gib}, 1},           // the mount shows the container's group only
		"full":      {MemoryInfo{Total: gib, Available: 0}, 1},                     // more used than the limit
		"unlimited": {MemoryInfo{Total: 32 * gib, Available: 20 * gib}, 64},        // v1's "no limit" number, quota -1
		"damaged":   {MemoryInfo{Total: 32 * gib, Available: 20 * gib}, 64},        // nonsense in the groups' files
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join("testdata", name)
			got, err := memoryAt(root)
			group, left := got.Group, got.Limit-got.Used
			got.Group, got.Limit, got.Used = "", 0, 0
			if group != "" && (max(left, 0) != got.Available || !strings.HasPrefix(group, root)) || group == "" && left != 0 {
				t.Errorf("group %q leaves %d, of %+v", group, left, got)
			}
			if err != nil || got != want.memory {
				t.Errorf("memory %+v, %v; want %+v", got, err, want.memory)
			}
			if n := cpusAt(root, 64); n != want.cpus {
				t.Errorf("%d CPUs, want %d", n, want.cpus)
			}
		})
	}
	if _, err := memoryAt("testdata/nowhere"); err == nil {
		t.Error("measured the memory of no machine")
	}
	if _, err := parseMeminfo("MemFree: 1 kB\n"); err == nil {
		t.Error("measured memory without a total")
	}
}

func TestThisMachine(t *testing.T) {
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
		t.Error("measured the disk of no path")
	}
	n, err := CPUs()
	if err != nil || n < 1 || n > runtime.NumCPU() {
		t.Errorf("%d CPUs, %v", n, err)
	}
	a, err := FilesystemID(dir)
	if err != nil || a.Type == "" {
		t.Errorf("file system %+v, %v", a, err)
	}
	proc, err := FilesystemID("/proc")
	if err != nil || proc.Device == a.Device || proc.Type != "0x00009fa0" {
		t.Errorf("file system %+v, %v", proc, err)
	}
	if _, err := FilesystemID(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestTypeNames(t *testing.T) {
	for magic, want := range map[uint32]string{
		0xef53: "ext4", 0x6969: "nfs", 0x65735546: "fuse", 0x01021994: "tmpfs", 0xff534d42: "cifs", 1: "0x00000001",
	} {
		if got := typeName(magic); got != want {
			t.Errorf("0x%x is %q, want %q", magic, got, want)
		}
	}
}

func TestRaiseFileLimit(t *testing.T) {
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

func TestBlocks(t *testing.T) {
	if got := blocks(3, 4096); got != 12288 {
		t.Error(got)
	}
	if got := blocks(math.MaxUint64, 4096); got != math.MaxInt64 {
		t.Error(got)
	}
}
