// Package printable brings text that came from outside, such as names of files and of jobs, into a
// form in which it does nothing to a terminal or a log: it cannot pass for a line of its own, and
// it cannot change what is shown. It does no I/O.
//
// Name is for a name within a message. Text is for a whole message, as the last step before it
// leaves: there ends of lines are the message's own.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name returns the name as it is if all of it is printable, and else as strconv.Quote writes it.
func Name(name string) string {
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && n == 1 || !strconv.IsPrint(r) {
			return strconv.Quote(name)
		}
		i += n
	}
	return name
}

// Text returns a text, of several lines perhaps, in which what a terminal acts on is escaped.
func Text(text string) string {
	return Escape(text, func(r rune) string {
		quoted := strconv.QuoteRune(r)
		return quoted[1 : len(quoted)-1]
	})
}

// Escape replaces what is neither printable nor the end of a line, and bytes that are not UTF-8.
func Escape(text string, escape func(rune) string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(escape(r))
		}
		i += n
	}
	return b.String()
}
