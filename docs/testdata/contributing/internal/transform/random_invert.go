package transform

// randomInvert describes RandomInvert, which turns an image into its negative with probability p.
var randomInvert = kind{
	name:   "RandomInvert",
	params: []param{{"p", "0.5"}},
	build:  func(a *arguments) step { return inverted{p: a.chance("p")} },
}

type inverted struct{ p float32 }

func (s inverted) follow(k *known) error { return k.image() }

func (s inverted) apply(v *view, d *draws) error {
	if d.torch.rand() >= s.p {
		v.note(Param{"invert", 0})
		return nil
	}
	v.note(Param{"invert", 1})
	m, err := v.pixels()
	if err != nil {
		return err
	}
	for y := range m.Height {
		row := m.Row(y)
		for i := range row {
			row[i] = 255 - row[i]
		}
	}
	return nil
}
