package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

const curveAllowed = "a table of MB/s, or rates with units, by the number of clients, " +
	"such as { 1 = 66, 4 = 146 }, or one number for any number of clients"

// curve returns a reader of throughputs by the number of clients.
func (r *reader) curve(to *perfmodel.Curve) func(string, any) {
	return func(key string, value any) {
		table, ok := value.(map[string]any)
		if !ok {
			var v float64
			before := len(r.faults)
			r.rate(&v)(key, value)
			if len(r.faults) > before {
				r.faults[len(r.faults)-1].Allowed = curveAllowed
				return
			}
			*to = perfmodel.Constant(v)
			return
		}
		if len(table) == 0 {
			r.fault(key, value, "a curve without points", curveAllowed)
		}
		points := map[int]float64{}
		for _, name := range slices.Sorted(maps.Keys(table)) {
			clients, err := strconv.Atoi(name)
			if err != nil || clients < 1 || clients > 1<<20 || strconv.Itoa(clients) != name {
				r.fault(key+"."+name, table[name], "not a number of clients",
					"keys from 1 to 1048576")
				continue
			}
			var v float64
			r.rate(&v)(key+"."+name, table[name])
			points[clients] = v
		}
		*to = perfmodel.NewCurve(points)
		if p, falls := to.Falls(); falls {
			name := strconv.Itoa(p.Clients)
			r.fault(key+"."+name, table[name], "less than fewer clients get together",
				"throughputs that do not fall with the number of clients")
		}
	}
}

// rate returns a reader of a rate above 0.
func (r *reader) rate(to *float64) func(string, any) {
	return r.quantity(to, rates, math.SmallestNonzeroFloat64)
}

// quantity returns a reader of a number with a unit that is at least least.
func (r *reader) quantity(to *float64, u unit, least float64) func(string, any) {
	return func(key string, value any) {
		v, err := u.number(value)
		switch {
		case err != nil:
			r.fault(key, value, err.Error(), u.allowed)
		case v < 0:
			r.fault(key, value, "negative", u.allowed)
		case v < least:
			r.fault(key, value, "not above 0", u.allowed+", above 0")
		case v > 1e15:
			r.fault(key, value, "too large", u.allowed+", at most 1e15 of them")
		}
		*to = v
	}
}

// whole returns a reader of a whole number from least to most.
func (r *reader) whole(to *int, least, most int64) func(string, any) {
	return func(key string, value any) {
		v, ok := value.(int64)
		if !ok || v < least || v > most {
			r.fault(key, value, "not a whole number in the range",
				fmt.Sprintf("a whole number from %d to %d", least, most))
			return
		}
		*to = int(v)
	}
}

// string returns a reader of a short string.
func (r *reader) string(to *string) func(string, any) {
	return func(key string, value any) {
		s, ok := value.(string)
		if !ok || s == "" || len(s) > 200 {
			r.fault(key, value, "not a string", "a string of 1 to 200 characters")
			return
		}
		*to = s
	}
}
