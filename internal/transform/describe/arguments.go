package transform

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// A param is a parameter of a transform. The params of a transform have the order of those of the
// Python class.
type param struct {
	name     string
	fallback string // JSON; "" means that the argument must be given
}

// arguments holds the arguments that a description gives to one transform. Its getters validate the
// argument: if it is invalid they record a fault and return a valid value.
type arguments struct {
	place  string // of the transform, for messages
	params []param
	given  map[string]json.RawMessage
	faults []error
}

// fault records an error in an argument, and what is allowed.
func (a *arguments) fault(name, format string, args ...any) {
	value := "not given"
	if raw, ok := a.given[name]; ok {
		value = abbreviate(string(raw))
	}
	a.faults = append(a.faults,
		fmt.Errorf("%s: %s is %s; %s", a.place, name, value, fmt.Sprintf(format, args...)))
}

func abbreviate(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:77], "") + "..."
	}
	return text
}

// unknown records the arguments that are not params.
func (a *arguments) unknown() {
	var names []string
	for _, p := range a.params {
		names = append(names, p.name)
	}
	var strange []string
	for name := range a.given {
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
		a.faults = append(a.faults, fmt.Errorf("%s: unknown argument %s%s; %s",
			a.place, strconv.Quote(abbreviate(name)), human.Nearest(name, names), allowed))
	}
}

// decode reads an argument, or its fallback, into value. It returns false if the argument is
// missing or has another type. A null is equivalent to no argument if null is the fallback.
func (a *arguments) decode(name string, value any, allowed string) bool {
	i := slices.IndexFunc(a.params, func(p param) bool { return p.name == name })
	raw, given := a.given[name]
	if !given {
		raw = json.RawMessage(a.params[i].fallback)
		if len(raw) == 0 {
			a.fault(name, "it must be %s", allowed)
			return false
		}
	}
	if strings.TrimSpace(string(raw)) == "null" || json.Unmarshal(raw, value) != nil {
		a.fault(name, "it must be %s", allowed)
		return false
	}
	return true
}

// none reports whether an argument is null, given or by default.
func (a *arguments) none(name string) bool {
	i := slices.IndexFunc(a.params, func(p param) bool { return p.name == name })
	if raw, given := a.given[name]; given {
		return strings.TrimSpace(string(raw)) == "null" && a.params[i].fallback == "null"
	}
	return a.params[i].fallback == "null"
}

func (a *arguments) flag(name string) bool {
	var v bool
	a.decode(name, &v, "true or false")
	return v
}

func (a *arguments) choice(name string, allowed ...string) string {
	var v string
	list := make([]string, len(allowed))
	for i, c := range allowed {
		list[i] = strconv.Quote(c)
	}
	if !a.decode(name, &v, human.List(list)) {
		return allowed[0]
	}
	if !slices.Contains(allowed, v) {
		a.fault(name, "it must be %s%s", human.List(list), human.Nearest(v, allowed))
		return allowed[0]
	}
	return v
}

func (a *arguments) number(name string, least, most float64) float64 {
	allowed := fmt.Sprintf("a number from %v to %v", least, most)
	v := least
	if a.decode(name, &v, allowed) && (v < least || v > most) {
		a.fault(name, "it must be %s", allowed)
	}
	return min(max(v, least), most)
}

func (a *arguments) whole(name string, least, most int) int {
	allowed := fmt.Sprintf("a whole number from %d to %d", least, most)
	v := float64(least)
	if a.decode(name, &v, allowed) &&
		(v != math.Trunc(v) || v < float64(least) || v > float64(most)) {
		a.fault(name, "it must be %s", allowed)
		return least
	}
	return int(v)
}

// numbers returns an argument that is one number or a list whose length is one of lengths.
func (a *arguments) numbers(name string, least, most float64, allowed string,
	lengths ...int,
) []float64 {
	var raw json.RawMessage
	if !a.decode(name, &raw, allowed) {
		return nil
	}
	var list []float64
	var one float64
	single := slices.Contains(lengths, 1)
	switch {
	case single && json.Unmarshal(raw, &one) == nil:
		list = []float64{one}
	case json.Unmarshal(raw, &list) != nil || !slices.Contains(lengths, len(list)) || hasNull(raw):
		a.fault(name, "it must be %s", allowed)
		return nil
	}
	for _, v := range list {
		if v < least || v > most {
			a.fault(name, "it must be %s, each from %v to %v", allowed, least, most)
			return nil
		}
	}
	return list
}

// hasNull reports whether a list contains a null, which would be decoded as a zero.
func hasNull(raw json.RawMessage) bool {
	var list []*float64
	return json.Unmarshal(raw, &list) == nil && slices.Contains(list, nil)
}

// wholes is like numbers, for whole numbers.
func (a *arguments) wholes(name string, least, most int, allowed string, lengths ...int) []int {
	list := a.numbers(name, float64(least), float64(most), allowed, lengths...)
	out := make([]int, len(list))
	for i, v := range list {
		if v != math.Trunc(v) {
			a.fault(name, "it must be %s", allowed)
			return nil
		}
		out[i] = int(v)
	}
	return out
}

// maxEdge is the longest edge that an argument may request.
const maxEdge = 1 << 16

// size returns an argument that is a height and a width: one number for both, or two.
func (a *arguments) size(name string) (height, width int) {
	list := a.wholes(name, 1, maxEdge, "a whole number or [height, width]", 1, 2)
	if len(list) == 0 {
		return 1, 1
	}
	return list[0], list[len(list)-1]
}

// pair returns an argument of the form [least, most].
func (a *arguments) pair(name string, least, most float64) (from, to float64) {
	list := a.numbers(name, least, most, "[least, most]", 2)
	if list == nil {
		return least, least
	}
	if list[0] > list[1] {
		a.fault(name, "it must be [least, most], in this order")
		return least, least
	}
	return list[0], list[1]
}
