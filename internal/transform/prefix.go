package transform

import (
	"github.com/hdmlp/hdmlp/internal/transform/forms"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Prefix is the longest beginning of a Program that draws nothing, if it makes images of one size:
// of Resize(256), CenterCrop(224), ToTensor() the first two. What it makes of an image is the same
// in every epoch, and can be kept as a form. It is immutable.
type Prefix struct {
	forms.Prefix
	program *Program // of its steps alone
}

// Prefix returns the Program's Prefix; nil: it has none. Of images that are decoded at reduced
// sizes there is none, since how far they are reduced depends on the steps after it.
func (p *Program) Prefix() *Prefix { return p.prefix }

// Worker returns what makes the Prefix's images.
func (p *Prefix) Worker() *Worker { return p.program.Worker() }

// prefixOf returns the Prefix of a Program; nil: it has none. Its steps work on images, and hold as
// values all that their results follow from.
func prefixOf(p *Program) *Prefix {
	of, described := &Program{known: known{target: pixels.Target{Layout: pixels.HWC}}}, []any{}
	for i, s := range p.steps {
		switch s.(type) {
		case decode, resized, centered, padded, gray: // what draws nothing
			of.add(p.names[i], s, p.positions[i])
			described = append(described, p.names[i], s)
			continue
		}
		break
	}
	k, sized := &of.known, of.follow(0) == nil && of.prepare() == nil
	if !sized || !p.TakesForm(0) || p.known.joint != nil || p.known.fast || p.Ragged() {
		return nil
	}
	return &Prefix{forms.PrefixOf(k.width, k.height, k.channels, described), of}
}
