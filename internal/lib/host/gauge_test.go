package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestGaugeMeasuresGroups checks that the gauge counts half of the active page cache as available,
// reads stalls, and notices that the group's limit has changed.
func TestGaugeMeasuresGroups(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/v2")); err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(root, "sys/fs/cgroup/user.slice/job")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(group, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := MemoryGauge{root: root}
	if m, err := g.Measure(); err != nil || m.Available != 6*gib+1 || m.Group != group {
		t.Errorf("%+v, %v", m, err)
	}
	if _, ok := g.Stalled(); ok {
		t.Error("the kernel measures no stalls, but they are there")
	}
	write("memory.stat", "inactive_file 0\nactive_file 2147483648\n")
	write("memory.max", "5368709120\n")
	if m, err := g.Measure(); err != nil || m.Available != 2*gib || m.Limit != 5*gib {
		t.Errorf("%+v, %v", m, err)
	}
	write("memory.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000\n"+
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n")
	if total, ok := g.Stalled(); !ok || total != 2500*time.Millisecond {
		t.Errorf("stalled for %v, %v", total, ok)
	}
	write("memory.pressure", "some avg10=x total=-1\n")
	if _, ok := g.Stalled(); ok {
		t.Error("read a damaged file")
	}
	if err := os.MkdirAll(filepath.Join(root, "proc/pressure"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/pressure/memory"),
		[]byte("some avg10=0.00 total=7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if total, ok := g.Stalled(); !ok || total != 7*time.Microsecond {
		t.Errorf("the machine stalled for %v, %v", total, ok)
	}
	if _, err := (&MemoryGauge{root: "testdata/nowhere"}).Measure(); err == nil {
		t.Error("measured a machine that does not exist")
	}
}

// TestGaugeMeasuresThisMachine checks that a measurement of the real machine makes sense.
func TestGaugeMeasuresThisMachine(t *testing.T) {
	var g MemoryGauge
	m, err := g.Measure()
	if err != nil || m.Total <= 0 || m.Available <= 0 || m.Available > m.Total {
		t.Errorf("%+v, %v", m, err)
	}
}
