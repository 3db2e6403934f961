package records

import (
	"fmt"
	"strconv"
	"strings"
)

// sequence expands 000..099, a..e, and either with a step, as in 0..9..3; ok is false if it is no
// such text.
func sequence(text string) (list []string, ok bool) {
	ends := strings.Split(text, "..")
	if len(ends) != 2 && len(ends) != 3 {
		return nil, false
	}
	step := 1
	if len(ends) == 3 {
		n, err := strconv.Atoi(ends[2])
		if err != nil || n == 0 {
			return nil, false
		}
		step = max(n, -n)
	}
	first, err1 := strconv.Atoi(ends[0])
	last, err2 := strconv.Atoi(ends[1])
	show := func(n int) string { return strconv.Itoa(n) }
	switch letters := isLetter(ends[0]) && isLetter(ends[1]); {
	case err1 == nil && err2 == nil:
		if padded(ends[0]) || padded(ends[1]) {
			width := max(len(ends[0]), len(ends[1]))
			show = func(n int) string { return fmt.Sprintf("%0*d", width, n) }
		}
	case letters:
		first, last = int(ends[0][0]), int(ends[1][0])
		show = func(n int) string { return string(rune(n)) }
	default:
		return nil, false
	}
	if (max(first, last)-min(first, last))/step >= mostNames {
		return nil, false
	}
	for n := first; n <= last; n += step {
		list = append(list, show(n))
	}
	for n := first; n >= last && first > last; n -= step {
		list = append(list, show(n))
	}
	return list, true
}

// isLetter reports whether a text is one letter.
func isLetter(text string) bool {
	return len(text) == 1 && (text[0]|0x20) >= 'a' && (text[0]|0x20) <= 'z'
}

// padded reports whether a number is written with zeros before it.
func padded(number string) bool {
	digits := strings.TrimPrefix(number, "-")
	return len(digits) > 1 && digits[0] == '0'
}
