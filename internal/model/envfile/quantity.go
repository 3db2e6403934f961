package envfile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model"
)

// Kind is what a number measures: its units, and which values are possible.
type Kind struct {
	Allowed string // in words
	factors map[string]float64
	least   float64
	most    float64
}

// Limits of rates, in MB/s: a byte and a petabyte per second.
const (
	LeastRate = 1e-6
	MostRate  = 1e9
)

// sizes maps the units of sizes to MB.
var sizes = map[string]float64{
	"b": 1e-6, "kb": 1e-3, "mb": 1, "gb": 1e3, "tb": 1e6, "pb": 1e9,
	"kib": (1 << 10) / 1e6, "mib": (1 << 20) / 1e6, "gib": (1 << 30) / 1e6, "tib": (1 << 40) / 1e6,
	"pib": (1 << 50) / 1e6,
}

var (
	// Size is a number of MB (1e6 bytes).
	Size = Kind{
		`a number of MB from 0 to 1e15, or a size such as "10 GB" or "64 MiB"`, sizes, 0, 1e15,
	}
	// Rate is a number of MB/s.
	Rate = Kind{
		`a number of MB/s above 0 (1e-6 to 1e9), or a rate such as "10 GB/s", "512 MiB/s" or ` +
			`"40 Gbit/s"`,
		rates(), LeastRate, MostRate,
	}
	// Time is a number of seconds.
	Time = Kind{
		`a number of seconds from 0 to 3600, or a time such as "5ms"`,
		map[string]float64{"": 1, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6},
		0, 3600,
	}
)

// rates returns the units of rates, in MB/s.
func rates() map[string]float64 {
	units := map[string]float64{}
	for name, factor := range sizes {
		units[name+"/s"] = factor
	}
	for prefix, factor := range map[string]float64{"k": 1e-3, "m": 1, "g": 1e3, "t": 1e6} {
		units[prefix+"bit/s"], units[prefix+"bps"] = factor/8, factor/8
	}
	return units
}

// Read reads a number of a TOML file.
func (k Kind) Read(key string, value any) (float64, *Fault) {
	v, wrong := k.parse(value)
	switch {
	case wrong != "":
	case math.IsNaN(v) || math.IsInf(v, 0):
		wrong = "not a finite number"
	case v < 0:
		wrong = "negative"
	case v == 0 && k.least > 0:
		wrong = "not above 0"
	case v < k.least:
		wrong = "too small"
	case v > k.most:
		wrong = "too large"
	}
	if wrong != "" {
		return 0, &Fault{key, Text(value), wrong, k.Allowed}
	}
	return v, nil
}

// parse parses a number, or a string with a number and a unit.
func (k Kind) parse(value any) (v float64, wrong string) {
	switch value := value.(type) {
	case int64:
		return float64(value), ""
	case float64:
		return value, ""
	case string:
		text := strings.TrimSpace(value)
		end := strings.LastIndexAny(text, "0123456789.") + 1
		factor, known := k.factors[strings.ToLower(strings.TrimSpace(text[end:]))]
		if text[end:] == "" {
			factor, known = 1, true
		}
		v, err := strconv.ParseFloat(text[:end], 64)
		if err != nil || !known || strings.Trim(text[:end], "+-.0123456789eE") != "" {
			return 0, "not a number with a known unit"
		}
		return v * factor, ""
	}
	return 0, "not a number"
}

const (
	mostClients = 1 << 20
	mostPoints  = 1024
)

// CurveAllowed describes, in words, what ReadCurve takes.
const CurveAllowed = "a table of MB/s, or rates with units, by the number of clients, " +
	"such as { 1 = 66, 4 = 146 }, or one number for any number of clients"

// ReadCurve reads a throughput by the number of clients, which messages call what, such as "nodes":
// one number, for any number of them, or a table. The curve is nil if there are faults.
func ReadCurve(key string, value any, what string) (curve model.Curve, faults Faults) {
	table, ok := value.(map[string]any)
	if !ok {
		v, fault := Rate.Read(key, value)
		if fault != nil {
			fault.Allowed = CurveAllowed
			return nil, Faults{*fault}
		}
		return model.Constant(v), nil
	}
	switch n := len(table); {
	case n == 0:
		return nil, Faults{{key, Text(value), "a curve without points", CurveAllowed}}
	case n > mostPoints:
		return nil, Faults{{
			key, Text(value), fmt.Sprintf("a curve of %d points", n),
			fmt.Sprintf("at most %d", mostPoints),
		}}
	}
	points := map[int]float64{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		at := key + "." + name
		clients, err := strconv.Atoi(name)
		if err != nil || clients < 1 || clients > mostClients || strconv.Itoa(clients) != name {
			faults = append(faults, Fault{
				at, Text(table[name]), "not a number of " + what,
				fmt.Sprintf("keys from 1 to %d", mostClients),
			})
			continue
		}
		v, fault := Rate.Read(at, table[name])
		if fault != nil {
			faults = append(faults, *fault)
		}
		points[clients] = v
	}
	if faults != nil {
		return nil, faults
	}
	curve = model.NewCurve(points)
	if p, falls := curve.Falls(); falls {
		name := strconv.Itoa(p.Clients)
		return nil, Faults{{
			key + "." + name, Text(table[name]), "less than fewer " + what + " get together",
			"throughputs that do not fall with the number of " + what,
		}}
	}
	return curve, nil
}

// ReadWhole reads a whole number from least to most.
func ReadWhole(key string, value any, least, most int64) (int, *Fault) {
	v, ok := value.(int64)
	if !ok || v < least || v > most {
		return 0, &Fault{
			key, Text(value), "not a whole number in the range",
			fmt.Sprintf("a whole number from %d to %d", least, most),
		}
	}
	return int(v), nil
}
