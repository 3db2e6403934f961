package transform

import (
	"encoding/json"
	"errors"
	"fmt"
)

// nested is a list of transforms of images within a transform. All draw from the generators of the
// outer one, one after the other.
type nested struct {
	steps []mover
	names []string
}

// follow follows all steps in their order.
func (n *nested) follow(k *known) error {
	for i, step := range n.steps {
		if err := errors.Join(k.joins(n.names[i]), step.follow(k)); err != nil {
			return err
		}
	}
	return nil
}

// apply applies all steps in their order.
func (n *nested) apply(v *view, d *draws) error {
	for _, step := range n.steps {
		if err := step.apply(v, d); err != nil {
			return err
		}
	}
	return nil
}

// parts returns an argument that is a list, of transforms of images or of lists of them.
func (a *arguments) parts(name string) (parts []nested) {
	var list []json.RawMessage
	if a.Decode(name, &list, "a list of transforms") && len(list) == 0 {
		a.Fault(name, "it must not be empty")
	}
	for i, one := range list {
		if len(one) > 0 && one[0] != '[' {
			one = append(append([]byte{'['}, one...), ']')
		}
		parts = append(parts, a.steps(fmt.Sprintf("%s[%d]", name, i), one))
	}
	if len(parts) == 0 {
		return make([]nested, 1)
	}
	return parts
}

// steps converts a list of transforms of images, which is the argument of that name, or a part of
// it.
func (a *arguments) steps(name string, raw json.RawMessage) (n nested) {
	var list []map[string]json.RawMessage
	if raw != nil && json.Unmarshal(raw, &list) != nil {
		a.Faults = append(a.Faults, fmt.Errorf("%s: %s must be a list of transforms", a.Place, name))
	}
	for i, entry := range list {
		s, name, faults := a.nested(i, entry)
		for _, fault := range faults {
			a.Faults = append(a.Faults, fmt.Errorf("%s: %s: %w", a.Place, name, fault))
		}
		m, ok := s.(mover)
		if _, erases := s.(eraser); s != nil && (!ok || erases) {
			a.Faults = append(a.Faults, fmt.Errorf("%s: %s: only transforms of images can be in it",
				a.Place, name))
		} else if ok {
			n.steps, n.names = append(n.steps, m), append(n.names, name)
		}
	}
	return n
}

// either makes k what is known of images that are as in k or as in other.
func (k *known) either(other known) error {
	if k.stage != other.stage {
		return errors.New("only transforms of images can be within it")
	}
	if k.channels != other.channels {
		return errors.New("some images would have one channel and others three")
	}
	if k.width != other.width || k.height != other.height {
		k.width, k.height = 0, 0
		k.varies = "images have different sizes after a random transform; add Resize((224, 224)) " +
			"or CenterCrop(224) after it"
	}
	if k.shorter != other.shorter {
		k.shorter = 0
	}
	return nil
}
