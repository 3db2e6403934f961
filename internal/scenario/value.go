package scenario

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unit is a quantity's units, and what messages say is allowed.
type unit struct {
	allowed string
	factors map[string]float64 // by the unit's name, in lower case without blanks
}

// bytesOf maps the units of sizes to MB.
var bytesOf = map[string]float64{
	"b": 1e-6, "kb": 1e-3, "mb": 1, "gb": 1e3, "tb": 1e6, "pb": 1e9,
	"kib": (1 << 10) / 1e6, "mib": (1 << 20) / 1e6, "gib": (1 << 30) / 1e6, "tib": (1 << 40) / 1e6,
	"pib": (1 << 50) / 1e6,
}

var (
	megabytes = unit{`a number of MB, or a size such as "10 GB" or "64 MiB"`, bytesOf}
	rates     = unit{
		`a number of MB/s, or a rate such as "10 GB/s", "512 MiB/s" or "40 Gbit/s"`,
		rateUnits(),
	}
	seconds = unit{
		`a number of seconds, or a time such as "2 ms"`,
		map[string]float64{"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6},
	}
)

// rateUnits returns the units of rates, in MB/s.
func rateUnits() map[string]float64 {
	units := map[string]float64{}
	for name, factor := range bytesOf {
		units[name+"/s"] = factor
	}
	for prefix, factor := range map[string]float64{"m": 1, "g": 1e3, "t": 1e6} {
		units[prefix+"bit/s"], units[prefix+"bps"] = factor/8, factor/8
	}
	return units
}

// number parses a number, or a string with a number and a unit.
func (u unit) number(value any) (float64, error) {
	var v float64
	switch value := value.(type) {
	case int64:
		v = float64(value)
	case float64:
		v = value
	case string:
		text := strings.TrimSpace(value)
		end := strings.LastIndexAny(text, "0123456789.") + 1
		factor, known := u.factors[strings.ToLower(strings.TrimSpace(text[end:]))]
		if text[end:] == "" {
			factor, known = 1, true
		}
		parsed, err := strconv.ParseFloat(text[:end], 64)
		if err != nil || !known || strings.Trim(text[:end], "+-.0123456789eE") != "" {
			return 0, errors.New("not a number with a known unit")
		}
		v = parsed * factor
	default:
		return 0, errors.New("not a number")
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, errors.New("not a finite number")
	}
	return v, nil
}

// text formats a value for messages.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return shorten(strconv.Quote(v))
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case map[string]any:
		return "a table"
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	}
	return shorten(fmt.Sprint(value))
}

// shorten limits the length of values in messages.
func shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}
