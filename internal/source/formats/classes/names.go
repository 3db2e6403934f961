package classes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hdmlp/hdmlp/internal/source"
)

// Extensions returns the extensions of torchvision's IMG_EXTENSIONS.
func Extensions() []string {
	return []string{".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}
}

// Normalize checks extensions and returns them in lower case, sorted, without duplicates; nil means
// Extensions().
func Normalize(extensions []string) ([]string, error) {
	if extensions == nil {
		return Extensions(), nil
	}
	if len(extensions) == 0 {
		return nil, errors.New("it is empty, so no file is a sample")
	}
	list := make([]string, len(extensions))
	for i, e := range extensions {
		if e == "" || strings.ContainsAny(e, "/\x00") {
			return nil, errors.New("an extension is the end of a file name, such as .jpg")
		}
		list[i] = lower(e)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// EmptyError returns the error for classes without samples, of all classes of the dataset at root.
// If these are all of them, it is the extensions that are wrong, or the path.
func EmptyError(root string, classes []string, all int, extensions []string) *source.Error {
	const shown = 10
	advice := "remove these directories, or pass other extensions"
	if len(classes) == all {
		advice = "these are all of its classes: pass the extensions of their files, or check the path"
	}
	var list []string
	for _, name := range classes[:min(len(classes), shown)] {
		list = append(list, fmt.Sprintf("%q", name))
	}
	text := strings.Join(list, ", ")
	if more := len(classes) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &source.Error{
		Path: root, Kind: source.ErrEmptyClass,
		Hint: fmt.Sprintf("%s; a sample is a file whose name ends with %s; %s", text,
			strings.Join(extensions, ", "), advice),
	}
}

// Compare orders file names and paths as Python's sorted does: by code points, where a byte that is
// not part of valid UTF-8 counts as the code point 0xDC00 + byte (os.fsdecode, "surrogateescape").
// For valid UTF-8 that is the order of the bytes.
func Compare(a, b string) int {
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

// Matches reports whether name ends with one of extensions, which are in lower
// case.
func Matches(name string, extensions []string) bool {
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
