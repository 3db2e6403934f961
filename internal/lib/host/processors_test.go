package host

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProcessorsAreBusy checks the whole way from files to Busy: idle processors, busy ones of
// which only some may be used, and a control group that has used its part.
func TestProcessorsAreBusy(t *testing.T) {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name              string
		idle, othersIdle  int // ticks of a second, of each processor
		stolen, throttled int
		file, group, root string
		want              bool
	}{
		{name: "idle", idle: 100, othersIdle: 100},
		{name: "partly busy", idle: 60},
		{name: "busy", idle: 5, othersIdle: 100, want: true},
		{name: "only others are busy", idle: 100},
		{name: "a busy host", idle: 60, stolen: 15, othersIdle: 100, want: true},
		{name: "a host that is hardly busy", idle: 60, stolen: 5, othersIdle: 100},
		{
			name: "throttled, v2", idle: 80, othersIdle: 80, root: "v2", throttled: 300_000,
			group: "sys/fs/cgroup/user.slice/job", file: "throttled_usec", want: true,
		},
		{
			name: "hardly throttled, v2", idle: 80, othersIdle: 80, root: "v2", throttled: 30_000,
			group: "sys/fs/cgroup/user.slice/job", file: "throttled_usec",
		},
	} {
		root := t.TempDir()
		if c.root != "" {
			if err := os.CopyFS(root, os.DirFS(filepath.Join("testdata", c.root))); err != nil {
				t.Fatal(err)
			}
		}
		write := func(seconds int) {
			t.Helper()
			var b strings.Builder
			b.WriteString("cpu  1 2 3 4 5 6 7 0 0 0\n")
			for cpu := range 1024 {
				idle := c.othersIdle
				if mine.IsSet(cpu) {
					idle = c.idle
				}
				fmt.Fprintf(&b, "cpu%d 10 0 20 %d %d 0 0 %d 0 0\n", cpu, seconds*idle, 7,
					seconds*c.stolen)
			}
			b.WriteString("intr 99 1 2\nctxt 1\n")
			files := map[string]string{"proc/stat": b.String()}
			if c.group != "" {
				files[c.group+"/cpu.stat"] = fmt.Sprintf("nr_periods 9\n%s %d\n", c.file,
					seconds*c.throttled)
			}
			for name, text := range files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		p := Processors{root: root}
		now := time.Now()
		for second := range 4 {
			write(second)
			p.measure(now.Add(time.Duration(second) * time.Second))
			if want := c.want && second > 0; p.busy.Load() != want {
				t.Errorf("%s, after %d s: busy is %v", c.name, second, !want)
			}
		}
		p.measure(now.Add(time.Minute))
		if p.busy.Load() {
			t.Errorf("%s: busy after a minute in which nobody asked", c.name)
		}
	}
}

// TestFewProcessorsMayBeHalfIdle: what waits for each other there leaves more of them idle.
func TestFewProcessorsMayBeHalfIdle(t *testing.T) {
	for _, c := range []struct {
		count int
		idle  float64 // processors
		want  bool
	}{
		{1, 0.4, true},
		{1, 0.6, false},
		{2, 0.4, true},
		{2, 0.6, false},
		{64, 6, true},
		{64, 7, false},
	} {
		last := processorTime{at: time.Now(), count: c.count}
		now := processorTime{
			at: last.at.Add(time.Second), count: c.count,
			idle: time.Duration(c.idle * float64(time.Second)),
		}
		if got := now.busySince(last); got != c.want {
			t.Errorf("%.1f of %d processors are idle: busy is %v", c.idle, c.count, got)
		}
	}
}

// TestLowPriorityGivesWay checks that processes of a low priority count as idle, but not for one
// that has a low priority itself.
func TestLowPriorityGivesWay(t *testing.T) {
	text := "cpu  1 2 3 4 5 6 7 0 0 0\ncpu0 10 300 20 50 7 0 0 0 0 0\ncpu1 1 1 1 1 1 0 0 0 0 0\n"
	first := func(cpu int) bool { return cpu == 0 }
	for yields, want := range map[bool]time.Duration{true: 357 * tick, false: 57 * tick} {
		if got := parseProcessors(text, first, yields); got.idle != want || got.count != 1 {
			t.Errorf("yields %v: %+v, want %v of 1 processor", yields, got, want)
		}
	}
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 7); err != nil {
		t.Fatal(err)
	}
	if !nice() {
		t.Error("of a low priority, but not nice")
	}
}

// TestThrottledOfVersion1 checks that v1 counts nanoseconds.
func TestThrottledOfVersion1(t *testing.T) {
	g := group{dir: t.TempDir()}
	if got := g.throttled(); got != 0 {
		t.Errorf("without a file: %v", got)
	}
	text := "nr_periods 4\nnr_throttled 2\nthrottled_time 2500000000\n"
	if err := os.WriteFile(filepath.Join(g.dir, "cpu.stat"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := g.throttled(); got != 2500*time.Millisecond {
		t.Errorf("%v, want 2.5 s", got)
	}
}

// TestProcessorsOfThisMachine checks that this machine can be measured at all.
func TestProcessorsOfThisMachine(t *testing.T) {
	var p Processors
	p.Busy()
	if p.last.count == 0 || p.last.idle <= 0 {
		t.Errorf("%+v", p.last)
	}
	if next := p.next.Load(); p.Busy() || p.next.Load() != next {
		t.Error("measured again at once, or busy without another measurement")
	}
}
