// Package learning draws conclusions from which files the items of a script's datasets open: what
// to give a loader of hdmlp as files=, and what that would serve. It has what processes of the
// script send (package instrument, the hook hdmlp_learn), and does no I/O.
package learning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Seen collects what processes send. It is not safe for concurrent use.
type Seen struct {
	datasets map[name]*dataset
}

// name distinguishes the datasets of a script.
type name struct {
	Number int    `json:"number"` // in the order in which they are used
	Class  string `json:"class"`
	Length int    `json:"length"` // -1: it has none
}

// dataset is what was seen of one.
type dataset struct {
	looks map[int][]look
	kinds map[string]*kind
}

// kind is the items for which the same expressions are evaluated: all of a dataset, named "", or
// those of the parts of a ConcatDataset that have the same class, which names it.
type kind struct {
	looks       map[int][]look
	expressions map[string]*evaluated
}

// look is what was seen while an item was made.
type look struct {
	Files   []file   `json:"files"`
	Unseen  int64    `json:"unseen"` // bytes that no file accounts for
	Held    []string `json:"held"`   // files that were open before
	Mapped  []string `json:"mapped"` // files in memory
	Failed  string   `json:"failed"` // the class of the exception; "": none
	Problem string   `json:"problem"`
}

// file is one that was opened.
type file struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	How  string `json:"how"` // "": so that files= would have served it
}

// evaluated is what an expression names.
type evaluated struct {
	names  int                     // files of an item
	raised string                  // the class of the exception; "": it raised none
	items  map[int]map[string]bool // by index: the files that the item opened
	more   map[int]int             // by index: files that it did not open
	others Others
}

// Others is for how many other items an expression names files that exist.
type Others struct {
	Exist int `json:"exist"`
	Of    int `json:"of"`
}

// message is what a process sends of an item, or of expressions.
type message struct {
	Event   string `json:"event"`
	Dataset name   `json:"dataset"`
	Index   int    `json:"index"`
	Kind    string `json:"kind"`
	look
	Expressions []result `json:"expressions"` // for the item

	Text   string `json:"text"`
	Exist  int    `json:"exist"`
	Others int    `json:"others"`
	Raised string `json:"raised"`
}

// result is what an expression names for an item.
type result struct {
	Text   string   `json:"text"`
	Names  int      `json:"names"`
	Paths  []string `json:"paths"` // that the item opened
	More   int      `json:"more"`  // that it did not
	Raised string   `json:"raised"`
}

// Take adds a message of a process.
func (s *Seen) Take(line []byte) error {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("a message of the script's processes: %w", err)
	}
	d := s.datasets[m.Dataset]
	if d == nil {
		if s.datasets == nil {
			s.datasets = map[name]*dataset{}
		}
		d = &dataset{looks: map[int][]look{}, kinds: map[string]*kind{}}
		s.datasets[m.Dataset] = d
	}
	k := d.kinds[m.Kind]
	if k == nil {
		k = &kind{looks: map[int][]look{}, expressions: map[string]*evaluated{}}
		d.kinds[m.Kind] = k
	}
	switch m.Event {
	case "item":
		d.looks[m.Index] = append(d.looks[m.Index], m.look)
		k.looks[m.Index] = d.looks[m.Index]
	case "named":
		for _, r := range m.Expressions {
			k.expression(r.Text).take(m.Index, r)
		}
	case "others":
		e := k.expression(m.Text)
		e.others = Others{m.Exist, m.Others}
		e.raised = cmp.Or(e.raised, m.Raised)
	default:
		return fmt.Errorf("unknown message %q", m.Event)
	}
	return nil
}

// expression returns what is collected of an expression.
func (k *kind) expression(text string) *evaluated {
	e := k.expressions[text]
	if e == nil {
		e = &evaluated{items: map[int]map[string]bool{}, more: map[int]int{}}
		k.expressions[text] = e
	}
	return e
}

// take adds what it names for an item, which may have been made several times.
func (e *evaluated) take(index int, r result) {
	e.raised = cmp.Or(e.raised, r.Raised)
	e.names = max(e.names, r.Names)
	if e.items[index] == nil {
		e.items[index] = map[string]bool{}
		e.more[index] = r.More
	}
	for _, path := range r.Paths {
		e.items[index][path] = true
	}
	e.more[index] = min(e.more[index], r.More)
}

// Answers returns what follows for each dataset, in the order in which the script used them.
func (s *Seen) Answers() []Answer {
	names := slices.SortedFunc(maps.Keys(s.datasets), func(a, b name) int {
		return cmp.Or(a.Number-b.Number, cmp.Compare(a.Class, b.Class), a.Length-b.Length)
	})
	answers := []Answer{}
	for _, n := range names {
		if d := s.datasets[n]; len(d.looks) > 0 {
			answers = append(answers, d.answer(n))
		}
	}
	return answers
}
