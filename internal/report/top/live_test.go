package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/report"
)

// programVariable is set if the test binary runs as a program.
const programVariable = "HDMLP_TEST_TOP"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(asProgram())
	}
	goleak.VerifyTestMain(m)
}

// terminal is a pseudo-terminal, with what was written to it.
type terminal struct {
	t      *testing.T
	master *os.File
	tty    *os.File
	wrote  chan struct{} // has a token when there is more

	mu   sync.Mutex
	text bytes.Buffer
}

func newTerminal(t *testing.T, columns, lines uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, master: master, tty: tty, wrote: make(chan struct{}, 1)}
	x.resize(columns, lines)
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 1<<16)
		for {
			n, err := master.Read(b)
			x.mu.Lock()
			x.text.Write(b[:n])
			x.mu.Unlock()
			select {
			case x.wrote <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = tty.Close()
		<-read // ends when the last process has closed the terminal
		_ = master.Close()
	})
	return x
}

func (x *terminal) resize(columns, lines uint16) {
	x.t.Helper()
	if err := unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: lines, Col: columns}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// shows waits until text is written, and drops the output up to its end.
func (x *terminal) shows(text string) {
	x.t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for !x.showed(text) {
		select {
		case <-x.wrote:
		case <-limit.C:
			x.t.Fatalf("%q is not in what was shown, which ends with %q", text, x.end())
		}
	}
}

// showsWhole is like shows for text that may be on the screen already, or differ from it in a few
// places: it changes the size until the whole screen is redrawn with the text.
func (x *terminal) showsWhole(text string, columns, lines uint16) {
	x.t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	x.resize(columns, lines)
	for wider := uint16(1); !x.showed(text); {
		select {
		case <-x.wrote:
		case <-again.C:
			x.resize(columns+wider, lines)
			wider = 1 - wider
		case <-limit.C:
			x.t.Fatalf("%q is not in what was shown, which ends with %q", text, x.end())
		}
	}
}

// showed reports whether text was written, and drops the output up to its end.
func (x *terminal) showed(text string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := bytes.Index(x.text.Bytes(), []byte(text))
	if i >= 0 {
		x.text.Next(i + len(text))
	}
	return i >= 0
}

func (x *terminal) end() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.Bytes()[max(0, x.text.Len()-300):]
}

func (x *terminal) mode() unix.Termios {
	x.t.Helper()
	m, err := unix.IoctlGetTermios(int(x.tty.Fd()), unix.TCGETS)
	if err != nil {
		x.t.Fatal(err)
	}
	return *m
}

// asProgram runs instead of the tests in a process with its own terminal: it shows a running job,
// after a time without answers, until it gets SIGUSR1.
func asProgram() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	there := make(chan os.Signal, 1)
	signal.Notify(there, syscall.SIGUSR1)
	seconds := 60.0
	err := Live(ctx, os.Stdin,
		Options{
			Out: os.Stdout, Interval: 20 * time.Millisecond,
			Ask: func(context.Context) ([]*report.ClusterReport, error) {
				if seconds == 60 {
					select {
					case <-there:
					default:
						return nil, errors.New("no daemon yet")
					}
				}
				seconds++
				return []*report.ClusterReport{running(min(seconds, 100), 2)}, nil
			},
		})
	switch {
	case errors.Is(err, context.Canceled):
		return 130
	case err != nil:
		fmt.Println(err)
		return 1
	}
	return 0
}

// TestLiveUpdatesScreenAndRestoresTerminal runs in a real terminal, and presses all keys.
func TestLiveUpdatesScreenAndRestoresTerminal(t *testing.T) {
	for _, c := range []struct {
		name, key string
		status    int
	}{{"q", "q", 0}, {"ctrl-c", "\x03", 0}, {"esc", "\x1b", 0}, {"signal", "", 130}} {
		t.Run(c.name, func(t *testing.T) {
			x := newTerminal(t, 80, 24)
			before := x.mode()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), programVariable+"=1", "TERM=xterm-256color")
			cmd.Stdin = x.tty
			cmd.Stdout = x.tty
			cmd.Stderr = x.tty
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Setsid:    true,
				Setctty:   true,
				Pdeathsig: syscall.SIGKILL,
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			})
			x.shows("no daemon yet")
			if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			x.shows("1281167 samples")
			x.shows("MiB/s from")
			x.shows("rank 3")
			x.press("r") // hides them
			x.showsWhole("node     ranks  source", 80, 24)
			x.press("r")
			x.showsWhole("rank 3", 80, 24)
			x.showsWhole("/scratch/datasets/imagenet/train", 120, 40)
			x.press(strings.Repeat("j", 30)) // down to the end
			x.showsWhole("from the source", 80, 5)
			x.press("k")
			x.press(c.key)
			if c.key == "" {
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
			}
			x.shows("\x1b[?1049l") // the screen of before
			_ = cmd.Wait()
			if status := cmd.ProcessState.ExitCode(); status != c.status {
				t.Errorf("it ended with status %d, want %d", status, c.status)
			}
			if after := x.mode(); after != before {
				t.Errorf("the terminal's mode is %+v after, and was %+v before", after, before)
			}
		})
	}
}

// TestPrintWritesScreensUntilTheDaemonIsGone without escape sequences.
func TestPrintWritesScreensUntilTheDaemonIsGone(t *testing.T) {
	var out bytes.Buffer
	answers := 0
	o := Options{
		Out: &out, Interval: time.Millisecond,
		Ask: func(context.Context) ([]*report.ClusterReport, error) {
			if answers++; answers > 3 {
				return nil, fmt.Errorf("%w: it ended", ErrGone)
			}
			return []*report.ClusterReport{running(float64(answers), 1)}, nil
		},
	}
	if err := Print(t.Context(), o, false); err != nil {
		t.Error(err)
	}
	if text := out.String(); strings.Count(text, "hdmlp top") != 2 ||
		strings.Count(text, "rank 1") != 2 || strings.Contains(text, "\x1b") {
		t.Errorf("printed %q", text)
	}
	answers = 0
	out.Reset()
	if err := Print(t.Context(), o, true); err != nil || answers != 2 ||
		strings.Count(out.String(), "hdmlp top") != 1 {
		t.Errorf("once: %v, asked %d times, %q", err, answers, out.String())
	}
	answers = 3
	if err := Print(t.Context(), o, false); !errors.Is(err, ErrGone) {
		t.Errorf("without a daemon: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answers = -1 << 20
	if err := Print(ctx, o, false); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestRanksAreShownIfTheyFit unless the user chooses, and scrolling stops at the last line.
func TestRanksAreShownIfTheyFit(t *testing.T) {
	m := &model{
		history: history{after(71, running(71, 3)), after(72, running(72, 3))},
		width:   80,
		height:  30,
	}
	shown := func(want bool, when string) {
		t.Helper()
		if s := m.screen(); s.Ranks != want || strings.Contains(s.Text(), "rank 5") != want {
			t.Errorf("%s ranks are shown: %v\n%s", when, s.Ranks, s.Text())
		}
	}
	shown(true, "on a high screen")
	m.height = 15
	shown(false, "on a low screen")
	m.key("r")
	if s := m.screen(); !s.Ranks || s.overflow() == 0 {
		t.Errorf("after r: %+v", s)
	}
	for range 100 {
		m.key("down")
	}
	if s := m.screen(); m.from != s.overflow() ||
		!strings.Contains(s.Text(), "from the source") {
		t.Errorf("%d lines are too many, and %d scrolled", s.overflow(), m.from)
	}
	m.key("up")
	m.height = 30
	if m.key("up"); m.from != 0 {
		t.Errorf("on a high screen %d lines are scrolled", m.from)
	}
	m.key("r")
	shown(false, "hidden")
}
