package records

import (
	"fmt"
	"strconv"
	"strings"
)

// sequence expands 000..099, a..e, and either with a step, as in 0..9..3.
func sequence(text string) (list []string, err error) {
	ends := strings.Split(text, "..")
	if len(ends) != 2 && len(ends) != 3 {
		return nil, errNoSequence
	}
	step := 1
	if len(ends) == 3 {
		n, err := strconv.Atoi(ends[2])
		if err != nil || n == 0 {
			return nil, errNoSequence
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
		return nil, errNoSequence
	}
	// The difference of two integers may be no integer of their size.
	steps := uint64(max(first, last)-min(first, last)) / uint64(step)
	if steps >= mostNames {
		return nil, errTooMany
	}
	if first > last {
		step = -step
	}
	for i := range int(steps) + 1 {
		list = append(list, show(first+i*step))
	}
	return list, nil
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
