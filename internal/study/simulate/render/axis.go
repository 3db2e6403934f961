package render

import (
	"slices"
	"strconv"
	"strings"
)

// unitOf returns the unit of numbers without a unit in the values of a key, by the last part of the
// key that has one; "" if it has none.
func unitOf(key string) string {
	parts := strings.Split(key, ".")
	for _, part := range slices.Backward(parts) {
		switch part {
		case "capacity", "mu", "sigma", "min", "max":
			return "MB"
		case "compute", "preprocess", "network", "source_network", "source", "read", "write":
			return "MB/s"
		case "source_latency":
			return "s"
		}
	}
	return ""
}

// numbers parses the values of a key as numbers of one unit. ok is false if one of them is not a
// number or the units differ.
func numbers(key string, values []string) (parsed []float64, unit string, ok bool) {
	for i, value := range values {
		value = strings.Trim(value, `"' `)
		end := strings.LastIndexAny(value, "0123456789.") + 1
		v, err := strconv.ParseFloat(strings.ReplaceAll(value[:end], "_", ""), 64)
		if err != nil {
			return nil, "", false
		}
		u := strings.TrimSpace(value[end:])
		if v == 0 && u == "" && i > 0 {
			u = unit // 0 needs no unit
		}
		if i > 0 && unit == "" && parsed[0] == 0 {
			unit = u
		}
		if i > 0 && u != unit {
			return nil, "", false
		}
		parsed, unit = append(parsed, v), u
	}
	if unit == "" {
		unit = unitOf(key)
	}
	return parsed, unit, true
}
