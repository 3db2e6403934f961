package transform

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Views makes several tensors of an image, as DINO's or MoCo's transforms do. Each has a list of
// transforms, which starts from the image at this place; it is decoded once. The random numbers of
// a list go on where those of the list before it ended: all come from the generators of this entry.
//
//	views  for each view a transform, or a list of them
//	n      views is one such list, and makes so many views
var views = kind{
	name:   "Views",
	help:   "several views of an image, each by a list of its own; it is decoded once",
	params: []param{{"views", ""}, {"n", "null"}},
	build:  func(a *arguments) step { return viewed{a.lists()} },
}

// maxViews is the most views of an image.
const maxViews = 64

type viewed struct{ lists [][]namedStep }

// A namedStep is an entry of a view's list.
type namedStep struct {
	name string
	step step
}

// lists returns the list of each view.
func (a *arguments) lists() [][]namedStep {
	const allowed = "a transform or a list of them for each view, or one such list, and n"
	var given json.RawMessage
	if !a.Decode("views", &given, allowed) {
		return nil
	}
	if !a.None("n") {
		list := a.list(0, given)
		return slices.Repeat([][]namedStep{list}, a.Whole("n", 1, maxViews))
	}
	var views []json.RawMessage
	if json.Unmarshal(given, &views) != nil || len(views) == 0 || len(views) > maxViews {
		a.Fault("views", "it must be %s; at least 1 view and at most %d", allowed, maxViews)
		return nil
	}
	var lists [][]namedStep
	for i, v := range views {
		lists = append(lists, a.list(i, v))
	}
	return lists
}

// list builds the list of a view.
func (a *arguments) list(view int, given json.RawMessage) (list []namedStep) {
	entries, err := describe.Flatten(given)
	if err != nil {
		a.Fault("views", "view %d must be a transform, or a list of them", view)
	}
	for i, entry := range entries {
		s, name, faults := a.nested(i, entry)
		for _, f := range faults {
			a.Faults = append(a.Faults, fmt.Errorf("%s: view %d: %w", a.Place, view, f))
		}
		list = append(list, namedStep{name, s})
	}
	return list
}

func (s viewed) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	if k.within {
		return errors.New("a view has no views of its own")
	}
	bytes := 0
	for i, list := range s.lists {
		of := *k
		of.views, of.within = nil, true
		for j, entry := range list {
			if err := of.pass(entry.step); err != nil {
				return fmt.Errorf("view %d: %s: %w", i, place(j, entry.name), err)
			}
		}
		if of.stage == sizes {
			return fmt.Errorf("view %d: Ragged is no part of a view", i)
		}
		if err := of.complete(); err != nil {
			return fmt.Errorf("view %d: %w", i, err)
		}
		if bytes += of.output().Bytes(); bytes > maxOutput {
			return fmt.Errorf("the views have too many pixels; all together are limited to %d MiB",
				maxOutput>>20)
		}
		k.views = append(k.views, of)
	}
	k.stage = several
	return nil
}

// Views reports whether samples become several views; there are as many Outputs.
func (p *Program) Views() bool { return p.known.stage == several }

// A chain makes one of the views.
type chain struct {
	steps   []step
	names   []int // of the steps, among those of the Program
	known   *known
	packer  *pixels.Packer
	packed  int // the name that packing is charged to
	bytes   int
	erasers []*pixels.Eraser
}

// prepareViews is prepare for a Program with views.
func (p *Program) prepareViews() (err error) {
	own := len(p.names)
	named := func(name string) int {
		name = views.name + ": " + name
		i := slices.Index(p.names[own:], name)
		if i < 0 {
			i = len(p.names) - own
			p.names = append(p.names, name)
		}
		return own + i
	}
	for i, list := range p.steps[own-1].(viewed).lists {
		k := &p.known.views[i]
		c := chain{known: k, packed: own - 1, bytes: k.output().Bytes()}
		for _, entry := range list {
			name := named(entry.name)
			c.steps = append(c.steps, entry.step)
			c.names = append(c.names, name)
			if entry.name == toTensor.name {
				c.packed = name
			}
		}
		c.erasers = k.erasers(c.steps)
		if c.packer, err = pixels.NewPacker(k.target); err != nil {
			return fmt.Errorf("transforms: view %d: %w", i, err)
		}
		p.views = append(p.views, c)
	}
	return nil
}

// views makes the views of the image, once the steps before them are applied. The pixels from which
// they start are computed once.
func (w *Worker) views(alloc Alloc, item uint64) error {
	p, v := w.program, &w.view
	w.lap(w.step)
	w.step = len(p.steps) - 1
	w.draws.Begin(item, p.positions[w.step])
	if err := v.compute(); err != nil {
		return err
	}
	v.share()
	start := *v
	for i := range p.views {
		*v = start
		if err := w.chain(&p.views[i], i, alloc); err != nil {
			return err
		}
	}
	return nil
}

// chain makes a view of the shared image.
func (w *Worker) chain(c *chain, view int, alloc Alloc) error {
	v := &w.view
	w.known = c.known
	w.eraseNothing()
	for i, s := range c.steps {
		m, ok := s.(mover)
		if !ok {
			continue
		}
		w.lap(w.step)
		w.step, w.index = c.names[i], i
		if err := m.apply(v, &w.draws); err != nil {
			return err
		}
	}
	dst, err := alloc(view, c.bytes)
	if err != nil {
		return err
	}
	if err := v.compute(); err != nil {
		return err
	}
	w.lap(w.step)
	w.step = c.packed
	c.packer.Pack(dst, &v.source, v.mirror)
	w.erase(dst, c.erasers)
	return nil
}

// share keeps the image, which was computed, while views are made of it: both of the worker's
// buffers are free then.
func (v *view) share() {
	w := v.w
	w.base, w.buffers[v.buffer] = w.buffers[v.buffer], w.base
	w.taken += w.spared[0] + w.spared[1]
	w.spared = [2]int64{}
	v.shared = true
}

// own makes a copy of the shared image that may be changed.
func (v *view) own() error {
	src := v.source
	if err := v.w.spare(1-v.buffer, src.Width, src.Height, src.Channels); err != nil {
		return err
	}
	dst := v.spare()
	dst.Reset(src.Width, src.Height, src.Channels)
	for y := range src.Height {
		copy(dst.Row(y), src.Row(y))
	}
	v.become()
	return nil
}
