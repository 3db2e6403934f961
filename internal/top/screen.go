// Package top shows running jobs as they are now, one screen at a time: how far they are, how fast
// samples come from where, what ranks wait for, how full caches are.
//
// A Screen is drawn from snapshots alone (pure); Live keeps one in a terminal up to date, Print
// writes one after the other. Only Live knows the terminal library. Nothing here asks a daemon: who
// calls says how.
package top

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/size"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// Screen is what is to be seen.
type Screen struct {
	Now    *Snapshot // nil: nothing was heard yet
	Before *Snapshot // what rates are measured from; nil: there are none yet
	// Earlier is what the time left is measured from: longer ago, so that it does not jump.
	Earlier *Snapshot
	Problem string // why there is nothing newer
	Width   int    // columns; 0: as many as it takes
	Height  int    // lines; 0: the same
	Colour  bool
	Ranks   bool   // show each of them, where a node has several
	From    int    // first line after the title's that is shown
	Keys    string // what keys do, for the title
}

// colours of the terminal's own palette.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	yellow = "33"
	green  = "32"
)

func (s *Screen) style(code, text string) string {
	if !s.Colour || text == "" || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Lines draws the screen. None is longer than Width, and there are at most Height.
func (s *Screen) Lines() []string {
	lines := s.body()
	shown := len(lines)
	if s.Height > 0 {
		shown = max(0, min(shown, s.Height-1))
	}
	from := max(0, min(s.From, len(lines)-shown))
	lines = lines[from : from+shown]
	out := append([]string{s.title()}, lines...)
	if s.Width > 0 {
		for i, l := range out {
			out[i] = ansi.Truncate(l, s.Width, "…")
		}
	}
	return out
}

// tooMany is how many lines there are for which there is no room.
func (s *Screen) tooMany() int {
	if s.Height == 0 {
		return 0
	}
	return max(0, len(s.body())+1-s.Height)
}

// Text is Lines as text.
func (s *Screen) Text() string { return strings.Join(s.Lines(), "\n") }

func (s *Screen) title() string {
	left := "hdmlp top"
	if s.Now != nil {
		left += "  " + s.Now.At.Format(time.TimeOnly)
	}
	if gap := s.Width - len(left) - len(s.Keys); s.Keys != "" && gap > 1 {
		return s.style(bold, left) + strings.Repeat(" ", gap) + s.style(dim, s.Keys)
	}
	return s.style(bold, left)
}

func (s *Screen) body() (out []string) {
	if s.Problem != "" {
		out = append(out, s.wrap(red, s.Problem)...)
	}
	if s.Now == nil {
		return out
	}
	if len(s.Now.Jobs) == 0 && s.Problem == "" {
		out = append(out, "no job is running")
	}
	for _, j := range s.Now.Jobs {
		out = append(out, "")
		out = append(out, s.job(j)...)
	}
	return out
}

// wrap breaks text into lines.
func (s *Screen) wrap(code, text string) (out []string) {
	if s.Width > 0 {
		text = ansi.Wrap(text, s.Width, "")
	}
	for line := range strings.SplitSeq(text, "\n") {
		out = append(out, s.style(code, line))
	}
	return out
}

func (s *Screen) job(j *stats.ClusterReport) []string {
	out := []string{s.style(bold, "job "+printable.Name(j.Job))}
	nodes := ""
	if len(j.Nodes) > 1 {
		nodes = fmt.Sprintf(" on %d nodes", len(j.Nodes))
	}
	if len(j.Nodes) == 1 && j.Nodes[0].Assembling {
		return append(out,
			append(s.wrap("", printable.Name(j.Dataset)), s.wrap(yellow, j.Sentence)...)...)
	}
	about := fmt.Sprintf(": %d samples, %s, %s, %s%s, batch %d",
		j.Samples, size.Format(j.Bytes), j.Policy, count(j.WorldSize, "rank"), nodes, j.GlobalBatch)
	dataset := printable.Name(j.Dataset)
	// its end tells more
	if most := max(8, s.Width-len(about)); s.Width > 0 && ansi.StringWidth(dataset) > most {
		dataset = ansi.TruncateLeft(dataset, ansi.StringWidth(dataset)-most+1, "…")
	}
	out = append(out, dataset+about)
	out = append(out, s.progress(j), s.stall(j), "")
	out = append(out, s.table(j)...)
	return append(out, s.foot(j)...)
}

const barWidth = 20

// progress is the line that says how far the job is, and how long it takes.
func (s *Screen) progress(j *stats.ClusterReport) string {
	p, known := progressOf(s.Earlier, s.Now, j)
	if !known {
		return "no rank is there"
	}
	whole := min(barWidth, int(p.done*barWidth))
	bar := "[" + s.style(green, strings.Repeat("=", whole)) + strings.Repeat(" ", barWidth-whole) +
		"]"
	where := fmt.Sprintf("epoch %d, no end", p.epoch+1)
	left := "to the epoch's end"
	if j.Planned > 0 {
		where, left = fmt.Sprintf("epoch %d of %d", min(p.epoch+1, j.Planned), j.Planned), "left"
	}
	text := fmt.Sprintf("%s %s %.1f %%", where, bar, 100*p.done)
	if p.left == 0 {
		return text + ", all batches are taken"
	}
	if slices.ContainsFunc(j.Nodes, func(n stats.NodeReport) bool { return n.Planning }) {
		text += ", still planning"
	}
	if p.speed == 0 {
		return text
	}
	return fmt.Sprintf("%s, %s %s, %s batches/s a rank", text, duration(p.left/p.speed), left,
		number(p.speed))
}

// stall is the line that says what ranks wait for.
func (s *Screen) stall(j *stats.ClusterReport) string {
	var p pace
	for i := range j.Nodes {
		p.add(nodePace(s.Before, s.Now, j.Job, &j.Nodes[i]))
	}
	soFar := fmt.Sprintf("utilisation so far %.1f %%", 100*j.Utilisation)
	if !p.known {
		return soFar
	}
	total := p.stalled()
	text := s.style(severity(total), fmt.Sprintf("stalled %.1f %% of the time", 100*total))
	var parts []string
	for _, cause := range causes(p.stall) {
		if p.stall[cause] >= 0.0005 {
			parts = append(parts, fmt.Sprintf("%s %.1f %%", cause, 100*p.stall[cause]))
		}
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text + "; " + soFar
}

// severity is the colour of a stall.
func severity(share float64) string {
	switch {
	case share > 0.1:
		return red
	case share > 0.01:
		return yellow
	}
	return ""
}

// causes are sorted, the worst first.
func causes(stall map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(stall), func(a, b string) int {
		return cmp.Or(cmp.Compare(stall[b], stall[a]), cmp.Compare(a, b))
	})
}

// foot is what is worth to be said beside the table.
func (s *Screen) foot(j *stats.ClusterReport) (out []string) {
	held := []string{fmt.Sprintf("%s left the source, %.2f of the bound",
		size.Format(j.Total.Source.Bytes), j.BoundShare)}
	for _, c := range j.Classes {
		held = append(held,
			fmt.Sprintf("%s %s of %s", c.Name, size.Format(c.Used), size.Format(c.Room)))
	}
	out = append(out, s.wrap("", strings.Join(held, "; "))...)
	for i := range j.Nodes {
		n := &j.Nodes[i]
		on := ""
		if len(j.Nodes) > 1 {
			on = fmt.Sprintf("node %d: ", n.Node)
		}
		if n.Waiting != nil && n.Waiting.Seconds > 1 {
			out = append(out, s.style(yellow,
				fmt.Sprintf("%ssample %d is read since %.0f s: %s", on, n.Waiting.Sample,
					n.Waiting.Seconds, printable.Name(n.Waiting.Path))))
		}
		for _, p := range n.PassedBy {
			out = append(out, s.style(yellow,
				fmt.Sprintf("%snode %d is passed by: %s", on, p.Node,
					cmp.Or(p.Reason, "the source is faster"))))
		}
		if n.Unreadable > 0 {
			text := fmt.Sprintf("%s%s unreadable", on, count(n.Unreadable, "sample"))
			if len(n.Faults) > 0 {
				text += fmt.Sprintf(", the first is %d: %s", n.Faults[0].Sample,
					printable.Text(n.Faults[0].Reason))
			}
			out = append(out, s.style(red, text))
		}
	}
	return out
}

// number writes a rate in few characters.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 1000:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// duration writes a time in its two largest units.
func duration(seconds float64) string {
	if seconds > 100*365*86400 || math.IsNaN(seconds) {
		return "more than 100 years"
	}
	s := int(math.Ceil(seconds))
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
}

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
