package human

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Group formats v with the given number of decimals and a comma between groups of three digits:
// 60,526.36.
func Group(v float64, decimals int) string {
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

// Seconds formats seconds, with fewer decimals for larger values.
func Seconds(s float64) string {
	switch a := math.Abs(s); {
	case a < 5e-5: // also rounding errors
		return "0"
	case a < 1:
		return strconv.FormatFloat(s, 'f', 4, 64)
	case a < 1000:
		return Group(s, 2)
	case a < 100_000:
		return Group(s, 1)
	}
	return Group(s, 0)
}

// Clock formats seconds in units that suit the duration: "90.00 s", "2 h 06 min".
func Clock(s float64) string {
	switch {
	case s < 120:
		return Seconds(s) + " s"
	case s < 7200:
		return fmt.Sprintf("%d min %02d s", int(s)/60, int(s)%60)
	case s < 172_800:
		return fmt.Sprintf("%d h %02d min", int(s)/3600, int(s)%3600/60)
	}
	return fmt.Sprintf("%d d %02d h", int(s)/86400, int(s)%86400/3600)
}

// Bytes formats MB in a unit that suits the size: "154.0 GB".
func Bytes(mb float64) string {
	switch {
	case mb == 0:
		return "0"
	case mb < 1:
		return Group(mb*1000, 1) + " KB"
	case mb < 1000:
		return Group(mb, 1) + " MB"
	case mb < 1e6:
		return Group(mb/1e3, 1) + " GB"
	}
	return Group(mb/1e6, 2) + " TB"
}

// Percent formats a share as a percentage. A share slightly below 1 is ">99.9 %", not "100 %".
func Percent(share float64) string {
	switch {
	case share == 0 || share >= 1:
		return Group(share*100, 0) + " %"
	case share > 0.999:
		return ">99.9 %"
	case share < 0.0005:
		return "<0.1 %"
	}
	return Group(share*100, 1) + " %"
}

// Ratio formats a factor.
func Ratio(v float64) string {
	if v >= 100 {
		return Group(v, 0)
	}
	return Group(v, 2)
}

// Distance formats the distance from a full shuffle. Values within the noise of counting become 0.
func Distance(d float64) string {
	if d < 0.005 {
		return "0"
	}
	return Group(d, 2)
}

// Rounded is like Bytes, without trailing zeros: "153.6 GB", "10 GB".
func Rounded(mb float64) string {
	number, unit, _ := strings.Cut(Bytes(mb), " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return strings.TrimSpace(number + " " + unit)
}

// Number formats a whole number in groups of three digits.
func Number(v float64) string { return Group(v, 0) }
