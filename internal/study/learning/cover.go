package learning

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// pair is a file that an item opens.
type pair struct {
	index int
	path  string
}

// pairs returns the files that items open and that can be servek.
func pairs(looks map[int][]look, servable func(file) bool) map[pair]bool {
	all := map[pair]bool{}
	for index, each := range looks {
		for _, l := range each {
			for _, f := range l.Files {
				if servable(f) {
					all[pair{index, f.Path}] = true
				}
			}
		}
	}
	return all
}

// choice is the expressions that a proposal is made of.
type choice struct {
	expressions     []Expression
	covered         map[pair]bool // the files that they name
	verified, items int           // items of which they name all files, and items
}

// choose takes expressions, each the one that names most of the files that are left, until none
// names one of most items'.
func (k *kind) choose(all map[pair]bool) choice {
	c := choice{expressions: []Expression{}, covered: map[pair]bool{}}
	usable := k.usable()
	for {
		best, holds := k.best(usable, all, c.covered)
		if len(holds) == 0 {
			break
		}
		items := map[int]bool{}
		for _, p := range holds {
			c.covered[p] = true
			items[p.index] = true
		}
		best.Items = len(items)
		c.expressions = append(c.expressions, best)
	}
	missed, items := map[int]bool{}, map[int]bool{}
	for p := range all {
		items[p.index] = true
		if !c.covered[p] {
			missed[p.index] = true
		}
	}
	c.items, c.verified = len(items), len(items)-len(missed)
	return c
}

// usable returns the expressions that were evaluated for all items that were looked at, and raised
// nothing: HDMLP evaluates them for every item.
func (k *kind) usable() map[string]*evaluated {
	usable := maps.Clone(k.expressions)
	maps.DeleteFunc(usable, func(_ string, e *evaluated) bool {
		if e.raised != "" {
			return true
		}
		for index, looks := range k.looks {
			_, is := e.items[index]
			if !is && !slices.ContainsFunc(looks, func(l look) bool { return l.Problem != "" }) {
				return true
			}
		}
		return false
	})
	return usable
}

// best returns the expression that names most of the files that are not covered, and these; none if
// it names those of less than half of the items that have any.
func (k *kind) best(usable map[string]*evaluated, all, covered map[pair]bool) (Expression,
	[]pair,
) {
	open := map[int]bool{} // items with files that are not covered
	for p := range all {
		if !covered[p] {
			open[p.index] = true
		}
	}
	holds, texts := map[string][]pair{}, []string(nil)
	for text, e := range usable {
		items := 0
		for index, paths := range e.items {
			before := len(holds[text])
			for path := range paths {
				if p := (pair{index, path}); all[p] && !covered[p] {
					holds[text] = append(holds[text], p)
				}
			}
			if len(holds[text]) > before {
				items++
			}
		}
		if items > 0 && 2*items >= len(open) && (items > 1 || len(k.looks) == 1) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		return Expression{}, nil
	}
	best := slices.MinFunc(texts, func(a, b string) int {
		e, f := usable[a], usable[b]
		return cmp.Or(
			cmp.Compare(len(holds[b]), len(holds[a])), cmp.Compare(e.superfluous(), f.superfluous()),
			cmp.Compare(e.names, f.names), cmp.Compare(f.others.share(), e.others.share()),
			cmp.Compare(literal(a), literal(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b),
		)
	})
	e := usable[best]
	return Expression{
		Text: best, Names: e.names, Superfluous: e.superfluous(), Others: e.others,
	}, holds[best]
}

// superfluous returns how many files an expression names that items do not open.
func (e *evaluated) superfluous() int {
	n := 0
	for _, more := range e.more {
		n += more
	}
	return n
}

// share returns the part of the other items for which there are the files.
func (o Others) share() float64 { return float64(o.Exist) / float64(max(o.Of, 1)) }

// literal returns how much of an expression is text between double quotes, as the processes write
// what follows from no attribute of the dataset.
func literal(expression string) int {
	n := 0
	for i, part := range strings.Split(expression, `"`) {
		if i%2 == 1 {
			n += len(part)
		}
	}
	return n
}
