package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// asThrottle makes the test binary run as the command.
const asThrottle = "THROTTLE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asThrottle) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// mountable skips a test where no FUSE file system can be mounted.
func mountable(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting the throttled source directly needs root")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE on this machine: %v", err)
	}
	f.Close()
}

// folder creates a directory of files with the given sizes, in two classes.
func folder(t *testing.T, sizes []int) (dir string, content map[string][]byte) {
	t.Helper()
	dir = t.TempDir()
	rng := rand.NewChaCha8([32]byte{1})
	content = make(map[string][]byte)
	for i, size := range sizes {
		name := fmt.Sprintf("class%d/%04d.jpg", i%2, i)
		data := make([]byte, size)
		_, _ = rng.Read(data) // never fails
		content[name] = data
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, content
}

// running is a throttled source that runs as a process of its own.
type running struct {
	t      *testing.T
	dir    string
	socket string
	cmd    *exec.Cmd
}

func start(t *testing.T, source string, flags ...string) *running {
	t.Helper()
	r := &running{t: t, dir: t.TempDir(), socket: filepath.Join(t.TempDir(), "stats")}
	r.cmd = commandFor(source, r.dir, append(flags, "--stats-socket", r.socket)...)
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "mounted ") {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	t.Log(strings.TrimSpace(line))
	return r
}

func commandFor(source, dir string, flags ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0],
		append([]string{"--source", source, "--mount", dir}, flags...)...)
	cmd.Env = append(os.Environ(), asThrottle+"=1")
	return cmd
}

func (r *running) stop() {
	if r.cmd.ProcessState != nil {
		return
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("after SIGTERM: %v", err)
	}
	if isMounted(r.t, r.dir) {
		r.t.Errorf("%s is still mounted", r.dir)
	}
}

// ask sends one request and returns the answer.
func (r *running) ask(request string) snapshot {
	r.t.Helper()
	var s struct {
		snapshot
		Error string `json:"error"`
	}
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, request)
	if err := json.NewDecoder(conn).Decode(&s); err != nil {
		r.t.Fatal(err)
	}
	if s.Error != "" {
		r.t.Fatalf("%s: %s", request, s.Error)
	}
	return s.snapshot
}

func isMounted(t *testing.T, dir string) bool {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(mounts), " "+dir+" ")
}

// readAll reads all files with the given number of readers and returns how long it took.
func readAll(t *testing.T, dir string, content map[string][]byte, readers int) time.Duration {
	t.Helper()
	begin := time.Now()
	var group errgroup.Group
	group.SetLimit(readers)
	for name, want := range content {
		group.Go(func() error {
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("%s: other content, %d bytes", name, len(got))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}

func repeat(size, n int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

func sum(content map[string][]byte) (n int64) {
	for _, data := range content {
		n += int64(len(data))
	}
	return n
}

// TestBandwidthIsAnUpperLimit: no reader is ever faster than the bandwidth, for any size of files
// and any number of readers, and every byte is counted, twice if it is read twice. That the rate is
// reached as well is checked by TestBucketKeepsTheRate, in virtual time: here the reader may have
// to wait for a processor.
func TestBandwidthIsAnUpperLimit(t *testing.T) {
	mountable(t)
	for _, test := range []struct {
		name      string
		size, n   int
		bandwidth float64
		readers   int
	}{
		{"110 KB, one reader", 110_000, 120, 40e6, 1},
		{"110 KB, four readers", 110_000, 120, 40e6, 4},
		{"3 KB, four readers", 3_000, 1000, 5e6, 4},
		{"5 MB, two readers", 5_000_000, 4, 50e6, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			source, content := folder(t, repeat(test.size, test.n))
			r := start(t, source, "--bandwidth", fmt.Sprint(int64(test.bandwidth)))
			want := float64(sum(content)) / test.bandwidth
			for round := int64(1); round <= 2; round++ {
				took := readAll(t, r.dir, content, test.readers).Seconds()
				t.Logf("round %d took %.3f s, the bandwidth allows %.3f s", round, took, want)
				if took < 0.95*want {
					t.Errorf("round %d was faster than the bandwidth", round)
				}
				s := r.ask("counters")
				if s.Bytes != round*sum(content) || s.Opens != round*int64(len(content)) {
					t.Errorf("round %d: counted %d bytes and %d opens, read %d and %d", round,
						s.Bytes, s.Opens,
						round*sum(content), round*int64(len(content)))
				}
			}
		})
	}
}

// TestLatencyAppliesToOpens: an open takes at least its latency, opens of several readers overlap,
// and names and attributes have none.
func TestLatencyAppliesToOpens(t *testing.T) {
	mountable(t)
	source, content := folder(t, repeat(100, 100))
	// One reader takes 2 s, and 50 readers 40 ms: to take as long, they would have to wait 1.96 s for
	// a processor.
	const latency, many = 20 * time.Millisecond, 50
	r := start(t, source, "--latency", latency.String())
	took := map[int]time.Duration{}
	for _, readers := range []int{1, many} {
		want := latency * time.Duration(len(content)/readers)
		took[readers] = readAll(t, r.dir, content, readers)
		t.Logf("%d opens by %d readers took %v, the latency allows %v", len(content), readers,
			took[readers], want)
		if took[readers] < want {
			t.Error("faster than the latency")
		}
	}
	if took[many] >= took[1] {
		t.Errorf("opens do not overlap: %d readers took %v, one took %v", many, took[many], took[1])
	}
	before := r.ask("counters")
	files := 0
	err := filepath.WalkDir(r.dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
			_, err = d.Info()
		}
		return err
	})
	if err != nil || files != len(content) {
		t.Fatalf("walked over %d files, %v; want %d", files, err, len(content))
	}
	if after := r.ask("counters"); after.Opens != before.Opens || after.Bytes != before.Bytes {
		t.Errorf("walking changed the counters from %+v to %+v", before, after)
	}
}

func TestMountIsReadOnly(t *testing.T) {
	mountable(t)
	source, content := folder(t, []int{10})
	r := start(t, source)
	for name := range content {
		path := filepath.Join(r.dir, name)
		if err := os.WriteFile(path, nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("write: %v, want EROFS", err)
		}
		if err := os.Remove(path); !errors.Is(err, unix.EROFS) {
			t.Errorf("remove: %v, want EROFS", err)
		}
	}
	if _, err := os.ReadFile(filepath.Join(r.dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestFaultsAreInjected(t *testing.T) {
	mountable(t)
	source, content := folder(t, repeat(1000, 40))
	r := start(t, source, "--fail", "class0/*", "--fail-seed", "7")
	for name := range content {
		_, err := os.ReadFile(filepath.Join(r.dir, name))
		if broken := strings.HasPrefix(name, "class0/"); broken != errors.Is(err, unix.EIO) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.ask("set fail= fail-rate=0.5")
	failed := 0
	for name := range content {
		if _, err := os.ReadFile(filepath.Join(r.dir, name)); err != nil {
			failed++
		}
	}
	if failed == 0 || failed == len(content) {
		t.Errorf("%d of %d files failed with half of all reads failing", failed, len(content))
	}

	// A read that hangs ends when the pattern is reset.
	r.ask("set fail-rate=0 hang=0003.jpg")
	var done sync.WaitGroup
	done.Go(func() {
		if got, err := os.ReadFile(filepath.Join(r.dir, "class1/0003.jpg")); err != nil ||
			len(got) != 1000 {
			t.Errorf("after the hang: %d bytes, %v", len(got), err)
		}
	})
	waitFor(t, "the read to hang", func() bool { return r.ask("counters").Hung == 1 })
	r.ask("set hang=")
	done.Wait()
	readAll(t, r.dir, content, 4)
}

// TestEndsWithItsParent: the mount ends when the process that started it is killed, even while a
// read hangs.
func TestEndsWithItsParent(t *testing.T) {
	mountable(t)
	source, _ := folder(t, []int{10, 10})
	dir := t.TempDir()
	child := commandFor(source, dir, "--hang", "0001.jpg")
	shell := exec.Command("sh", append([]string{"-c", `"$@" & wait`, "sh"}, child.Args...)...)
	shell.Env = child.Env
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the mount", func() bool { return isMounted(t, dir) })
	var reader sync.WaitGroup
	reader.Go(func() {
		if _, err := os.ReadFile(filepath.Join(dir, "class1/0001.jpg")); err == nil {
			t.Error("a read that should hang returned")
		}
	})
	if err := shell.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = shell.Wait()
	waitFor(t, "the mount to go", func() bool { return !isMounted(t, dir) })
	reader.Wait()
}

func TestWrongCommandLineIsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "--source is missing"},
		{[]string{"--source", dir}, "--mount is missing"},
		{[]string{"--source", filepath.Join(dir, "x"), "--mount", dir}, "--source"},
		{[]string{"--source", dir, "--mount", dir, "--bandwidth", "fast"}, "--bandwidth"},
		{[]string{"--source", dir, "--mount", dir, "--fail-rate", "2"}, "fail-rate"},
		{[]string{"--source", dir, "--mount", dir, "--hang", "["}, "hang"},
		{[]string{"--source", dir, "--mount", dir, "more"}, "more"},
	} {
		cmd := exec.Command(os.Args[0], test.args...)
		cmd.Env = append(os.Environ(), asThrottle+"=1")
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), test.want) {
			t.Errorf("%q: status %d, %s", test.args, cmd.ProcessState.ExitCode(), out)
		}
	}
}

func TestControlRefusesInvalidRequests(t *testing.T) {
	src := newSource(t.TempDir(), settings{bandwidth: 7})
	for _, line := range []string{
		"", "get", "set", "set bandwidth", "set speed=1",
		"set bandwidth=8 fail-rate=3",
	} {
		if err := command(src, line); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
	if got := src.settings.Load().bandwidth; got != 7 {
		t.Errorf("a refused request changed the bandwidth to %d", got)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for %s", what)
		}
		<-tick.C
	}
}
