package instrument

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheHookIsFirstWherePythonLooks(t *testing.T) {
	for _, test := range []struct{ before, want []string }{
		{nil, []string{"HDMLP_SOCKET=hook", "PYTHONPATH=/hook"}},
		{
			[]string{"A=1", "PYTHONPATH="},
			[]string{"HDMLP_SOCKET=hook", "A=1", "PYTHONPATH=/hook"},
		},
		{
			[]string{"HDMLP_SOCKET=mine", "PYTHONPATH=/a:/b", "B=2"},
			[]string{"HDMLP_SOCKET=mine", "B=2", "PYTHONPATH=/hook:/a:/b"},
		},
	} {
		if got := environment(test.before, "/hook"); !slices.Equal(got, test.want) {
			t.Errorf("%q becomes %q, want %q", test.before, got, test.want)
		}
	}
}

// run runs a Python program, and returns what it printed.
func runPython(t *testing.T, ctx context.Context, program string) (*Record, Exit, string, error) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var out bytes.Buffer
	r, exit, err := Run(ctx, Options{
		Command: []string{python, "-c", program}, Stdin: strings.NewReader("the input"), Stdout: &out,
		Stderr: &out, AsIs: time.Second, Training: time.Second, Preparation: time.Second,
		Progress: func(string) {},
	})
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	return r, exit, out.String(), err
}

// TestAProgramIsRunAsItIs: with its input, output and exit status, and a sitecustomize of the user.
func TestAProgramIsRunAsItIs(t *testing.T) {
	own := t.TempDir()
	code := "import builtins\nbuiltins.mine = 'my own'\n"
	if err := os.WriteFile(filepath.Join(own, "sitecustomize.py"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", own)
	r, exit, out, err := runPython(t, t.Context(),
		"import sys, sitecustomize; print(sys.stdin.read(), mine, sitecustomize.__file__); sys.exit(3)")
	if err != nil {
		t.Fatal(err)
	}
	want := "the input my own " + filepath.Join(own, "sitecustomize.py") + "\n"
	if out != want || exit != (Exit{Status: 3}) {
		t.Errorf("%q, %+v, want %q", out, exit, want)
	}
	if r.Pythons != 1 || len(r.Ranks) != 0 {
		t.Errorf("%+v", r)
	}
}

// TestNothingIsLeftRunning: whatever a program has started, and whether or not it has ended.
func TestNothingIsLeftRunning(t *testing.T) {
	const leave = `
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    time.sleep(1000)
`
	if _, exit, out, err := runPython(t, t.Context(), leave); err != nil || exit.Status != 0 {
		t.Errorf("%+v, %v\n%s", exit, err, out)
	}
	if left := descendants(); len(left) > 0 {
		t.Errorf("running: %v", left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	go func() { // once it runs
		_, _ = in.Read(make([]byte, 1))
		cancel()
	}()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	_, _, err = Run(ctx, Options{
		Command: []string{python, "-c", leave + "print('runs', flush=True); time.sleep(1000)"},
		Stdout:  out, Stderr: io.Discard, Progress: func(string) {},
	})
	if err == nil {
		t.Error("a cancelled run has no error")
	}
	if left := descendants(); len(left) > 0 {
		t.Errorf("running: %v", left)
	}
}

// TestARankThatSendsNothingIsNamedOnce, and again only after it has sent something.
func TestARankThatSendsNothingIsNamedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		var said []string
		r := &run{ended: make(chan struct{}), options: Options{
			Progress: func(what string) { said = append(said, what) },
		}}
		var ends sync.WaitGroup
		ends.Go(func() { r.read(here) })
		ends.Go(func() { r.await(t.Context(), nil) })
		after := func(d time.Duration, line string, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if !slices.Equal(said, want) {
				t.Errorf("said %q, want %q", said, want)
			}
			said = nil
			if _, err := io.WriteString(there, line+"\n"); err != nil {
				t.Error(err)
			}
		}
		const silent = `rank 0, process 7, has sent nothing for a minute: "the job as it is: it" ` +
			`takes long, or the script hangs there; py-spy dump --pid 7 shows where`
		after(0, `{"event": "python"}`)
		after(10*quiet, `{"event": "loader", "pid": 7, "ranks": 1, "text": "it"}`)
		after(quiet-time.Second, `{"event": "as_is", "iterations": []}`, "the job as it is: it")
		after(quiet-time.Second, `{"event": "as_is", "iterations": []}`)
		after(quiet+quiet/4, `{"event": "as_is", "iterations": []}`, silent)
		after(10*quiet, `{"event": "end"}`, silent)
		there.Close()
		ends.Wait()
	})
}

// TestAValidationSaysOnlyWhatHangs: it was announced, and its loader is not the one that the script
// has made.
func TestAValidationSaysOnlyWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		var said []string
		r := &run{ended: make(chan struct{}), options: Options{
			Validate: true, Progress: func(what string) { said = append(said, what) },
		}}
		var ends sync.WaitGroup
		ends.Go(func() { r.read(here) })
		ends.Go(func() { r.await(t.Context(), nil) })
		_, err := io.WriteString(there, `{"event": "python"}
{"event": "loader", "pid": 7, "ranks": 1, "text": "torch's"}
`)
		if err != nil {
			t.Error(err)
		}
		time.Sleep(10 * quiet)
		synctest.Wait()
		want := `rank 0, process 7, has sent nothing for a minute: "the job with hdmlp's loader" ` +
			`takes long, or the script hangs there; py-spy dump --pid 7 shows where`
		if !slices.Equal(said, []string{want}) {
			t.Errorf("said %q, want %q", said, want)
		}
		if _, err := io.WriteString(there, `{"event": "end"}`+"\n"); err != nil {
			t.Error(err)
		}
		there.Close()
		ends.Wait()
	})
}

func TestACommandThatCannotBeRunIsAnError(t *testing.T) {
	_, _, err := Run(t.Context(), Options{
		Command: []string{filepath.Join(t.TempDir(), "none")}, Progress: func(string) {},
	})
	if err == nil {
		t.Error("it ran")
	}
}

// TestDirectoriesOfKilledRunsAreRemoved, and those of others that still run are not.
func TestDirectoriesOfKilledRunsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, name := range []string{"killed", "running"} {
		own := filepath.Join(dir, prefix+name)
		if err := os.Mkdir(own, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := listen(own)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if name == "killed" {
			l.Close()
		}
	}
	sweep()
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if want := filepath.Join(dir, prefix+"running"); !slices.Equal(left, []string{want}) {
		t.Errorf("left: %q, want %q", left, want)
	}
}

// TestADirectoryOfARunThatBeginsStays: other commands sweep while its socket is made.
func TestADirectoryOfARunThatBeginsStays(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for !closed(done) {
				sweep()
			}
		})
	}
	defer others.Wait()
	defer close(done)
	for number := range 500 {
		dir, err := os.MkdirTemp("", prefix)
		if err != nil {
			t.Fatal(err)
		}
		l, err := listen(dir)
		if err != nil {
			t.Fatalf("run %d: %v", number, err)
		}
		sweep()
		if _, err := os.Stat(socket(dir)); err != nil {
			t.Fatalf("run %d: %v", number, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
