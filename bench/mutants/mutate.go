package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// Mutant is one planted defect.
type Mutant struct {
	// Key names it in results and lists: file, function, kind and text; "#2" is the second of equal
	// ones in a function. Unlike a line number it survives changes elsewhere in the file.
	Key      string
	Room     string
	Dir      string // the package's directory, relative to the module's root
	File     string
	Line     int
	Kind     string
	Text     string // what is changed
	Security bool
	Written  bool // by hand, in patches/

	id int // in its package
}

// source is a file with the edits that plant its mutants. Each edit is guarded by a mutant's
// number, so that the program behaves as before unless that number is switched on.
type source struct {
	name    string // relative to the module's root
	text    string
	file    *ast.File
	set     *token.FileSet
	mutants []*Mutant
	edits   []edit
}

// edit replaces text[from:to]. Those that are put around something are two, which know where the
// other one is.
type edit struct {
	from, to int
	with     string
	mutant   *Mutant
	closes   bool // ends what another edit has begun
	other    int
}

func parse(name, text string) (*source, error) {
	s := &source{name: name, text: text, set: token.NewFileSet()}
	var err error
	s.file, err = parser.ParseFile(s.set, name, text, parser.ParseComments|
		parser.SkipObjectResolution)
	return s, err
}

func (s *source) offset(p token.Pos) int { return s.set.Position(p).Offset }

func (s *source) textOf(n ast.Node) string { return s.text[s.offset(n.Pos()):s.offset(n.End())] }

// Where it can, an edit asks for its number only if the mutant makes a difference there: a mutant
// that no test reaches need not be run.

// add plants a mutant of n.
func (s *source) add(n ast.Node, function, kind, text string) *Mutant {
	m := &Mutant{
		File: s.name, Line: s.set.Position(n.Pos()).Line, Kind: kind, Text: oneLine(text),
		Key: fmt.Sprintf("%s: %s: %s: %s", s.name, function, kind, oneLine(text)),
	}
	s.mutants = append(s.mutants, m)
	return m
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 90 {
		return text[:80] + "..." + text[len(text)-7:]
	}
	return text
}

// number stands for a mutant's number in the text of edits.
const number = "<number>"

// around puts text before and after n.
func (s *source) around(m *Mutant, n ast.Node, before, after string) {
	s.between(m, s.offset(n.Pos()), s.offset(n.End()), before, after)
}

func (s *source) between(m *Mutant, from, to int, before, after string) {
	s.edits = append(s.edits,
		edit{from: from, to: from, with: before, mutant: m, other: to},
		edit{from: to, to: to, with: after, mutant: m, closes: true, other: from})
}

// render returns the file with the edits of all mutants that are not discarded. Edits add no line,
// so that messages name the file's own lines.
func (s *source) render(discarded map[*Mutant]bool) string {
	type placed struct {
		edit
		nr int
	}
	var all []placed
	for k, e := range s.edits {
		if !discarded[e.mutant] {
			all = append(all, placed{e, k})
		}
	}
	slices.SortFunc(all, func(a, b placed) int {
		switch {
		case a.from != b.from:
			return a.from - b.from
		case a.closes && !b.closes:
			return -1
		case b.closes && !a.closes:
			return 1
		case a.other != b.other: // what is longer is around what is shorter
			return b.other - a.other
		case a.closes:
			return b.nr - a.nr
		}
		return a.nr - b.nr
	})
	var out strings.Builder
	at := 0
	for _, e := range all {
		out.WriteString(s.text[at:e.from])
		out.WriteString(strings.ReplaceAll(e.with, number, strconv.Itoa(e.mutant.id)))
		at = e.to
	}
	out.WriteString(s.text[at:])
	return out.String()
}

// mutate plants the mutants of all functions.
func (s *source) mutate() {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || slices.Contains(wordsOnly, f.Name.Name) {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			name = strings.TrimLeft(s.textOf(f.Recv.List[0].Type), "*") + "." + name
		}
		(&walker{source: s, function: name, locks: map[string]*Mutant{}}).walk(f.Body, f.Type)
	}
	seen := map[string]int{}
	for _, m := range s.mutants {
		seen[m.Key]++
		if n := seen[m.Key]; n > 1 {
			m.Key += fmt.Sprintf(" #%d", n)
		}
	}
}

// wordsOnly are functions that only make texts for people.
var wordsOnly = []string{"String", "GoString", "LogValue", "Error"}

// walker plants the mutants of a function.
type walker struct {
	*source
	function string
	locks    map[string]*Mutant // of each mutex, its calls of Lock and Unlock
}

// walk plants the mutants below n, which belongs to a function of the given type.
func (w *walker) walk(n ast.Node, within *ast.FuncType) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			w.walk(n.Body, n.Type)
			return false
		case *ast.GenDecl:
			return n.Tok == token.VAR // constants cannot be changed while the program runs
		case *ast.ArrayType:
			return false
		case *ast.BlockStmt:
			w.statements(n.List, within)
		case *ast.CaseClause:
			w.statements(n.Body, within)
		case *ast.CommClause:
			w.statements(n.Body, within)
		case *ast.IfStmt:
			w.condition(n)
		case *ast.BinaryExpr:
			w.binary(n)
		}
		return true
	})
}

// condition negates a condition; one that guards what follows it is also left out.
func (w *walker) condition(n *ast.IfStmt) {
	text := "if " + w.textOf(n.Cond)
	if leaves(n.Body) && n.Else == nil {
		m := w.add(n, w.function, "never", text)
		w.around(m, n.Cond, "(", ") && !mutant__(<number>)")
		if strings.HasSuffix(w.textOf(n.Cond), "err != nil") {
			return // its negation fails at once
		}
	}
	m := w.add(n, w.function, "negate", text)
	w.around(m, n.Cond, "mutant__(<number>) != (", ")")
}

// leaves reports whether a block ends by leaving what surrounds it.
func leaves(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch last := b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	case *ast.ExprStmt:
		call, ok := last.X.(*ast.CallExpr)
		return ok && called(call) == "panic"
	}
	return false
}

// bounds are functions of a package's helpers for comparisons and what they become.
var bounds = map[token.Token]string{
	token.LSS: "mutantLess__", token.LEQ: "mutantAtMost__",
	token.GTR: "mutantMore__", token.GEQ: "mutantAtLeast__",
}

func (w *walker) binary(n *ast.BinaryExpr) {
	text := w.textOf(n)
	operator := func(m *Mutant) {
		at := w.offset(n.OpPos)
		w.edits = append(w.edits, edit{
			from: at, to: at + len(n.Op.String()), with: ",", mutant: m,
		})
	}
	one, isLiteral := n.Y.(*ast.BasicLit)
	isOne := isLiteral && one.Value == "1"
	switch {
	case bounds[n.Op] != "":
		m := w.add(n, w.function, "bound", text)
		w.around(m, n, bounds[n.Op]+"(<number>, ", ")")
		operator(m)
	case (n.Op == token.ADD || n.Op == token.SUB) && isOne:
		m := w.add(n, w.function, "one", text)
		with := map[token.Token]string{token.ADD: "mutantPlusOne__", token.SUB: "mutantMinusOne__"}
		w.around(m, n, with[n.Op]+"(<number>, ", ")")
		operator(m)
	case n.Op == token.SUB && !isLiteral:
		m := w.add(n, w.function, "swap", text)
		w.around(m, n, "mutantMinus__(<number>, ", ")")
		operator(m)
	case n.Op == token.LAND || n.Op == token.LOR:
		mutated := map[token.Token]string{
			token.LAND: ") || mutant__(<number>))", token.LOR: ") && !mutant__(<number>))",
		}[n.Op]
		for _, side := range []ast.Expr{n.X, n.Y} {
			m := w.add(n, w.function, "operand", text+" without "+w.textOf(side))
			w.around(m, side, "((", mutated)
		}
	}
}
