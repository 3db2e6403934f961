// Package describe reads descriptions of transforms: the arguments that a JSON object gives to one
// of them, and lists that are written as in a Python script.
package describe

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// A Param is a parameter of a transform: its name, and its default as JSON; a default of "" means
// that the argument must be given. The parameters of a transform have the order of those of the
// Python class.
type Param [2]string

func (p Param) name() string     { return p[0] }
func (p Param) fallback() string { return p[1] }

// Arguments holds the arguments that a description gives to one transform. Its getters validate the
// argument: if it is invalid they record a fault and return a valid value.
type Arguments struct {
	Place  string // of the transform, for messages
	Params []Param
	Given  map[string]json.RawMessage
	Faults []error
}

// Fault records an error in an argument, and what is allowed.
func (a *Arguments) Fault(name, format string, args ...any) {
	value := "not given"
	if raw, ok := a.Given[name]; ok {
		value = Abbreviate(string(raw))
	}
	a.Faults = append(a.Faults,
		fmt.Errorf("%s: %s is %s; %s", a.Place, name, value, fmt.Sprintf(format, args...)))
}

// Abbreviate returns the beginning of a text that is long, in one line, for messages.
func Abbreviate(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:77], "") + "..."
	}
	return text
}

// Unknown records the arguments that are not params.
func (a *Arguments) Unknown() {
	var names []string
	for _, p := range a.Params {
		names = append(names, p.name())
	}
	var strange []string
	for name := range a.Given {
		if !slices.Contains(names, name) {
			strange = append(strange, name)
		}
	}
	slices.Sort(strange)
	for _, name := range strange {
		allowed := "it takes none"
		if len(names) > 0 {
			allowed = "allowed: " + strings.Join(names, ", ")
		}
		a.Faults = append(a.Faults, fmt.Errorf("%s: unknown argument %s%s; %s",
			a.Place, strconv.Quote(Abbreviate(name)), human.Nearest(name, names), allowed))
	}
}

// Decode reads an argument, or its fallback, into value. It returns false if the argument is
// missing or has another type. A null is equivalent to no argument if null is the fallback.
func (a *Arguments) Decode(name string, value any, allowed string) bool {
	i := slices.IndexFunc(a.Params, func(p Param) bool { return p.name() == name })
	raw, given := a.Given[name]
	if !given {
		raw = json.RawMessage(a.Params[i].fallback())
		if len(raw) == 0 {
			a.Fault(name, "it must be %s", allowed)
			return false
		}
	}
	if strings.TrimSpace(string(raw)) == "null" || json.Unmarshal(raw, value) != nil {
		a.Fault(name, "it must be %s", allowed)
		return false
	}
	return true
}

// Text stores an argument that is a string, and reports whether it is one.
func (a *Arguments) Text(name string, to *string) bool {
	return json.Unmarshal(a.Given[name], to) == nil
}

// List stores an argument that is a list, whose elements say themselves what is wrong with them.
func (a *Arguments) List(name string, to any) {
	raw, given := a.Given[name]
	if !given {
		a.Fault(name, "it must be a list")
	} else if err := json.Unmarshal(raw, to); err != nil {
		a.Fault(name, "%v", err)
	}
}

// None reports whether an argument is null, given or by default.
func (a *Arguments) None(name string) bool {
	i := slices.IndexFunc(a.Params, func(p Param) bool { return p.name() == name })
	if raw, given := a.Given[name]; given {
		return strings.TrimSpace(string(raw)) == "null" && a.Params[i].fallback() == "null"
	}
	return a.Params[i].fallback() == "null"
}

func (a *Arguments) Flag(name string) bool {
	var v bool
	a.Decode(name, &v, "true or false")
	return v
}

func (a *Arguments) Choice(name string, allowed ...string) string {
	var v string
	list := make([]string, len(allowed))
	for i, c := range allowed {
		list[i] = strconv.Quote(c)
	}
	if !a.Decode(name, &v, human.List(list)) {
		return allowed[0]
	}
	if !slices.Contains(allowed, v) {
		a.Fault(name, "it must be %s%s", human.List(list), human.Nearest(v, allowed))
		return allowed[0]
	}
	return v
}

func (a *Arguments) Number(name string, least, most float64) float64 {
	allowed := fmt.Sprintf("a number from %v to %v", least, most)
	v := least
	if a.Decode(name, &v, allowed) && (v < least || v > most) {
		a.Fault(name, "it must be %s", allowed)
	}
	return min(max(v, least), most)
}

func (a *Arguments) Whole(name string, least, most int) int {
	allowed := fmt.Sprintf("a whole number from %d to %d", least, most)
	v := float64(least)
	if a.Decode(name, &v, allowed) &&
		(v != math.Trunc(v) || v < float64(least) || v > float64(most)) {
		a.Fault(name, "it must be %s", allowed)
		return least
	}
	return int(v)
}

// Numbers returns an argument that is one number or a list whose length is one of lengths.
func (a *Arguments) Numbers(name string, least, most float64, allowed string,
	lengths ...int,
) []float64 {
	var raw json.RawMessage
	if !a.Decode(name, &raw, allowed) {
		return nil
	}
	var list []float64
	var one float64
	single := slices.Contains(lengths, 1)
	switch {
	case single && json.Unmarshal(raw, &one) == nil:
		list = []float64{one}
	case json.Unmarshal(raw, &list) != nil || !slices.Contains(lengths, len(list)) || HasNull(raw):
		a.Fault(name, "it must be %s", allowed)
		return nil
	}
	for _, v := range list {
		if v < least || v > most {
			a.Fault(name, "it must be %s, each from %v to %v", allowed, least, most)
			return nil
		}
	}
	return list
}

// HasNull reports whether a list contains a null, which would be decoded as a zero.
func HasNull(raw json.RawMessage) bool {
	var list []*float64
	return json.Unmarshal(raw, &list) == nil && slices.Contains(list, nil)
}

// Wholes is like numbers, for whole numbers.
func (a *Arguments) Wholes(name string, least, most int, allowed string, lengths ...int) []int {
	list := a.Numbers(name, float64(least), float64(most), allowed, lengths...)
	out := make([]int, len(list))
	for i, v := range list {
		if v != math.Trunc(v) {
			a.Fault(name, "it must be %s", allowed)
			return nil
		}
		out[i] = int(v)
	}
	return out
}

// MaxEdge is the longest edge that an argument may request.
const MaxEdge = 1 << 16

// Size returns an argument that is a height and a width: one number for both, or two.
func (a *Arguments) Size(name string) (height, width int) {
	list := a.Wholes(name, 1, MaxEdge, "a whole number or [height, width]", 1, 2)
	if len(list) == 0 {
		return 1, 1
	}
	return list[0], list[len(list)-1]
}

// Pair returns an argument of the form [least, most].
func (a *Arguments) Pair(name string, least, most float64) (from, to float64) {
	list := a.Numbers(name, least, most, "[least, most]", 2)
	if list == nil {
		return least, least
	}
	if list[0] > list[1] {
		a.Fault(name, "it must be [least, most], in this order")
		return least, least
	}
	return list[0], list[1]
}
