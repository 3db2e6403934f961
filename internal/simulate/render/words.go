package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// group writes a number with so many decimals and a comma between groups of three digits: 60,526.36.
func group(v float64, decimals int) string {
	text := strconv.FormatFloat(math.Abs(v), 'f', decimals, 64)
	whole, rest, _ := strings.Cut(text, ".")
	var b strings.Builder
	if v < 0 && strings.Trim(text, "0.") != "" {
		b.WriteByte('-')
	}
	for i, c := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	if rest != "" {
		b.WriteString("." + rest)
	}
	return b.String()
}

// timeText writes seconds with the digits that matter.
func timeText(s float64) string {
	switch a := math.Abs(s); {
	case a < 5e-5: // also what is left of rounding
		return "0"
	case a < 1:
		return strconv.FormatFloat(s, 'f', 4, 64)
	case a < 1000:
		return group(s, 2)
	case a < 100_000:
		return group(s, 1)
	}
	return group(s, 0)
}

// clock writes seconds as people say them, for what is longer than two minutes: "2 h 06 min".
func clock(s float64) string {
	switch {
	case s < 120:
		return timeText(s) + " s"
	case s < 7200:
		return fmt.Sprintf("%d min %02d s", int(s)/60, int(s)%60)
	case s < 172_800:
		return fmt.Sprintf("%d h %02d min", int(s)/3600, int(s)%3600/60)
	}
	return fmt.Sprintf("%d d %02d h", int(s)/86400, int(s)%86400/3600)
}

// bytesText writes MB as people say them: "154 GB".
func bytesText(mb float64) string {
	switch {
	case mb == 0:
		return "0"
	case mb < 1:
		return group(mb*1000, 1) + " KB"
	case mb < 1000:
		return group(mb, 1) + " MB"
	case mb < 1e6:
		return group(mb/1e3, 1) + " GB"
	}
	return group(mb/1e6, 2) + " TB"
}

// percent writes a share, and does not call 100 % what is a little less.
func percent(share float64) string {
	switch {
	case share == 0 || share >= 1:
		return group(share*100, 0) + " %"
	case share > 0.999:
		return ">99.9 %"
	case share < 0.0005:
		return "<0.1 %"
	}
	return group(share*100, 1) + " %"
}

// ratio writes how many times something is.
func ratio(v float64) string {
	if v >= 100 {
		return group(v, 0)
	}
	return group(v, 2)
}

// distanceText writes the distance from a full shuffle; what is within the noise of counting is 0.
func distanceText(d float64) string {
	if d < 0.005 {
		return "0"
	}
	return group(d, 2)
}

// Bytes writes MB as people say them: "153.6 GB", "10 GB".
func Bytes(mb float64) string {
	number, unit, _ := strings.Cut(bytesText(mb), " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return strings.TrimSpace(number + " " + unit)
}

// Number writes a whole number in groups of three digits.
func Number(v float64) string { return group(v, 0) }
