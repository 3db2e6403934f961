package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"
)

// redrawTime is the time between two drawings of a live line.
const redrawTime = 150 * time.Millisecond

// liveLine is a line on a terminal that shows the progress of something. It is drawn again every
// redrawTime, until it is closed.
type liveLine struct {
	out   io.Writer
	text  func(columns int) string // called with mu held
	stop  chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex // guards the following, and what text uses
	drawn bool
}

// showLine draws a line at once. text returns it, at most about so many columns wide.
func showLine(out io.Writer, text func(columns int) string) *liveLine {
	l := &liveLine{out: out, text: text, stop: make(chan struct{})}
	l.draw()
	l.ended.Go(func() {
		tick := time.NewTicker(redrawTime)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.draw()
			case <-l.stop:
				return
			}
		}
	})
	return l
}

// update calls f, which changes what text uses.
func (l *liveLine) update(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// draw replaces the line. A terminal without a width shows none.
func (l *liveLine) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	columns := columnsOf(l.out)
	if columns == 0 {
		return
	}
	l.erase()
	_, _ = io.WriteString(l.out, ansi.Truncate(l.text(columns), columns, "…")+"\n")
	l.drawn = true
}

// erase removes the line: the cursor is below it. mu is held.
func (l *liveLine) erase() {
	if l.drawn {
		_, _ = io.WriteString(l.out, ansi.CursorUp(1)+ansi.EraseScreenBelow)
	}
	l.drawn = false
}

// close removes the line, or draws it once more and keeps it.
func (l *liveLine) close(keep bool) {
	close(l.stop)
	l.ended.Wait()
	if keep {
		l.draw()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
}

// columnsOf returns the width of a terminal; 0 if it is not known.
func columnsOf(out io.Writer) int {
	f, ok := fileOf(out).(*os.File)
	if !ok {
		return 0
	}
	window, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(window.Col)
}

// rule returns a bar of this width, or of what the texts beside it leave of the columns.
func rule(done, of int64, width, columns int, beside ...string) string {
	for _, text := range beside {
		columns -= ansi.StringWidth(text)
	}
	width = max(0, min(width, columns))
	filled := portion(done, of, width)
	return strings.Repeat("━", filled) + strings.Repeat("─", width-filled)
}

// portion returns how much of a width is done, rounded.
func portion(done, of int64, width int) int {
	return int((2*min(done, of)*int64(width) + of) / (2 * max(of, 1)))
}

// clock returns a time as minutes and seconds, and hours from one on.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s < 3600 {
		return fmt.Sprintf("%02d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
}
