package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/hdmlp/hdmlp/internal/report"
)

// row is a row of the table: a node, a rank, or the whole job.
type row struct {
	name    string
	ranks   string
	pace    pace
	staging report.Staging
	classes []report.Class
	note    string // shown instead of numbers, if not empty
	code    string // colour
}

// column is a column of the table.
type column struct {
	group string // heading over neighbouring columns of the same group
	head  string
	left  bool // left-aligned
	names bool // identifies the row; also shown in rows with a note
	drop  int  // on a narrow screen, the highest is dropped first; 0: never dropped
	cell  func(*row) string
	code  func(*row) string // a cell's colour; nil: the row's
}

func (s *Screen) table(j *report.ClusterReport) []string {
	rows := s.rows(j)
	columns := columnsOf(j, rows)
	widths := measure(columns, rows)
	for s.Width > 0 && total(widths) > s.Width {
		worst := -1
		for i, c := range columns {
			if c.drop > 0 && (worst < 0 || c.drop > columns[worst].drop) {
				worst = i
			}
		}
		if worst < 0 {
			break // Lines truncates them
		}
		columns = slices.Delete(columns, worst, worst+1)
		widths = slices.Delete(widths, worst, worst+1)
	}
	out := []string{s.style(dim, groups(columns, widths)), s.style(dim, heads(columns, widths))}
	for i := range rows {
		out = append(out, s.row(&rows[i], columns, widths))
	}
	return out
}

// rows returns a row per node, with Ranks also one per rank, and a row for all nodes if there are
// several.
func (s *Screen) rows(j *report.ClusterReport) (out []row) {
	all := row{name: "all", staging: j.Staging, classes: j.Classes, code: bold}
	names := nodeNames(j)
	for i := range j.Nodes {
		n := &j.Nodes[i]
		r := row{name: names[i], ranks: rankNumbers(n), staging: n.Staging, classes: n.Classes}
		switch {
		case n.Assembling:
			r.note, r.code = n.Sentence, yellow
		case !n.Responding:
			r.note, r.code = "no answer: "+n.Why, red
			if n.Age >= 0 {
				r.note += fmt.Sprintf("; last report %s ago", duration(n.Age))
			}
		default:
			r.pace = nodePace(s.Before, s.Now, j.Job, n)
			all.pace.add(r.pace)
		}
		out = append(out, r)
		if s.Ranks && r.note == "" && len(n.Ranks) > 1 {
			out = append(out, s.rankRows(j, n)...)
		}
	}
	if len(j.Nodes) > 1 {
		out = append(out, all)
	}
	return out
}

func (s *Screen) rankRows(j *report.ClusterReport, n *report.NodeReport) (out []row) {
	old := node(s.Before.job(j.Job), n.Node)
	for i := range n.Ranks {
		now := &n.Ranks[i]
		r := row{
			name:    "  rank " + strconv.Itoa(now.Rank),
			ranks:   fmt.Sprintf("%d:%d", now.Epoch+1, now.Step),
			staging: now.Staging,
		}
		if was := rank(old, now.Rank); was != nil && now.Open {
			r.pace = between(&was.Tally, &now.Tally, elapsed(s.Before, old, s.Now, n), 1)
		}
		if !now.Open {
			r.note, r.code = "has left", dim
		}
		out = append(out, r)
	}
	return out
}

// nodeNames returns the nodes' numbers and hosts, or addresses if hosts are not unique.
func nodeNames(j *report.ClusterReport) []string {
	hosts := map[string]int{}
	for _, n := range j.Nodes {
		hosts[n.Host]++
	}
	out := make([]string, len(j.Nodes))
	for i, n := range j.Nodes {
		name := n.Host
		if name == "" || hosts[name] > 1 {
			name = n.Address
		}
		out[i] = strings.TrimSpace(strconv.Itoa(n.Node) + " " + ansi.Truncate(name, 16, "…"))
	}
	return out
}

// rankNumbers formats a node's ranks: "0-7", or "0,4".
func rankNumbers(n *report.NodeReport) string {
	var parts []string
	for i := 0; i < len(n.Ranks); {
		k := i
		for k+1 < len(n.Ranks) && n.Ranks[k+1].Rank == n.Ranks[k].Rank+1 {
			k++
		}
		part := strconv.Itoa(n.Ranks[i].Rank)
		if k > i {
			part += "-" + strconv.Itoa(n.Ranks[k].Rank)
		}
		parts = append(parts, part)
		i = k + 1
	}
	return strings.Join(parts, ",")
}

func columnsOf(j *report.ClusterReport, rows []row) []column {
	out := []column{
		{head: "node", names: true, left: true, cell: func(r *row) string { return r.name }},
		{
			head:  "ranks",
			names: true,
			drop:  1,
			left:  true,
			cell:  func(r *row) string { return r.ranks },
		},
	}
	if slices.ContainsFunc(rows, func(r row) bool { return strings.HasPrefix(r.name, "  rank") }) {
		out[1].head = "ranks, at"
	}
	tiers := []string{"source"}
	if len(j.Nodes) > 1 {
		tiers = append(tiers, "peer")
	}
	for _, c := range j.Classes {
		tiers = append(tiers, c.Name)
	}
	if j.Total.Reads[report.Writeback].Bytes > 0 {
		tiers = append(tiers, report.Writeback)
	}
	for _, tier := range tiers {
		out = append(out, column{
			group: "MiB/s from",
			head:  tier,
			cell:  rate(func(p *pace) string { return number(p.bytes[tier] / (1 << 20)) }),
		})
	}
	out = append(out,
		column{
			head: "batch/s",
			drop: 2,
			cell: rate(func(p *pace) string { return number(p.batches) }),
		},
		column{
			head: "stall %",
			cell: rate(func(p *pace) string { return fmt.Sprintf("%.1f", 100*p.stalled()) }),
			code: func(r *row) string { return severity(r.pace.stalled()) },
		},
		column{head: "for", left: true, drop: 3, cell: rate(func(p *pace) string {
			if worst := causes(p.stall); len(worst) > 0 && p.stall[worst[0]] >= 0.0005 {
				return worst[0]
			}
			return ""
		})},
		column{
			group: "in use, %",
			head:  "staging",
			cell: func(r *row) string {
				return share(r.staging.Used+r.staging.Extra, r.staging.Size+r.staging.Extra)
			},
		})
	for _, class := range j.Classes {
		out = append(out, column{group: "in use, %", head: class.Name, cell: func(r *row) string {
			for _, c := range r.classes {
				if c.Name == class.Name {
					return share(c.Used, c.Capacity)
				}
			}
			return ""
		}})
	}
	return out
}

// rate returns a function that formats a part of a row's pace, or "-" if that is unknown.
func rate(of func(*pace) string) func(*row) string {
	return func(r *row) string {
		if !r.pace.known {
			return "-"
		}
		return of(&r.pace)
	}
}

func share(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*float64(part)/float64(whole))
}

const gap = 2 // between columns

// measure returns the widths of columns. Rows with a note count only for columns that identify
// rows.
func measure(columns []column, rows []row) []int {
	out := make([]int, len(columns))
	for i, c := range columns {
		out[i] = ansi.StringWidth(c.head)
		for k := range rows {
			if rows[k].note == "" || c.names {
				out[i] = max(out[i], ansi.StringWidth(c.cell(&rows[k])))
			}
		}
	}
	return out
}

func total(widths []int) int {
	sum := gap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

func pad(text string, width int, left bool) string {
	blank := strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
	if left {
		return text + blank
	}
	return blank + text
}

// groups returns the line above the heads.
func groups(columns []column, widths []int) string {
	var b strings.Builder
	for i := 0; i < len(columns); {
		k, width := i+1, widths[i]
		for k < len(columns) && columns[i].group != "" && columns[k].group == columns[i].group {
			width += gap + widths[k]
			k++
		}
		if i > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		name := columns[i].group
		if line := width - len(name) - 2; name != "" && line > 1 {
			name = strings.Repeat("-", line/2) + " " + name + " " + strings.Repeat("-", line-line/2)
		}
		b.WriteString(pad(ansi.Truncate(name, width, ""), width, false))
		i = k
	}
	return strings.TrimRight(b.String(), " ")
}

func heads(columns []column, widths []int) string {
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = pad(c.head, widths[i], c.left)
	}
	return strings.TrimRight(strings.Join(cells, strings.Repeat(" ", gap)), " ")
}

func (s *Screen) row(r *row, columns []column, widths []int) string {
	var cells []string
	for i, c := range columns {
		if r.note != "" && !c.names {
			return s.style(r.code, strings.Join(append(cells, r.note), strings.Repeat(" ", gap)))
		}
		text := pad(c.cell(r), widths[i], c.left)
		code := r.code
		if c.code != nil && c.code(r) != "" {
			code = c.code(r)
		}
		if r.note == "" {
			text = s.style(code, text)
		}
		cells = append(cells, text)
	}
	return strings.TrimRight(strings.Join(cells, strings.Repeat(" ", gap)), " ")
}
