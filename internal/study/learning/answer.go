package learning

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Answer is what follows for a dataset.
type Answer struct {
	Class    string  `json:"class"`
	Length   int     `json:"length"` // items; -1: the dataset has no length
	Items    int     `json:"items"`  // that were looked at
	Looks    int     `json:"looks"`  // as often
	PerItem  PerItem `json:"per_item"`
	Proposal string  `json:"proposal"` // the argument of ht.DataLoader; "": there is none
	Native   bool    `json:"native"`   // hdmlp reads the dataset without files=
	// Otherwise is the proposal if files were opened with open() that are not; "": it is the same.
	Otherwise string `json:"otherwise"`
	// Verified is for how many of the items that open files which could be served the proposal names
	// all of these, of Verifiable.
	Verified    int          `json:"verified"`
	Verifiable  int          `json:"verifiable"`
	Expressions []Expression `json:"expressions"` // of the proposal
	Files       Share        `json:"files"`       // that items opened, counted once for each time
	Content     Share        `json:"content"`     // bytes
	Left        []Left       `json:"left"`        // what is not served
	Varies      Varies       `json:"varies"`
	Failed      []Failed     `json:"failed"`
	Example     *Example     `json:"example"` // of an item's files; nil: none opened any
}

// PerItem is what an item opens, on average.
type PerItem struct {
	Files float64 `json:"files"`
	Bytes float64 `json:"bytes"`
}

// Expression is for a file of an item.
type Expression struct {
	Text        string `json:"text"`
	Names       int    `json:"names"`       // how many files
	Items       int    `json:"items"`       // for which it names a file that they open
	Superfluous int    `json:"superfluous"` // files of all items that were looked at, not opened
	Others
}

// Share is a part of a whole.
type Share struct {
	Served int64 `json:"served"`
	All    int64 `json:"all"`
}

// Left is what is not served.
type Left struct {
	Why     string `json:"why"`
	Advice  string `json:"advice"`
	Files   int64  `json:"files"` // 0: bytes that were read of none that was seen
	Bytes   int64  `json:"bytes"`
	Example string `json:"example"` // a path; "": there is none
}

// Varies is of how many items that were made several times the files differed.
type Varies struct {
	Items   int      `json:"items"`
	Of      int      `json:"of"`
	Index   int      `json:"index"`   // of the first
	Example []string `json:"example"` // a file that it opened one time only, or two such
}

// Failed is how many items raised an exception.
type Failed struct {
	Class string `json:"class"`
	Items int    `json:"items"`
	Index int    `json:"index"` // of the first

	last int // the index of the last
}

// Example has the files of an item.
type Example struct {
	Index int      `json:"index"`
	Paths []string `json:"paths"`
}

// shared is how many items may read a file that files= serves.
const shared = 64

// native are classes that hdmlp reads without files=.
var native = []string{
	"torchvision.datasets.folder.ImageFolder", "torchvision.datasets.folder.DatasetFolder",
}

// answer draws the conclusions.
func (d *dataset) answer(n name) Answer {
	a := Answer{
		Class: n.Class, Length: n.Length, Items: len(d.looks), Native: slices.Contains(native, n.Class),
		Expressions: []Expression{}, Left: []Left{}, Failed: []Failed{},
	}
	d.discard()
	readers := d.readers()
	private := func(f file) bool { return !d.isShared(readers[f.Path], n) }
	covered := d.propose(&a, func(f file) bool { return private(f) && f.How == "" })
	var otherwise Answer
	if d.propose(&otherwise, private); otherwise.Proposal != a.Proposal {
		a.Otherwise = otherwise.Proposal
	}
	d.count(&a, n, covered)
	d.vary(&a)
	return a
}

// below is how a file was opened of which only the kernel reports that it was, in any process.
const below = "below Python"

// discard removes reports of the kernel about files that other processes opened with open() at the
// same time.
func (d *dataset) discard() {
	opened := map[string]bool{}
	for _, looks := range d.looks {
		for _, l := range looks {
			for _, f := range l.Files {
				opened[f.Path] = opened[f.Path] || f.How != below
			}
		}
	}
	for _, looks := range d.looks {
		for i, l := range looks {
			looks[i].Files = slices.DeleteFunc(l.Files, func(f file) bool {
				return f.How == below && opened[f.Path]
			})
		}
	}
}

// propose chooses expressions for files, and returns the files that they name.
func (d *dataset) propose(a *Answer, of func(file) bool) map[pair]bool {
	covered, chosen := map[pair]bool{}, map[string][]Expression{}
	for _, name := range slices.Sorted(maps.Keys(d.kinds)) {
		k := d.kinds[name]
		c := k.choose(pairs(k.looks, of))
		a.Expressions = append(a.Expressions, c.expressions...)
		a.Verified += c.verified
		a.Verifiable += c.items
		maps.Copy(covered, c.covered)
		chosen[name] = c.expressions
	}
	a.Proposal = proposal(chosen)
	return covered
}

// readers returns how many items open each file.
func (d *dataset) readers() map[string]int {
	count := map[string]int{}
	for _, looks := range d.looks {
		for path := range pathsOf(looks) {
			count[path]++
		}
	}
	return count
}

// isShared reports whether more items read a file than files= allows: of those that were looked at,
// or, as far as these show it, of all.
func (d *dataset) isShared(items int, n name) bool {
	return items > shared || items > 1 && items == len(d.looks) && n.Length > shared
}

func pathsOf(looks []look) map[string]bool {
	paths := map[string]bool{}
	for _, l := range looks {
		for _, f := range l.Files {
			paths[f.Path] = true
		}
	}
	return paths
}

// vary finds the items that open other files at times.
func (d *dataset) vary(a *Answer) {
	for _, index := range slices.Sorted(maps.Keys(d.looks)) {
		looks := d.looks[index]
		if len(looks) < 2 {
			continue
		}
		a.Varies.Of++
		all := slices.Sorted(maps.Keys(pathsOf(looks)))
		different := slices.DeleteFunc(all, func(path string) bool {
			return !slices.ContainsFunc(looks, func(l look) bool {
				return l.Failed == "" && !pathsOf([]look{l})[path]
			})
		})
		if len(different) == 0 {
			continue
		}
		if a.Varies.Items++; a.Varies.Items == 1 {
			a.Varies.Index, a.Varies.Example = index, different[:min(2, len(different))]
		}
	}
}

// proposal returns the argument files= of ht.DataLoader; "": there is no expression.
//
// Of a ConcatDataset, expressions are of its parts, by their class.
func proposal(expressions map[string][]Expression) string {
	names := slices.Sorted(maps.Keys(expressions))
	if !slices.ContainsFunc(names, func(name string) bool { return len(expressions[name]) > 0 }) {
		return ""
	}
	if of, is := expressions[""]; is {
		return "files=lambda i: " + files(of)
	}
	last := len(names) - 1
	var text strings.Builder
	for _, name := range names[:last] {
		fmt.Fprintf(&text, "%s if type(part).__name__ == %q else ", files(expressions[name]), name)
	}
	text.WriteString(files(expressions[names[last]]))
	return "files=[" + text.String() + " for part in dataset.datasets for i in range(len(part))]"
}

// files returns the files that expressions name, as an expression.
func files(expressions []Expression) string {
	texts := make([]string, len(expressions))
	for i, e := range expressions {
		texts[i] = e.Text
		if e.Names > 1 && len(expressions) > 1 {
			texts[i] = "*" + e.Text
		}
	}
	if len(texts) == 1 {
		return texts[0]
	}
	return "(" + strings.Join(texts, ", ") + ")"
}
