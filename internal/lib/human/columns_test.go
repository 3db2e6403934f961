package human

import (
	"strings"
	"testing"
)

// TestColumns: of a stub, columns that do not fit, and a heading over two columns.
func TestColumns(t *testing.T) {
	head := []string{"policy", "", "größe", "read", "", "x"}
	rows := [][]string{
		{"naive", "measured", "1", "20", "3 MB", "-"}, {"", "simulated", "22", "1", "30 MB", "-"},
	}
	for _, c := range []struct {
		width int
		left  bool
		want  string
	}{
		{
			80, false,
			"  policy             größe       read  x\n" +
				"  naive   measured       1  20   3 MB  -\n" +
				"          simulated     22   1  30 MB  -",
		},
		{
			33, false,
			"  policy             größe\n" +
				"  naive   measured       1\n" +
				"          simulated     22\n" +
				"  policy                  read  x\n" +
				"  naive   measured   20   3 MB  -\n" +
				"          simulated   1  30 MB  -",
		},
		{
			80, true,
			"  policy             größe  read       x\n" +
				"  naive   measured   1      20  3 MB   -\n" +
				"          simulated  22     1   30 MB  -",
		},
	} {
		var lines []string
		for _, b := range Columns(head, rows, 2, c.width, c.left) {
			lines = append(append(lines, b.Head), b.Rows...)
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%d, %v:\n%s\nwant\n%s", c.width, c.left, got, c.want)
		}
	}
}
