package scenario

import (
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
)

// Fault is one error in a scenario, and Faults are all of them.
type (
	Fault  = envfile.Fault
	Faults = envfile.Faults
)

// note adds a fault, if there is one.
func (r *reader) note(f *Fault) {
	if f != nil {
		r.faults = append(r.faults, *f)
	}
}

// curve returns a reader of throughputs by the number of clients.
func (r *reader) curve(to *model.Curve) func(string, any) {
	return func(key string, value any) {
		c, faults := envfile.ReadCurve(key, value, "clients")
		r.faults = append(r.faults, faults...)
		*to = c
	}
}

// rate returns a reader of a rate.
func (r *reader) rate(to *float64) func(string, any) {
	return r.quantity(to, envfile.Rate)
}

// quantity returns a reader of a number with a unit.
func (r *reader) quantity(to *float64, k envfile.Kind) func(string, any) {
	return func(key string, value any) {
		v, fault := k.Read(key, value)
		r.note(fault)
		*to = v
	}
}

// aboveZero returns a reader of a number with a unit that is not 0.
func (r *reader) aboveZero(to *float64, k envfile.Kind) func(string, any) {
	return func(key string, value any) {
		v, fault := k.Read(key, value)
		if fault == nil && v == 0 {
			r.fault(key, value, "not above 0", k.Allowed+", above 0")
		}
		r.note(fault)
		*to = v
	}
}

// whole returns a reader of a whole number from least to most.
func (r *reader) whole(to *int, least, most int64) func(string, any) {
	return func(key string, value any) {
		v, fault := envfile.ReadWhole(key, value, least, most)
		r.note(fault)
		*to = v
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
