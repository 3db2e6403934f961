package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns a terminal of so many columns, and a function that returns what was written
// to it since the last call.
func openTerminal(t *testing.T, columns uint16) (terminal *os.File, written func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	size := &unix.Winsize{Row: 20, Col: columns}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	return terminal, func() string {
		_, _ = io.WriteString(terminal, "\x00") // the end of what was written
		var all []byte
		for buffer := make([]byte, 1); ; {
			if _, err := master.Read(buffer); err != nil {
				t.Fatal(err)
			}
			if buffer[0] == 0 {
				return string(all)
			}
			all = append(all, buffer[0])
		}
	}
}

func TestBarsAreDrawnAndRemoved(t *testing.T) {
	const removed = "\x1b[A\x1b[J"
	terminal, written := openTerminal(t, 60)
	compare := compareProgress{out: terminal}
	compare.update(30, 100)
	if got := written(); got != "comparing  [=======>--------------------]  30 of 100 samples\r\n" {
		t.Errorf("%q", got)
	}
	compare.update(100, 100)
	if got := written(); !strings.HasSuffix(got, removed+
		"comparing  [===========================]  100 of 100 samples\r\n") {
		t.Errorf("when all is compared: %q", got)
	}
	compare.close()
	if got := written(); got != "" {
		t.Errorf("the line of a comparison that has ended is not kept: %q", got)
	}

	bar := newSimulationBar(terminal, 4)
	if got := written(); got != "simulating  "+strings.Repeat("─", 34)+"  0 of 4 00:00\r\n" {
		t.Errorf("%q", got)
	}
	bar.done("naive")
	bar.line.draw()
	if got := written(); !strings.HasSuffix(got, removed+"simulating  "+strings.Repeat("━", 5)+
		strings.Repeat("─", 14)+"  1 of 4 00:00  naive is done\r\n") {
		t.Errorf("%q", got)
	}
	bar.close()
	if got := written(); !strings.HasSuffix(got, removed) {
		t.Errorf("the bar is not removed: %q", got)
	}

	measured := probeBar{out: terminal, time: time.Minute}
	measured.update("a name that is much longer than the terminal has columns beside a bar")
	if got := written(); len([]rune(got)) != 60+len("\r\n") || !strings.HasSuffix(got, "…\r\n") {
		t.Errorf("a long text: %q", got)
	}
	measured.close()
	measured.update("after the end")

	scan := scanProgress{out: terminal, start: time.Now()}
	scan.update(5)
	_ = written()
	scan.start = time.Now().Add(-2 * time.Second)
	scan.update(1000)
	if got := written(); got != "⠋ scanning: 1,000 files, 500 per second\r\n" &&
		got != "⠋ scanning: 1,000 files, 499 per second\r\n" {
		t.Errorf("%q", got)
	}
	scan.close()
	if got := written(); !strings.HasSuffix(got, removed) {
		t.Errorf("the spinner is not removed: %q", got)
	}
}

func TestNothingIsDrawnElsewhere(t *testing.T) {
	var out bytes.Buffer
	compare := compareProgress{out: &out}
	compare.update(1, 2)
	compare.update(2, 2)
	newSimulationBar(nil, 3).close()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

func TestClockHasHoursFromOneOn(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "00:00", 59*time.Minute + 59*time.Second: "59:59", time.Hour + 61*time.Second: "01:01:01",
	} {
		if got := clock(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
