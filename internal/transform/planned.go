package transform

import (
	"errors"
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// planning returns the transform of that name that applies what a policy draws.
func planning(name string) kind {
	e := policy.Entries[slices.IndexFunc(policy.Entries, func(e policy.Entry) bool {
		return e.Name == name
	})]
	k := kind{
		name: name, help: e.Help, params: e.Params,
		build: func(a *arguments) step { return planned{e.Build(&a.Arguments)} },
	}
	if e.Colours {
		k.joint = ofImages
	}
	return k
}

// planned applies what a policy draws.
type planned struct{ policy policy.Policy }

func (s planned) follow(k *known) error {
	if s.policy.Channels() > k.channels {
		return errors.New("fill has three numbers, and images have one channel")
	}
	return k.image()
}

func (s planned) apply(v *view, d *draws) error {
	width, height := v.size()
	return s.policy.Draw(d, width, height, v.act)
}
