package clustersim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/interleave/point"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// A script runs in a process of its own kind, a worker, because a leaked goroutine, a race or a
// deadlock ends the process, and because only a process with one processor repeats itself.

const (
	workerVariable = "HDMLP_SIMULATION_WORKER" // the worker's directory
	logVariable    = "HDMLP_SIMULATION_LOG"
	// hangs is the processor time after which a script counts as hanging. Real time is no measure:
	// the machine may be busy with other things.
	hangs   = 60 * time.Second
	stands  = 120     // seconds without any processor time after which it does as well
	scratch = 1 << 30 // bytes of memory at which a worker begins to collect garbage
	// ended begins what is said of a worker that ended.
	ended = "the process ended: "
)

// verdict is a worker's result for a script.
type verdict struct {
	Errors []string `json:"errors"`
	Events []string `json:"events"`
}

// TestWorker is a worker: it runs the scripts that come line by line, and answers with verdicts.
func TestWorker(t *testing.T) {
	if os.Getenv(workerVariable) == "" {
		t.Skip("it is run by TestSeeds")
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(scratch)
	log := slog.New(slog.DiscardHandler)
	if os.Getenv(logVariable) != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	answers := os.NewFile(3, "answers")
	scripts := bufio.NewScanner(os.Stdin)
	scripts.Buffer(nil, 1<<20)
	base := os.Getenv(workerVariable)
	for i := 0; scripts.Scan(); i++ {
		s, err := script.Parse(scripts.Text())
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(base, fmt.Sprint(i))
		v := verdict{}
		synctest.Test(t, func(t *testing.T) {
			reseed(s.Seed)
			point.Begin(s.Seed)
			out, err := Run(&s, dir, log)
			if err != nil {
				v.Errors = append(v.Errors, err.Error())
			}
			if out != nil {
				v.Errors = append(v.Errors, out.Errors...)
				for _, e := range out.Events {
					v.Events = append(v.Events, e.String())
				}
			}
			if left := others(); left != "" {
				v.Errors = append(v.Errors, "goroutines are left:\n"+left)
				answer(t, answers, v) // the bubble will not end
			}
		})
		answer(t, answers, v)
		_ = os.RemoveAll(dir)
		runtime.GC()
	}
}

func answer(t *testing.T, to io.Writer, v verdict) {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = to.Write(append(text, '\n'))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// others returns the stacks of the bubble's other goroutines.
func others() string {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	var left []string
	for i, stack := range strings.Split(string(all), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		own := strings.Contains(stack, "synctest.Run(") ||
			strings.Contains(stack, "testingSynctestTest(") // of the bubble itself
		if i > 0 && strings.Contains(head, "synctest bubble") && !own {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

// worker is a process that runs scripts.
type worker struct {
	command *exec.Cmd
	dir     string // where it keeps files; it may be killed before it can remove them
	scripts io.WriteCloser
	answers *bufio.Reader
	errors  *bytes.Buffer
}

func startWorker(t *testing.T, binary string) *worker {
	t.Helper()
	var err error
	w := &worker{
		command: exec.Command(binary, "-test.run=^TestWorker$", "-test.timeout=0"), dir: t.TempDir(),
	}
	w.command.Env = append(os.Environ(), workerVariable+"="+w.dir, "GOMAXPROCS=1",
		"GODEBUG=asyncpreemptoff=1", "GORACE=halt_on_error=1")
	w.errors = new(bytes.Buffer)
	w.command.Stderr, w.command.Stdout = w.errors, w.errors
	if os.Getenv(logVariable) != "" {
		w.command.Stderr = os.Stderr
	}
	if w.scripts, err = w.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.command.ExtraFiles = []*os.File{write}
	if err := w.command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	w.answers = bufio.NewReaderSize(read, 1<<20)
	return w
}

// run runs a script. alive reports whether the worker can run another one.
func (w *worker) run(s *script.Script) (v verdict, alive bool) {
	defer w.watch()()
	_, err := io.WriteString(w.scripts, s.String()+"\n")
	var line string
	if err == nil {
		line, err = w.answers.ReadString('\n')
	}
	if err == nil {
		err = json.Unmarshal([]byte(line), &v)
	}
	if err != nil {
		_ = w.command.Wait()
		text := w.errors.String()
		return verdict{Errors: []string{ended + text[:min(len(text), 20000)]}}, false
	}
	return v, len(v.Errors) == 0
}

// watch ends the worker with the stacks of its goroutines if it uses too much processor time, or
// for a long time none, before stop is called.
func (w *worker) watch() (stop func()) {
	stopped := make(chan struct{})
	began := w.used()
	go func() {
		last, idle := began, 0
		for {
			select {
			case <-time.After(time.Second):
				now := w.used()
				if idle++; now > last {
					last, idle = now, 0
				}
				if now-began > hangs || idle > stands {
					_ = w.command.Process.Signal(syscall.SIGQUIT)
					return
				}
			case <-stopped:
				return
			}
		}
	}()
	return func() { close(stopped) }
}

// used returns the processor time of the worker.
func (w *worker) used() time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.command.Process.Pid))
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * (time.Second / 100) // USER_HZ
}

// stop ends the worker, and removes its directory.
func (w *worker) stop() {
	_ = w.scripts.Close()
	_ = w.command.Process.Kill()
	_ = w.command.Wait()
	_ = os.RemoveAll(w.dir)
}
