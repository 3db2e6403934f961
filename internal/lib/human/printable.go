package human

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name returns the name itself if all of it is printable, and otherwise its strconv.Quote form.
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

// Text returns a text of one or more lines with everything escaped that a terminal would act on.
func Text(text string) string {
	return Escape(text, func(r rune) string {
		quoted := strconv.QuoteRune(r)
		return quoted[1 : len(quoted)-1]
	})
}

// Escape escapes runes that are neither printable nor a line break, and bytes that are not UTF-8.
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
