package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/random"
)

// A Level is an operation of timm's policies with its level of intensity: timm's AugmentOp.
type Level struct {
	leveled
	name                    string
	p, magnitude, std, most float64
	translate               float64
	fill                    Fill
	filters                 []pixels.Filter
}

// levelOf is the form of a Level in a description.
type levelOf struct {
	Name          string   `json:"name"`
	P             float64  `json:"p"`
	Magnitude     float64  `json:"magnitude"`
	Std           float64  `json:"std"`
	Most          float64  `json:"most"`
	Translate     float64  `json:"translate"`
	Fill          []int    `json:"fill"`
	Interpolation []string `json:"interpolation"`
}

// UnmarshalJSON reads an object with the arguments of timm's AugmentOp: name; p; magnitude; std,
// the deviation of the magnitude, -1 if it is uniform; most, the magnitude's upper bound;
// translate, the share of an edge or the pixels of a translation; fill, one level or three; and
// interpolation, a list of which one is drawn.
func (l *Level) UnmarshalJSON(data []byte) error {
	var given levelOf
	if err := json.Unmarshal(data, &given); err != nil {
		return err
	}
	op, ok := levels[given.Name]
	if !ok {
		return fmt.Errorf("unknown operation %q%s", given.Name,
			human.Nearest(given.Name, names(levels)))
	}
	*l = Level{
		leveled: op, name: given.Name, p: given.P, magnitude: given.Magnitude, std: given.Std,
		most: given.Most, translate: given.Translate, fill: Fill{One: len(given.Fill) < 2},
	}
	n := len(given.Fill)
	if n != 0 && n != 1 && n != 3 {
		return fmt.Errorf("%s: fill must be a level, or one for each of 3 channels", given.Name)
	}
	for i := range l.fill.Levels {
		if n > 0 {
			l.fill.Levels[i] = byte(min(max(given.Fill[min(i, n-1)], 0), 255))
		}
	}
	for _, mode := range given.Interpolation {
		f, ok := filters[mode]
		if !ok {
			return fmt.Errorf("%s: interpolation must be nearest, bilinear or bicubic", given.Name)
		}
		l.filters = append(l.filters, f)
	}
	if len(l.filters) == 0 {
		l.filters = []pixels.Filter{pixels.Bilinear, pixels.Bicubic}
	}
	return nil
}

// Layers is the Policy RandAugment of timm: it applies Count operations, each drawn of all.
type Layers struct {
	Count  int
	Levels []Level
	Strict bool // posterizing to 0 bits is ErrBits
}

// Channels returns how many channels images must have at least.
func (p *Layers) Channels() int { return channelsOf(p.Levels) }

func channelsOf(list []Level) int {
	most := 1
	for i := range list {
		most = max(most, list[i].fill.channels())
	}
	return most
}

// Draw draws the operations.
func (p *Layers) Draw(d *random.Draws, width, height int, act func(*Action) error) error {
	for range p.Count {
		l := &p.Levels[d.Numpy.Below(len(p.Levels))]
		if err := l.draw(d, width, height, p.Strict, act); err != nil {
			return err
		}
	}
	return nil
}

// TimmPolicies is the Policy AutoAugment of timm: it applies the operations of one of several
// lists.
type TimmPolicies struct {
	Policies [][]Level
	Strict   bool // posterizing to 0 bits is ErrBits
}

// Channels returns how many channels images must have at least.
func (p *TimmPolicies) Channels() int {
	most := 1
	for _, list := range p.Policies {
		most = max(most, channelsOf(list))
	}
	return most
}

// Draw draws the operations.
func (p *TimmPolicies) Draw(
	d *random.Draws, width, height int, act func(*Action) error,
) error {
	list := p.Policies[d.Python.Below(len(p.Policies))]
	for i := range list {
		if err := list[i].draw(d, width, height, p.Strict, act); err != nil {
			return err
		}
	}
	return nil
}

// ErrBits is returned for an image that Pillow refuses to posterize, from release 13 on.
var ErrBits = errors.New("bits must be between or equal to 1 and 8, and 0 were drawn: Pillow 13 " +
	"refuses to posterize to 0 bits")

// draw draws the operation with its probability, at a level drawn as AugmentOp does.
func (l *Level) draw(
	d *random.Draws, width, height int, strict bool, act func(*Action) error,
) error {
	if l.p < 1 && d.Python.Random() > l.p {
		return nil
	}
	magnitude := l.magnitude
	switch {
	case l.std < 0:
		magnitude = d.Python.Uniform(0, magnitude)
	case l.std > 0:
		magnitude = d.Python.Gauss(magnitude, l.std)
	}
	a := Action{Kind: l.kind, Name: l.name, Fill: l.fill.Levels}
	a.Amount = l.amount(l, max(0, min(magnitude, l.most)), d)
	if l.run != nil {
		l.run(l, &a, width, height, d)
	}
	if a.Kind == Posterize {
		switch {
		case a.Amount >= 8:
			return nil
		case a.Amount < 1 && strict:
			return ErrBits
		}
	}
	return act(&a)
}

// leveled is what an operation is at a level.
type leveled struct {
	kind Kind
	// amount returns what the operation takes, for a magnitude of usually at most 10 (timm's
	// LEVEL_TO_ARG).
	amount func(l *Level, magnitude float64, d *random.Draws) float64
	// run completes the action (timm's NAME_TO_OP); nil: it is complete.
	run func(l *Level, a *Action, width, height int, d *random.Draws)
}

// levels are timm's operations by their names.
var levels = map[string]leveled{
	"AutoContrast":         {AutoContrast, none, nil},
	"Equalize":             {Equalize, none, nil},
	"Invert":               {Invert, none, nil},
	"Rotate":               {Rotate, signedBy(30), interpolated},
	"Posterize":            {Posterize, bitsKept, nil},
	"PosterizeIncreasing":  {Posterize, fewerBits, nil},
	"PosterizeOriginal":    {Posterize, moreBits, nil},
	"Solarize":             {Solarize, threshold, nil},
	"SolarizeIncreasing":   {Solarize, lowerThreshold, nil},
	"SolarizeAdd":          {SolarizeAdd, added, nil},
	"Color":                {Color, enhanced, nil},
	"ColorIncreasing":      {Color, nearOne, nil},
	"Contrast":             {Contrast, enhanced, nil},
	"ContrastIncreasing":   {Contrast, nearOne, nil},
	"Brightness":           {Brightness, enhanced, nil},
	"BrightnessIncreasing": {Brightness, nearOne, nil},
	"Sharpness":            {Sharpness, enhanced, nil},
	"SharpnessIncreasing":  {Sharpness, nearOne, nil},
	"ShearX":               {Move, signedBy(0.3), sheared(1)},
	"ShearY":               {Move, signedBy(0.3), sheared(3)},
	"TranslateX":           {Move, moved, sheared(2)},
	"TranslateY":           {Move, moved, sheared(5)},
	"TranslateXRel":        {Move, moved, shifted(2)},
	"TranslateYRel":        {Move, moved, shifted(5)},
	"Desaturate":           {Color, between(0.5, 1), desaturated},
	"GaussianBlur":         {Blur, between(0.1, 2), nil},
	"GaussianBlurRand":     {Blur, between(0, 1), blurred},
}

// denominator is the magnitude that timm's levels are relative to.
const denominator = 10.0

func none(*Level, float64, *random.Draws) float64 { return 0 }

// sign returns x with a sign drawn as _randomly_negate does.
func sign(x float64, d *random.Draws) float64 {
	if d.Python.Random() > 0.5 {
		return -x
	}
	return x
}

func signedBy(most float64) func(*Level, float64, *random.Draws) float64 {
	return func(_ *Level, m float64, d *random.Draws) float64 {
		return sign(float64(m/denominator)*most, d)
	}
}

func moved(l *Level, m float64, d *random.Draws) float64 {
	return sign(float64(m/denominator)*l.translate, d)
}

func enhanced(_ *Level, m float64, _ *random.Draws) float64 {
	return float64(float64(m/denominator)*1.8) + 0.1
}

func nearOne(_ *Level, m float64, d *random.Draws) float64 {
	return max(0.1, 1+sign(float64(m/denominator)*0.9, d))
}

func between(least, most float64) func(*Level, float64, *random.Draws) float64 {
	return func(_ *Level, m float64, _ *random.Draws) float64 {
		x := least + float64((most-least)*float64(m/denominator))
		return max(least, min(most, x))
	}
}

func bitsKept(_ *Level, m float64, _ *random.Draws) float64 {
	return math.Trunc(float64(m/denominator) * 4)
}

func fewerBits(l *Level, m float64, d *random.Draws) float64 { return 4 - bitsKept(l, m, d) }

func moreBits(l *Level, m float64, d *random.Draws) float64 { return 4 + bitsKept(l, m, d) }

func threshold(_ *Level, m float64, _ *random.Draws) float64 {
	return min(256, math.Trunc(float64(m/denominator)*256))
}

func lowerThreshold(l *Level, m float64, d *random.Draws) float64 {
	return 256 - threshold(l, m, d)
}

func added(_ *Level, m float64, _ *random.Draws) float64 {
	return min(128, math.Trunc(float64(m/denominator)*110))
}

// interpolated draws the interpolation, as _interpolation does.
func interpolated(l *Level, a *Action, _, _ int, d *random.Draws) {
	a.Filter = l.filters[0]
	if n := len(l.filters); n > 1 {
		a.Filter = l.filters[d.Python.Below(n)]
	}
}

// sheared sets an element of the matrix.
func sheared(element int) func(*Level, *Action, int, int, *random.Draws) {
	return func(l *Level, a *Action, width, height int, d *random.Draws) {
		a.Matrix = [6]float64{0: 1, 4: 1}
		a.Matrix[element] = a.Amount
		interpolated(l, a, width, height, d)
	}
}

// shifted is sheared for the elements that move the image, by a share of the edge.
func shifted(element int) func(*Level, *Action, int, int, *random.Draws) {
	return func(l *Level, a *Action, width, height int, d *random.Draws) {
		edge := width
		if element == 5 {
			edge = height
		}
		a.Amount *= float64(edge)
		sheared(element)(l, a, width, height, d)
	}
}

func desaturated(_ *Level, a *Action, _, _ int, _ *random.Draws) {
	a.Amount = min(1, max(0, 1-a.Amount))
}

func blurred(_ *Level, a *Action, _, _ int, d *random.Draws) {
	a.Amount = d.Python.Uniform(0.1, float64(2*a.Amount))
}
