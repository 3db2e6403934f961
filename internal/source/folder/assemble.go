package folder

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/source"
	format "github.com/hdmlp/hdmlp/internal/source/formats/classes"
)

// assemble builds the index of a scanned tree.
func (s *scanner) assemble(root *node) (result, error) {
	classes := root.children
	slices.SortFunc(classes, func(a, b *node) int { return format.Compare(a.path, b.path) })
	if len(classes) == 0 {
		return result{}, &source.Error{
			Path: s.root.Path(), Kind: source.ErrNoClasses,
			Hint: "it must hold one subdirectory per class, with the samples of the " +
				"class below it",
		}
	}
	res := result{all: 1, listed: 1} // the root, which is always listed
	names := make([]string, len(classes))
	trees := make([][]*node, len(classes))
	total := 0
	var empty []string
	for i, class := range classes {
		names[i] = class.path
		tree := flatten(nil, class)
		slices.SortFunc(tree, func(a, b *node) int { return format.Compare(a.path, b.path) })
		trees[i] = tree
		samples := 0
		for _, n := range tree {
			samples += s.sizeOf(n)
			res.all++
			if !n.kept {
				res.listed++
			}
		}
		if samples == 0 {
			empty = append(empty, class.path)
		}
		total += samples
	}
	if len(empty) > 0 {
		return result{}, format.EmptyError(s.root.Path(), empty, len(classes), s.extensions)
	}
	if s.known != nil && res.listed == 1 && slices.Equal(names, s.known.Classes()) &&
		res.all == len(s.numbers) {
		res.index = s.known
		return res, nil
	}
	b := source.NewBuilder(names, s.extensions)
	b.Grow(total)
	// The times of the root are not stored: it is listed at every start, and the index file changes
	// them.
	b.Directory(source.Directory{Class: -1})
	for class, tree := range trees {
		for _, n := range tree {
			d := source.Directory{
				Path: n.path, Class: class,
				Modified: n.modified, Changed: n.changed, Settled: n.settled,
			}
			if n.kept {
				b.Copy(s.known, n.known, d)
				continue
			}
			b.Directory(d)
			for _, f := range n.samples {
				b.Sample(f.name, f.size, f.modified, f.stamp)
			}
			n.samples = nil
		}
	}
	index, err := b.Build()
	if err != nil {
		return result{}, fmt.Errorf("scan %s: %w", s.root.Path(), err)
	}
	res.index = index
	return res, nil
}

// sizeOf returns the number of samples in directory n itself.
func (s *scanner) sizeOf(n *node) int {
	if n.kept {
		d := s.known.Directory(n.known)
		return d.End - d.First
	}
	return len(n.samples)
}

// flatten appends n and all directories below it to list.
func flatten(list []*node, n *node) []*node {
	list = append(list, n)
	for _, child := range n.children {
		list = flatten(list, child)
	}
	return list
}
