package render

import (
	"io"
	"strings"

	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// Text writes the report for a terminal of this width.
func Text(r *analysis.Report, width int, out io.Writer) error {
	var b strings.Builder
	b.WriteString(title(r.Measured) + "\n\n")
	for _, s := range summary(r) {
		wrap(&b, s, "", width)
	}
	b.WriteString("\n")
	for _, f := range facts(r) {
		wrap(&b, f.Name+": "+f.Value, "  ", width)
	}
	for _, t := range tables(r) {
		b.WriteString("\n" + t.Title + "\n")
		table(&b, &t, width)
	}
	b.WriteString("\n")
	for _, n := range notes(r) {
		wrap(&b, n, "", width)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// longest is the largest width of a first column that stands first: longer ones stand last, and are
// wrapped.
const longest = 32

// table writes a table with aligned columns.
func table(b *strings.Builder, t *drawing.Table, width int) {
	rows := [][]string{t.Head}
	for _, r := range t.Rows {
		row := []string{r.Head}
		for _, c := range r.Cells {
			row = append(row, c.Value)
		}
		if r.Note != "" {
			row = append(row, r.Note)
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(t.Head))
	for _, row := range rows {
		for k, cell := range row {
			widths[k] = max(widths[k], len([]rune(cell)))
		}
	}
	last := widths[0] > longest
	for _, row := range rows {
		line := "  "
		if !last {
			line += row[0] + spaces(widths[0]-len([]rune(row[0])))
		}
		for k, cell := range row[1:] {
			line += spaces(widths[k+1]-len([]rune(cell))) + "  " + cell
		}
		if !last {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			continue
		}
		indent := spaces(len([]rune(line)) + 2)
		var text strings.Builder
		wrap(&text, row[0], indent, max(width, len(indent)+longest))
		b.WriteString(line + "  " + strings.TrimPrefix(text.String(), indent))
	}
}

func spaces(n int) string { return strings.Repeat(" ", max(n, 0)) }

// wrap writes a text in lines of at most width columns, of which those after the first one are
// indented further.
func wrap(b *strings.Builder, text, indent string, width int) {
	column := 0
	for _, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case column == 0:
			b.WriteString(indent)
			column = len(indent)
		case column+1+n > width:
			b.WriteString("\n" + indent + "  ")
			column = len(indent) + 2
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteString("\n")
}
