package human

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
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

// Wrap breaks a text between words into lines of at most width characters, as Text returns it. A
// longer word gets a line of its own.
func Wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(Text(text)) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// JSON returns JSON with the same value and everything escaped that a terminal would act on, which
// occurs only in strings.
func JSON(text string) string {
	return Escape(text, func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// Escape escapes runes that are neither printable nor a line break, and bytes that are not UTF-8.
func Escape(text string, escape func(rune) string) string {
	if !strings.ContainsFunc(text, beyondASCII) {
		return text
	}
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

// beyondASCII reports whether a rune is none of ASCII's printable ones, tab or line break.
func beyondASCII(r rune) bool { return (r < ' ' || r > '~') && r != '\n' && r != '\t' }
