package transform

import "github.com/hdmlp/hdmlp/internal/transform/policy"

// The transforms of this file are those of training scripts: PIL's functions, with what Python's
// random module draws.

// PILGaussianBlur blurs an image as PIL's ImageFilter.GaussianBlur, with a random radius.
//
//	radius  [least, most] in pixels
//	p       it is applied if random.random() is at most p; null: always, and p is not drawn
var pilGaussianBlur = kind{
	name:   "PILGaussianBlur",
	help:   "PIL's GaussianBlur of a random radius, of the classes of MoCo and DINO",
	params: []param{{"radius", "[0.1, 2]"}, {"p", "null"}},
	build: func(a *arguments) step {
		s := byChance{kind: policy.Blur}
		s.from, s.to = a.Pair("radius", 0, 1000)
		s.p, s.always = a.perhaps()
		s.drawn = true
		return s
	},
}

// PILSolarize inverts the samples from a threshold on, as PIL's ImageOps.solarize.
//
//	threshold  a level
//	p          as PILGaussianBlur's
var pilSolarize = kind{
	name:   "PILSolarize",
	help:   "PIL's solarize, of the classes of MoCo v3 and DINO",
	params: []param{{"threshold", "128"}, {"p", "null"}},
	build: func(a *arguments) step {
		s := byChance{kind: policy.Solarize, from: a.Number("threshold", 0, 256)}
		s.p, s.always = a.perhaps()
		return s
	},
}

// perhaps returns the argument p, or that it is null.
func (a *arguments) perhaps() (p float64, always bool) {
	if a.None("p") {
		return 1, true
	}
	return a.Number("p", 0, 1), false
}

// byChance applies an operation whose chance, and whose amount between two numbers if it is drawn,
// Python's random module draws.
type byChance struct {
	kind     policy.Kind
	from, to float64
	drawn    bool
	p        float64
	always   bool
}

func (s byChance) follow(k *known) error { return k.image() }

func (s byChance) apply(v *view, d *draws) error {
	if !s.always && d.Python.Random() > s.p {
		return nil
	}
	amount := s.from
	if s.drawn {
		amount = d.Python.Uniform(s.from, s.to)
	}
	v.note(Param{"amount", amount})
	return v.adjust(s.kind, amount)
}
