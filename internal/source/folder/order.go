package folder

import (
	"cmp"
	"strings"
	"unicode/utf8"
)

// compare orders file names and paths as Python's sorted does: by code points, where a byte that is
// not part of valid UTF-8 counts as the code point 0xDC00 + byte (os.fsdecode, "surrogateescape").
// For valid UTF-8 that is the order of the bytes.
func compare(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	for i > 0 && a[i-1] >= utf8.RuneSelf { // back to the start of a code point
		i--
	}
	a, b = a[i:], b[i:]
	for len(a) > 0 && len(b) > 0 {
		ra, na := codePoint(a)
		rb, nb := codePoint(b)
		if ra != rb {
			return cmp.Compare(ra, rb)
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

// codePoint returns the first code point of s as Python decodes it.
func codePoint(s string) (rune, int) {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return 0xDC00 + rune(s[0]), 1
	}
	return r, n
}

// lower returns s in lower case like Python's str.lower, closely enough for file name extensions.
func lower(s string) string {
	// U+0130 is the one letter whose lower case is two code points.
	return strings.ToLower(strings.ReplaceAll(s, "\u0130", "i\u0307"))
}

// matches reports whether name ends with one of extensions, which are in lower
// case.
func matches(name string, extensions []string) bool {
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			name = lower(name)
			break
		}
	}
	for _, e := range extensions {
		if len(name) >= len(e) && equalLower(name[len(name)-len(e):], e) {
			return true
		}
	}
	return false
}

// equalLower reports whether s, with its ASCII letters in lower case, is e.
func equalLower(s, e string) bool {
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != e[i] {
			return false
		}
	}
	return true
}
