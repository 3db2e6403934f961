package transform

import "encoding/json"

// RandomApply applies a list of transforms with probability p (in float32).
//
//	transforms  a list as Compile's, of transforms of images
//	draws       as torchvision's "v1", which applies them also if it draws p; or "v2"
var randomApply = kind{
	name:   "RandomApply",
	params: []param{{"transforms", ""}, {"p", "0.5"}, {"draws", `"v1"`}},
	joint:  ofAll,
	build: func(a *arguments) step {
		var list json.RawMessage
		a.Decode("transforms", &list, "a list of transforms")
		return &sometimes{a.steps("transforms", list), a.Chance("p"), a.Apart()}
	},
}

type sometimes struct {
	nested
	p  float32
	v2 bool
}

func (s *sometimes) follow(k *known) error {
	after := *k
	if err := s.nested.follow(&after); err != nil {
		return err
	}
	return k.either(after)
}

func (s *sometimes) apply(v *view, d *draws) error {
	if drawn := d.Torch.Rand(); drawn > s.p || s.v2 && drawn == s.p {
		return nil
	}
	return s.nested.apply(v, d)
}
