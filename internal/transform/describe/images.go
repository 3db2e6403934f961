package describe

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Order returns the order of the two passes of a resize, from an argument that is a release of
// Pillow.
func (a *Arguments) Order(name string) pixels.Order {
	if a.Whole(name, 12, 13) == 13 {
		return pixels.AsSteep
	}
	return pixels.AlongRows
}

// Filter returns an argument that is torchvision's name of an interpolation.
func (a *Arguments) Filter(name string) pixels.Filter {
	all, names := filters()
	return all[slices.Index(names, a.Choice(name, names...))]
}

// Filters returns an argument that is one interpolation or a list of them.
func (a *Arguments) Filters(name string) (chosen []pixels.Filter) {
	var list []string
	if json.Unmarshal(a.Given[name], &list) != nil { // not a list
		return []pixels.Filter{a.Filter(name)}
	}
	all, names := filters()
	for _, l := range list {
		if i := slices.Index(names, l); i >= 0 {
			chosen = append(chosen, all[i])
		}
	}
	if len(chosen) == 0 || len(chosen) < len(list) || len(list) > maxFilters {
		a.Fault(name, "it must be one of %s, or a list of at most %d of these",
			strings.Join(names, ", "), maxFilters)
		return all[:1]
	}
	return chosen
}

// maxFilters is the largest number of interpolations in a list.
const maxFilters = 16

// filters returns all interpolations and their names.
func filters() (all []pixels.Filter, names []string) {
	all = []pixels.Filter{
		pixels.Nearest, pixels.Box, pixels.Bilinear, pixels.Hamming,
		pixels.Bicubic, pixels.Lanczos,
	}
	for _, f := range all {
		names = append(names, f.String())
	}
	return all, names
}

// Antialias validates an argument that has no effect.
func (a *Arguments) Antialias(name string) {
	if raw, given := a.Given[name]; given && string(raw) != "null" {
		a.Flag(name)
	}
}

// Type returns an argument that is torch's name of a type of images.
func (a *Arguments) Type(name string) pixels.Type {
	return a.Types(name, pixels.Float32, pixels.Float16, pixels.BFloat16, pixels.Uint8)
}

// Types returns an argument that is torch's name of one of these types; the first if it is none.
func (a *Arguments) Types(name string, all ...pixels.Type) pixels.Type {
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.String()
	}
	return all[slices.Index(names, a.Choice(name, names...))]
}

// Span is the interval that a factor is drawn from.
type Span struct {
	From, To float64
	On       bool
}

// Span returns an argument that is null, one number (the largest distance from the centre) or
// [least, most].
func (a *Arguments) Span(name string, center, least, most float64) Span {
	raw, given := a.Given[name]
	if !given || strings.TrimSpace(string(raw)) == "null" {
		return Span{}
	}
	var s Span
	var far float64
	if json.Unmarshal(raw, &far) == nil {
		if far < 0 || far > most {
			a.Fault(name, "it must be a number from 0 to %v, or [least, most] within [%v, %v]",
				most, least, most)
			return Span{}
		}
		s = Span{From: max(center-far, least), To: center + far}
	} else {
		s.From, s.To = a.Pair(name, least, most)
	}
	s.On = s.From != center || s.To != center
	return s
}

// Around returns an argument that is [least, most], or the most in either direction.
func (a *Arguments) Around(name string, limit float64) (from, to float64) {
	list := a.Numbers(name, -limit, limit, "a number or [least, most]", 1, 2)
	switch {
	case len(list) == 2:
		return list[0], list[1]
	case len(list) == 1 && list[0] < 0:
		a.Fault(name, "a single number must not be negative")
	case len(list) == 1:
		return -list[0], list[0]
	}
	return 0, 0
}

// Center returns the argument center.
func (a *Arguments) Center() *[2]float64 {
	if a.None("center") {
		return nil
	}
	list := a.Numbers("center", -1e6, 1e6, "[x, y]", 2)
	if len(list) < 2 {
		return nil
	}
	return &[2]float64{list[0], list[1]}
}

// Chance returns an argument that is a probability, as torch compares it with what torch.rand
// draws: as a float32.
func (a *Arguments) Chance(name string) float32 { return float32(a.Number(name, 0, 1)) }

// Perhaps returns the argument p, and whether it is not null.
func (a *Arguments) Perhaps() (p float64, given bool) {
	if a.None("p") {
		return 0, false
	}
	return a.Number("p", 0, 1), true
}

// Fill returns the argument fill: a level for each channel, and whether one was given for all.
func (a *Arguments) Fill() (fill [3]byte, one bool) {
	if a.None("fill") {
		return fill, true
	}
	levels := a.Numbers("fill", 0, 255, "a level or one per channel", 1, 3)
	for i := range fill {
		if len(levels) > 0 {
			fill[i] = byte(levels[min(i, len(levels)-1)])
		}
	}
	return fill, len(levels) < 2
}

// Apart returns the argument draws: whether a step draws as torchvision's v2.
func (a *Arguments) Apart() bool { return a.Choice("draws", "v1", "v2") == "v2" }

// Strict returns whether the argument pillow is a release that does not posterize to 0 bits.
func (a *Arguments) Strict() bool { return a.Whole("pillow", 1, 1000) >= 13 }
