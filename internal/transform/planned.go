package transform

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/planned"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// planning returns the transforms that apply what a policy draws.
func planning() (list []kind) {
	for _, e := range planned.Entries {
		k := kind{name: e.Name, help: e.Help, params: e.Params}
		k.build = func(a *arguments) step { return byPolicy{e.Build(&a.Arguments)} }
		if e.Colours {
			k.joint = ofImages
		}
		list = append(list, k)
	}
	return list
}

// byPolicy applies what a policy draws.
type byPolicy struct{ policy policy.Policy }

func (s byPolicy) follow(k *known) error {
	if s.policy.Channels() > k.channels {
		return errors.New("fill has three numbers, and images have one channel")
	}
	return k.image()
}

func (s byPolicy) apply(v *view, d *draws) error {
	width, height := v.size()
	return s.policy.Draw(d, width, height, v.act)
}
