package transform

// RandomHorizontalFlip mirrors an image horizontally with probability p.
var randomHorizontalFlip = kind{
	name:   "RandomHorizontalFlip",
	params: []param{{"p", "0.5"}},
	joint:  ofAll,
	build:  func(a *arguments) step { return flipped{p: a.Chance("p")} },
}

// RandomVerticalFlip mirrors an image vertically with probability p.
var randomVerticalFlip = kind{
	name:   "RandomVerticalFlip",
	params: []param{{"p", "0.5"}},
	joint:  ofAll,
	build:  func(a *arguments) step { return flipped{p: a.Chance("p"), vertical: true} },
}

type flipped struct {
	p        float32
	vertical bool
}

func (s flipped) follow(k *known) error { return k.image() }

func (s flipped) apply(v *view, d *draws) error {
	flip := d.Torch.Rand() < s.p
	if flip {
		v.flip(s.vertical)
		v.note(Param{"flip", 1})
	} else {
		v.note(Param{"flip", 0})
	}
	return nil
}
