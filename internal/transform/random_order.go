package transform

// RandomOrder applies a list of transforms in random order.
//
//	transforms  as RandomApply's; each may be a list of them, which stay together
//	draws       "v1": with random.shuffle, as torchvision's v1; "v2": with torch.randperm, as v2
var randomOrder = kind{
	name:   "RandomOrder",
	params: []param{{"transforms", ""}, {"draws", `"v1"`}},
	joint:  ofAll,
	build:  func(a *arguments) step { return &shuffled{a.parts("transforms"), a.Apart()} },
}

type shuffled struct {
	parts []nested
	v2    bool
}

func (s *shuffled) follow(k *known) error {
	after := *k
	for i := range s.parts {
		if err := s.parts[i].follow(&after); err != nil {
			return err
		}
	}
	// In another order the last one may be another.
	for i := range s.parts {
		other := *k
		if err := s.parts[i].follow(&other); err != nil {
			return err
		}
		if err := after.either(other); err != nil {
			return err
		}
	}
	*k = after
	return nil
}

func (s *shuffled) apply(v *view, d *draws) error {
	order := make([]int, len(s.parts))
	if s.v2 {
		d.Torch.Permute(order)
	} else {
		d.Python.Shuffle(order)
	}
	for _, i := range order {
		if err := s.parts[i].apply(v, d); err != nil {
			return err
		}
	}
	return nil
}
