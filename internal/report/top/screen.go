// Package top shows the current state of running jobs, one screen at a time: their progress, the
// throughput of each tier, what ranks wait for, and how full caches are.
//
// A Screen is a pure function of snapshots. Live keeps one up to date in a terminal, and Print
// writes one after the other. Only Live uses the terminal library. The package does not connect to
// a daemon: the caller passes a function that returns reports.
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

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Screen is the content of one screen.
type Screen struct {
	Now    *Snapshot // nil: there is no report yet
	Before *Snapshot // rates are measured from it to Now; nil: there are no rates yet
	// Earlier is older than Before: the remaining time is measured from it, so that it does not
	// jump.
	Earlier *Snapshot
	Problem string // why there is no newer snapshot
	Width   int    // columns; 0: unlimited
	Height  int    // lines; 0: unlimited
	Colour  bool
	Ranks   bool   // show each rank of nodes that have several
	From    int    // first line shown after the title
	Keys    string // help on keys, for the title
}

// Styles and colours of the terminal's palette.
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

// Lines returns the lines of the screen: at most Height, none longer than Width.
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

// overflow returns the number of lines that do not fit on the screen.
func (s *Screen) overflow() int {
	if s.Height == 0 {
		return 0
	}
	return max(0, len(s.body())+1-s.Height)
}

// Text returns Lines, joined.
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

func (s *Screen) job(j *report.ClusterReport) []string {
	out := []string{s.style(bold, "job "+human.Name(j.Job))}
	nodes := ""
	if len(j.Nodes) > 1 {
		nodes = fmt.Sprintf(" on %d nodes", len(j.Nodes))
	}
	if len(j.Nodes) == 1 && j.Nodes[0].Assembling {
		return append(out,
			append(s.wrap("", human.Name(j.Dataset)), s.wrap(yellow, j.Sentence)...)...)
	}
	about := fmt.Sprintf(": %d samples, %s, %s, %s%s, batch %d",
		j.Samples, human.Format(j.Bytes), j.Policy, count(j.WorldSize, "rank"), nodes, j.GlobalBatch)
	dataset := human.Name(j.Dataset)
	// The end of a path is more informative than its beginning.
	if most := max(8, s.Width-len(about)); s.Width > 0 && ansi.StringWidth(dataset) > most {
		dataset = ansi.TruncateLeft(dataset, ansi.StringWidth(dataset)-most+1, "…")
	}
	out = append(out, dataset+about)
	out = append(out, s.progress(j), s.stall(j))
	if j.Limit != nil {
		out = append(out, j.Limit.Line(j.Remedies))
	}
	out = append(out, "")
	out = append(out, s.table(j)...)
	return append(out, s.foot(j)...)
}

const barWidth = 20

// progress returns the line with the job's progress and remaining time.
func (s *Screen) progress(j *report.ClusterReport) string {
	p, known := progressOf(s.Earlier, s.Now, j)
	if !known {
		return "no rank is connected"
	}
	whole := min(barWidth, int(p.done*barWidth))
	bar := "[" + s.style(green, strings.Repeat("=", whole)) + strings.Repeat(" ", barWidth-whole) +
		"]"
	text := fmt.Sprintf("%s %s %.1f %%", epochText(p, j.Planned), bar, 100*p.done)
	left := "left"
	if j.Planned == 0 {
		text, left = text+" of this epoch", "left in it"
		if p.step == 0 && p.epoch > 0 {
			return fmt.Sprintf("%s finished, epoch %d not begun", count(p.epoch, "epoch"), p.epoch)
		}
	}
	if p.left == 0 {
		return text + ", all batches taken"
	}
	if slices.ContainsFunc(j.Nodes, func(n report.NodeReport) bool { return n.Planning }) {
		text += ", still planning"
	}
	if p.speed == 0 {
		return text
	}
	return fmt.Sprintf("%s, %s %s, %s batches/s per rank", text, duration(p.left/p.speed), left,
		number(p.speed))
}

// epochText names the epoch that the job is in. Epochs count from 0, as everywhere in HDMLP.
func epochText(p progress, planned int) string {
	switch planned {
	case 0:
		return fmt.Sprintf("epoch %d", p.epoch)
	case 1:
		return "epoch 0, the only one"
	}
	return fmt.Sprintf("epoch %d of 0-%d", min(p.epoch, planned-1), planned-1)
}

// stall returns the line that says what ranks wait for.
func (s *Screen) stall(j *report.ClusterReport) string {
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

// severity returns the colour of a stall.
func severity(share float64) string {
	switch {
	case share > 0.1:
		return red
	case share > 0.01:
		return yellow
	}
	return ""
}

// causes returns the causes of stalls, the longest first.
func causes(stall map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(stall), func(a, b string) int {
		return cmp.Or(cmp.Compare(stall[b], stall[a]), cmp.Compare(a, b))
	})
}

// foot returns the lines after the table: totals, and problems of nodes.
func (s *Screen) foot(j *report.ClusterReport) (out []string) {
	held := []string{fmt.Sprintf("%s from the source, %.2f of the bound",
		human.Format(j.Total.Source.Bytes), j.BoundShare)}
	for _, c := range j.Classes {
		held = append(held, fmt.Sprintf("%s %s of %s", human.Name(c.Name), human.Format(c.Used),
			human.Format(c.Capacity)))
	}
	out = append(out, s.wrap("", strings.Join(held, "; "))...)
	for _, c := range j.Classes {
		if said := c.Returned.String(); said != "" {
			out = append(out, s.wrap(yellow, human.Name(c.Name)+" "+human.Text(said))...)
		}
		if said := c.Forms.String(); said != "" {
			out = append(out, s.wrap("", human.Name(c.Name)+" "+human.Text(said))...)
		}
	}
	for i := range j.Nodes {
		n := &j.Nodes[i]
		on := ""
		if len(j.Nodes) > 1 {
			on = fmt.Sprintf("node %d: ", n.Node)
		}
		if n.Waiting != nil && n.Waiting.Seconds > 1 {
			out = append(out, s.style(yellow,
				fmt.Sprintf("%swaiting %.0f s for sample %d: %s", on, n.Waiting.Seconds,
					n.Waiting.Sample, human.Name(n.Waiting.Path))))
		}
		for i := range n.Classes {
			c := &n.Classes[i]
			for _, said := range []string{c.DoesNotRespond(), c.DoesNotReturn()} {
				if said != "" {
					out = append(out, s.style(yellow, on+said))
				}
			}
		}
		for _, p := range n.Bypassed {
			out = append(out, s.style(yellow,
				fmt.Sprintf("%snode %d is bypassed: %s", on, p.Node,
					cmp.Or(p.Reason, "the source is faster"))))
		}
		if n.Unreadable > 0 {
			text := fmt.Sprintf("%s%s unreadable", on, count(n.Unreadable, "sample"))
			if len(n.Faults) > 0 {
				text += fmt.Sprintf(", the first is %d: %s", n.Faults[0].Sample,
					human.Text(n.Faults[0].Reason))
			}
			out = append(out, s.style(red, text))
		}
	}
	return out
}

// number formats a rate in few characters.
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

// duration formats a time in its two largest units.
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
