package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/random"
)

// Motion is how operations of torchvision move pixels.
type Motion struct {
	Filter pixels.Filter
	Fill   Fill
}

// An Offer is an operation that a policy of torchvision may apply.
type Offer struct {
	named
	magnitudes []float64 // one, or those of which one is drawn; none: the operation needs none
	share      float64   // in the place of a magnitude: a part of the image's width or height
	signed     bool      // the magnitude's sign is drawn
	p          float32   // the probability, where a policy has one
}

// named is an operation of torchvision's policies.
type named struct {
	name string
	kind Kind
	// act completes an action, of this magnitude, on an image of this size; nil: it takes none.
	act func(a *Action, magnitude float64, width, height int)
}

// operations are torchvision's, by their names.
var operations = map[string]named{
	"Identity":     {"Identity", Nothing, nil},
	"ShearX":       {"ShearX", Move, shear(0)},
	"ShearY":       {"ShearY", Move, shear(1)},
	"TranslateX":   {"TranslateX", Move, shift(0)},
	"TranslateY":   {"TranslateY", Move, shift(1)},
	"Rotate":       {"Rotate", Rotate, amount},
	"Brightness":   {"Brightness", Brightness, factor},
	"Color":        {"Color", Color, factor},
	"Contrast":     {"Contrast", Contrast, factor},
	"Sharpness":    {"Sharpness", Sharpness, factor},
	"Posterize":    {"Posterize", Posterize, amount},
	"Solarize":     {"Solarize", Solarize, amount},
	"AutoContrast": {"AutoContrast", AutoContrast, nil},
	"Equalize":     {"Equalize", Equalize, nil},
	"Invert":       {"Invert", Invert, nil},
}

func amount(a *Action, magnitude float64, _, _ int) { a.Amount = magnitude }

func factor(a *Action, magnitude float64, _, _ int) { a.Amount = 1 + magnitude }

// shear is by an angle in degrees along an axis, around the first corner.
func shear(axis int) func(*Action, float64, int, int) {
	return func(a *Action, degrees float64, width, height int) {
		m := Affine{Center: &[2]float64{}}
		m.Shear[axis] = degrees
		a.Amount = degrees
		a.Matrix = m.Matrix(width, height)
	}
}

// shift is by whole pixels along an axis.
func shift(axis int) func(*Action, float64, int, int) {
	return func(a *Action, by float64, width, height int) {
		var m Affine
		m.Shift[axis] = math.Trunc(by)
		a.Amount = m.Shift[axis]
		a.Matrix = m.Matrix(width, height)
	}
}

// offerOf is the form of an Offer in a description.
type offerOf struct {
	Name       string    `json:"name"`
	Magnitudes []float64 `json:"magnitudes"`
	Share      float64   `json:"share"`
	Signed     bool      `json:"signed"`
	P          float64   `json:"p"`
}

// UnmarshalJSON reads an object with name, magnitudes or share, signed and p. Magnitudes of shears
// are in degrees, and those of Solarize levels.
func (o *Offer) UnmarshalJSON(data []byte) error {
	var given offerOf
	if err := json.Unmarshal(data, &given); err != nil {
		return err
	}
	n, ok := operations[given.Name]
	switch {
	case !ok:
		return fmt.Errorf("unknown operation %q%s", given.Name,
			human.Nearest(given.Name, names(operations)))
	case given.P < 0 || given.P > 1:
		return fmt.Errorf("%s: p must be a number from 0 to 1", given.Name)
	case n.act != nil && given.Share == 0 && len(given.Magnitudes) == 0:
		return fmt.Errorf("%s: it needs magnitudes", given.Name)
	}
	for _, m := range given.Magnitudes {
		if math.Abs(m) > 1e6 {
			return fmt.Errorf("%s: a magnitude must be a number from -1e6 to 1e6", given.Name)
		}
	}
	*o = Offer{n, given.Magnitudes, given.Share, given.Signed, float32(given.P)}
	return nil
}

// names returns the keys of a table in order.
func names[V any](table map[string]V) []string {
	list := make([]string, 0, len(table))
	for name := range table {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// magnitude returns the magnitude without its sign. If there are several, it is drawn. unsure is
// true where torch, which computes a share of an edge in float32, may get another whole number.
func (o *Offer) magnitude(d *random.Draws, width, height int) (m float64, unsure bool) {
	switch n := len(o.magnitudes); {
	case n > 1:
		return o.magnitudes[d.Torch.Below(n)], false
	case n == 1:
		return o.magnitudes[0], false
	case o.share == 0:
		return 0, false
	}
	edge := width
	if o.name == "TranslateY" {
		edge = height
	}
	m = o.share * float64(edge)
	const tolerance = 4.0 / (1 << 23) // of float32, after some operations
	whole := math.Round(m)
	return m, whole != 0 && math.Abs(m-whole) < tolerance*whole
}

// action returns an operation of this magnitude, negative if minus is true and it has a sign.
func (o *Offer) action(
	magnitude float64, unsure, minus bool, s *Motion, width, height int,
) Action {
	if o.signed && minus {
		magnitude = -magnitude
	}
	a := Action{
		Kind: o.kind, Name: o.name, Filter: s.Filter, Fill: s.Fill.Levels, Unsure: unsure,
	}
	if o.act != nil {
		o.act(&a, magnitude, width, height)
	}
	return a
}

// negative draws a sign, as torchvision's v1 and v2 do.
func negative(d *random.Draws, v2 bool) bool {
	if v2 {
		return d.Torch.Rand() <= 0.5
	}
	return d.Torch.Below(2) == 1
}

// Several is the Policy that applies Count operations, each drawn of all: RandAugment, and
// TrivialAugmentWide.
type Several struct {
	Count  int
	Offers []Offer
	Motion Motion
	V2     bool // draw as torchvision's v2
}

// Channels returns how many channels images must have at least.
func (p *Several) Channels() int { return p.Motion.Fill.channels() }

// Draw draws the operations.
func (p *Several) Draw(
	d *random.Draws, width, height int, act func(*Action) error,
) error {
	for range p.Count {
		o := &p.Offers[d.Torch.Below(len(p.Offers))]
		magnitude, unsure := o.magnitude(d, width, height)
		a := o.action(magnitude, unsure, o.signed && negative(d, p.V2), &p.Motion, width, height)
		if err := act(&a); err != nil {
			return err
		}
	}
	return nil
}

// channels returns how many channels images must have at least.
func (f Fill) channels() int {
	if f.One {
		return 1
	}
	return 3
}

// SubPolicies is the Policy AutoAugment: it applies the operations of one of several lists, each
// with its probability.
type SubPolicies struct {
	Policies [][]Offer
	Motion   Motion
	// V2 draws each probability and sign when it is needed, as torchvision's v2; v1 draws those of
	// two operations first.
	V2 bool
}

// MostOperations is how many operations a list may have if V2 is false.
const MostOperations = 2

// Channels returns how many channels images must have at least.
func (p *SubPolicies) Channels() int { return p.Motion.Fill.channels() }

// Draw draws the operations.
func (p *SubPolicies) Draw(
	d *random.Draws, width, height int, act func(*Action) error,
) error {
	list := p.Policies[d.Torch.Below(len(p.Policies))]
	var chances [MostOperations]float32
	var signs [MostOperations]bool
	if !p.V2 {
		for i := range chances {
			chances[i] = d.Torch.Rand()
		}
		for i := range signs {
			signs[i] = d.Torch.Below(2) == 0
		}
	}
	for i := range list {
		o := &list[i]
		prior := min(i, MostOperations-1)
		chance := chances[prior]
		if p.V2 {
			chance = d.Torch.Rand()
		}
		if chance > o.p {
			continue
		}
		magnitude, unsure := o.magnitude(d, width, height)
		minus := signs[prior]
		if p.V2 {
			minus = o.signed && negative(d, true)
		}
		a := o.action(magnitude, unsure, minus, &p.Motion, width, height)
		if err := act(&a); err != nil {
			return err
		}
	}
	return nil
}
