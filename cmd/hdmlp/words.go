package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// printJSON prints v as indented JSON. Names of files and jobs may contain characters that JSON
// allows but a terminal acts on: they are escaped, too.
func printJSON(out io.Writer, v any) error { return encodeJSON(out, v, "  ") }

// printJSONLine prints v as JSON on one line, with the same characters escaped.
func printJSONLine(out io.Writer, v any) error { return encodeJSON(out, v, "") }

func encodeJSON(out io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(out, human.JSON(b.String()))
	return err
}

// byteSize formats a size for people: three digits, in units of 1024.
func byteSize(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	unit := 0
	for ; n >= 1023.5 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	digits := 0
	if n != math.Trunc(n) {
		switch {
		case n < 9.995:
			digits = 2
		case n < 99.95:
			digits = 1
		}
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + " " + units[unit]
}

// thousands formats 1234567 as "1,234,567".
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func count(n int, noun string) string { return plural(n, noun, noun+"s") }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

func percent(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of)) }

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.2f s", s)
	}
	return d.Round(time.Second).String()
}

func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = human.Name(line)
	}
	return strings.Join(lines, "\n")
}
