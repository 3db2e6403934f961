package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

// TestMain runs the real program instead of the tests if HDMLP_DAEMON_TEST is set.
func TestMain(m *testing.M) {
	if os.Getenv("HDMLP_DAEMON_TEST") != "" {
		main()
	}
	if lie := os.Getenv("TEST_LIE"); lie != "" {
		os.Exit(lieTo(lie))
	}
	os.Exit(m.Run())
}

// program runs the real program, with its own socket and home directory.
type program struct {
	t   *testing.T
	env []string
}

func newProgram(t *testing.T) *program {
	home := t.TempDir()
	p := &program{t: t}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "HDMLP_") {
			p.env = append(p.env, kv)
		}
	}
	p.env = append(p.env, "HDMLP_DAEMON_TEST=1", "GORACE=atexit_sleep_ms=0", "HOME="+home,
		"XDG_CONFIG_HOME="+home,
		fmt.Sprintf("HDMLP_SOCKET=hdmlp-test-%d-%s", os.Getpid(), t.Name()))
	return p
}

func (p *program) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = p.env
	return cmd
}

// run runs a command to its end, and returns its exit status and output.
func (p *program) run(args ...string) (status int, stdout, stderr string) {
	p.t.Helper()
	var out, complaints bytes.Buffer
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), complaints.String()
}

// serving is a running `hdmlp serve`.
type serving struct {
	cmd *exec.Cmd
	log *logged
}

// logged collects the daemon's log, and signals each write.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (p *program) serve(until string, args ...string) *serving {
	p.t.Helper()
	s := &serving{
		p.command(append([]string{"serve"}, args...)...),
		&logged{more: make(chan struct{}, 1)},
	}
	s.cmd.Stderr = s.log
	if err := s.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	patience := time.NewTimer(20 * time.Second)
	defer patience.Stop()
	for !strings.Contains(s.log.String(), until) {
		select {
		case <-s.log.more:
		case <-patience.C:
			p.t.Fatalf("the daemon has not started: %s", s.log)
		}
	}
	return s
}

// status waits for the daemon's end, and returns its exit status.
func (s *serving) status() int {
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func TestOneDaemonServesUntilItIsStopped(t *testing.T) {
	p := newProgram(t)
	for _, args := range [][]string{{"stats"}, {"stop"}} {
		if status, _, complaint := p.run(args...); status != 1 ||
			!strings.Contains(complaint, "no daemon is running") {
			t.Errorf("%v without a daemon: %d, %s", args, status, complaint)
		}
	}
	s := p.serve("daemon starts")
	if status, _, complaint := p.run("serve"); status != 1 ||
		!strings.Contains(complaint, "a daemon is running already") ||
		!strings.Contains(complaint, "hdmlp stop") {
		t.Errorf("a second daemon: %d, %s", status, complaint)
	}
	if status, _, complaint := p.run("serve", "--from-process"); status != 0 || complaint != "" {
		t.Errorf("a second daemon, started by a process: %d, %s", status, complaint)
	}
	// The daemon may still count those that tried to start another one.
	testkit.Until(t, "stats tells of no connection", func() bool {
		status, out, _ := p.run("stats")
		return status == 0 && strings.Contains(out,
			fmt.Sprintf("pid %d, 0 connections, 0 jobs", s.cmd.Process.Pid))
	})
	status, out, _ := p.run("stats", "--json")
	var stats daemon.Stats
	if err := json.Unmarshal([]byte(out), &stats); status != 0 || err != nil ||
		stats.PID != s.cmd.Process.Pid || stats.Version == "" {
		t.Errorf("stats --json: %d, %s", status, out)
	}
	if status, out, complaint := p.run("stop"); status != 0 || out != "" || complaint != "" {
		t.Errorf("stop: %d, %s%s", status, out, complaint)
	}
	if status := s.status(); status != 0 || !strings.Contains(s.log.String(), "daemon ends") {
		t.Errorf("the daemon's own status: %d, %s", status, s.log)
	}
}

// TestStatsAndStopOfADaemonWithAJob opens a job: stats and metrics show it, and stop needs --force.
func TestStatsAndStopOfADaemonWithAJob(t *testing.T) {
	p := newProgram(t)
	data := t.TempDir()
	for i := range 10 {
		dir := filepath.Join(data, "cat")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.jpg", i)), []byte("sample"),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := p.serve("metrics are served", "--set", "metrics=127.0.0.1:0")
	address := regexp.MustCompile(`metrics are served" address=(\S+)`).FindStringSubmatch(
		s.log.String(),
	)
	if address == nil {
		t.Fatalf("no address in %s", s.log)
	}
	c := p.openJob(data)
	defer c.Close()
	if status, out, _ := p.run("stats"); status != 0 ||
		!strings.Contains(out, "job a job: "+data+", 10 samples") ||
		!strings.Contains(out, "No batch has been read yet") {
		t.Errorf("stats: %d, %s", status, out)
	}
	response, err := http.Get("http://" + address[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || !strings.Contains(string(metrics),
		`hdmlp_storage_class_capacity_bytes{class="memory",job="a job",node="0"}`) {
		t.Errorf("metrics: %s, %v", metrics, err)
	}
	if status, _, complaint := p.run("stop"); status != 2 ||
		!strings.Contains(complaint, "--force") {
		t.Errorf("stop while a job is open: %d, %s", status, complaint)
	}
	if status, _, complaint := p.run("stop", "--json"); status != 2 ||
		!strings.Contains(complaint, `"exit_status":2`) {
		t.Errorf("stop --json while a job is open: %d, %s", status, complaint)
	}
	if status, _, complaint := p.run("stop", "--force"); status != 0 {
		t.Errorf("stop --force: %d, %s", status, complaint)
	}
	// Before s.status waits for it: a process that has ended is a zombie until then.
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil || !strings.Contains(string(state), ") Z ") {
		t.Errorf("the process after stop: %s, %v", state, err)
	}
	if status := s.status(); status != 0 {
		t.Errorf("the daemon's own status: %d, %s", status, s.log)
	}
}

// openJob opens a job on a folder, as a training process would.
func (p *program) openJob(data string) net.Conn {
	p.t.Helper()
	endpoint, err := socket.Address(func(string) string {
		return strings.TrimPrefix(p.env[len(p.env)-1], "HDMLP_SOCKET=")
	})
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := net.DialUnix("unix", nil, endpoint.Addr)
	if err != nil {
		p.t.Fatal(err)
	}
	seed := uint64(1)
	frames, err := protocol.AppendJSON(nil, protocol.Hello,
		protocol.HelloMessage{Protocol: protocol.Version, Version: version})
	if err == nil {
		frames, err = protocol.AppendJSON(frames, protocol.Open, protocol.OpenMessage{
			Job: "a job", WorldSize: 1,
			Dataset: protocol.DatasetMessage{Kind: "folder", Path: data},
			Stream: protocol.StreamMessage{
				Seed:        &seed,
				Epochs:      1,
				GlobalBatch: 2,
				Shuffle:     "torch",
				Scheme:      "strided",
				Tail:        "pad",
			},
			Settings: protocol.Settings{Arguments: map[string]any{"memory": "1MB"}},
		})
	}
	if err == nil {
		_, err = c.Write(frames)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for err == nil {
		var header [8]byte
		if _, err = io.ReadFull(c, header[:]); err != nil {
			break
		}
		payload := make([]byte, binary.LittleEndian.Uint32(header[:]))
		_, err = io.ReadFull(c, payload)
		switch protocol.Type(header[4]) {
		case protocol.Opened:
			return c
		case protocol.Error:
			err = errors.New(string(payload))
		}
	}
	p.t.Fatal(err)
	return nil
}

func TestServeShutsDownInOrderOnSignals(t *testing.T) {
	p := newProgram(t)
	// A process inherits which signals are ignored, as SIGHUP is under nohup, but not which are
	// caught.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(caught)
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		s := p.serve("daemon starts")
		begin := time.Now()
		if err := s.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if status := s.status(); status != 0 || !strings.Contains(s.log.String(), "daemon ends") {
			t.Errorf("%v: status %d, %s", signal, status, s.log)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%v: it took %v", signal, took)
		}
	}
}

// TestServeReportsWrongInput with status 2, before it starts anything.
func TestServeReportsWrongInput(t *testing.T) {
	p := newProgram(t)
	for _, c := range []struct {
		args  []string
		words string
	}{
		{[]string{"serve", "--set", "linger=soon"}, "linger"},
		{[]string{"serve", "--set", "lnger=3s"}, `did you mean "linger"?`},
		{[]string{"serve", "--set", "linger"}, "key=value"},
		{[]string{"serve", "--set", "metrics=nowhere"}, "metrics"},
		{[]string{"serve", "--set", "memory=1GB"}, "a key of a job, not of the daemon"},
		{[]string{"config", "--set", "linger=2s"}, "a key of the daemon"},
		{[]string{"serve", "more"}, "no arguments"},
		{[]string{"stats", "--jason"}, "jason"},
		{[]string{"serv"}, "serv"},
	} {
		if status, out, complaint := p.run(c.args...); status != 2 || out != "" ||
			!strings.Contains(complaint, c.words) {
			t.Errorf("%v: status %d, %q, %q; want 2 and %q", c.args, status, out, complaint,
				c.words)
		}
	}
	if status, _, _ := p.run("stats"); status != 1 {
		t.Error("something was started")
	}
}

// TestServeNeedsEnoughDescriptors checks that the error names need and limit.
func TestServeNeedsEnoughDescriptors(t *testing.T) {
	p := newProgram(t)
	cmd := exec.Command("/bin/sh", "-c", "ulimit -n 40 && exec \"$0\" serve",
		"/proc/"+fmt.Sprint(os.Getpid())+"/exe")
	cmd.Env = p.env
	out, _ := cmd.CombinedOutput()
	if status := cmd.ProcessState.ExitCode(); status != 2 ||
		!strings.Contains(string(out), "needs 64, but RLIMIT_NOFILE allows 40") {
		t.Errorf("status %d, %s", status, out)
	}
}

// TestCommandsGiveUpOnASilentDaemon checks that commands do not wait forever for a stopped daemon,
// or for another program at the socket.
func TestCommandsGiveUpOnASilentDaemon(t *testing.T) {
	p := newProgram(t)
	s := p.serve("daemon starts")
	stopped := s.cmd.Process.Pid
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	silent := newProgram(t)
	address := filepath.Join(t.TempDir(), "socket")
	silent.env = append(silent.env, "HDMLP_SOCKET="+address)
	l, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	var commands sync.WaitGroup
	for _, args := range [][]string{
		{"stats"},
		{"stats", "--job", "x"},
		{"top", "--once"},
		{"stop"},
		{"stop", "--force"},
	} {
		for p, pid := range map[*program]int{p: stopped, silent: os.Getpid()} {
			commands.Go(func() {
				cmd := p.command(args...)
				var complaint bytes.Buffer
				cmd.Stderr = &complaint
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				patience := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
				defer patience.Stop()
				_ = cmd.Wait()
				socket := strings.TrimPrefix(p.env[len(p.env)-1], "HDMLP_SOCKET=")
				for _, words := range []string{
					socket, fmt.Sprintf("process is %d:", pid),
					fmt.Sprintf("kill -KILL %d", pid),
				} {
					if status := cmd.ProcessState.ExitCode(); status != 1 ||
						!strings.Contains(complaint.String(), words) {
						t.Errorf("%v: status %d, want 1; %q is not in %s", args, status, words,
							&complaint)
					}
				}
			})
		}
	}
	commands.Wait()
}
