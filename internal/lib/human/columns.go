package human

import (
	"strings"
	"unicode/utf8"
)

// Block is a part of a table, of lines without line ends.
type Block struct {
	Head string
	Rows []string
}

// Columns lays out a table in lines of at most width characters, if its columns are not wider. The
// first columns, the stub, name the rows and are left-aligned; the others are right-aligned, unless
// left is set. A column without a heading belongs to the one before, after the stub. Columns that
// do not fit go on in another block, after the stub again.
func Columns(head []string, rows [][]string, stub, width int, left bool) (blocks []Block) {
	widths := make([]int, len(head))
	for c := range head {
		for _, row := range rows {
			widths[c] = max(widths[c], utf8.RuneCountInString(row[c]))
		}
	}
	spans := func(c int) (end int) { // of the columns that belong together
		for end = c + 1; c >= stub && end < len(head) && head[end] == ""; end++ {
		}
		return end
	}
	used := func(from, to int) (sum int) {
		for _, w := range widths[from:to] {
			sum += 2 + w
		}
		return sum
	}
	for c := 0; c < len(head); c = spans(c) { // a heading is at least as wide as its columns
		widths[c] += max(0, utf8.RuneCountInString(head[c])+2-used(c, spans(c)))
	}
	one := func(c int) int { return c + 1 }
	line := func(row []string, from, to int, next func(c int) int) string {
		var b strings.Builder
		for c := 0; c < to; c = next(c) {
			space := strings.Repeat(" ", max(0, used(c, next(c))-2-utf8.RuneCountInString(row[c])))
			switch {
			case c < stub || left && c >= from:
				b.WriteString("  " + row[c] + space)
			case c >= from:
				b.WriteString("  " + space + row[c])
			}
		}
		return strings.TrimRight(b.String(), " ")
	}
	for from := stub; from < len(head); {
		to := spans(from)
		for to < len(head) && used(0, stub)+used(from, spans(to)) <= width {
			to = spans(to)
		}
		block := Block{Head: line(head, from, to, spans)}
		for _, row := range rows {
			block.Rows = append(block.Rows, line(row, from, to, one))
		}
		blocks, from = append(blocks, block), to
	}
	return blocks
}
