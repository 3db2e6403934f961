package transform

// RandomChoice applies one of a list of transforms, drawn with random.choices as torchvision's v1.
//
//	transforms  as RandomApply's; each may be a list of them
//	p           a weight for each; null: all are equal
var randomChoice = kind{
	name:   "RandomChoice",
	params: []param{{"transforms", ""}, {"p", "null"}},
	joint:  ofAll,
	build: func(a *arguments) step {
		s := &chosen{choices: a.parts("transforms")}
		if !a.None("p") {
			sum := 0.0
			for _, weight := range a.Numbers("p", 0, 1e9, "a weight for each", len(s.choices)) {
				sum += weight
				s.sums = append(s.sums, sum)
			}
			if sum == 0 {
				a.Fault("p", "one weight must be above 0")
			}
		}
		return s
	},
}

type chosen struct {
	choices []nested
	sums    []float64 // of weights; nil: all are equal
}

func (s *chosen) follow(k *known) error {
	var merged known
	for i := range s.choices {
		after := *k
		if err := s.choices[i].follow(&after); err != nil {
			return err
		}
		if i == 0 {
			merged = after
		} else if err := merged.either(after); err != nil {
			return err
		}
	}
	*k = merged
	return nil
}

func (s *chosen) apply(v *view, d *draws) error {
	var i int
	if s.sums == nil {
		i = d.Python.Pick(len(s.choices))
	} else {
		i = d.Python.PickBy(s.sums)
	}
	v.note(Param{"choice", float64(i)})
	return s.choices[i].apply(v, d)
}
