package main

import (
	"bufio"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// patch is a defect that was written by hand. In patches/ROOM.txt it is a paragraph:
//
//	wake-up dropped, security: what is wrong with it, in one line
//	internal/engine/cache/flight.go
//	- text that occurs once in the file
//	+ what replaces it
//
// The first line has the kind of defect, and optionally that it is in a security step. The text is
// whole statements or one expression, in as many lines as it takes; blanks at their ends do not
// count. Without a + line the statements are left out. Expressions that are not conditions are
// evaluated in both forms. In a file of Python, any text is replaced by any other, and the line
// after the file's name begins with "tests " and names the files of tests that should find it.
type patch struct {
	where    string // the patch's own file and line
	kind     string
	about    string
	file     string
	tests    []string
	old, new []string
	security bool
}

func readPatches(dir string) (map[string][]*patch, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("%s: no patches: %w", dir, errors.Join(err, os.ErrNotExist))
	}
	rooms := map[string][]*patch{}
	for _, name := range names {
		room := strings.TrimSuffix(filepath.Base(name), ".txt")
		if rooms[room], err = readRoom(name); err != nil {
			return nil, err
		}
	}
	return rooms, nil
}

func readRoom(name string) ([]*patch, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []*patch
	var p *patch
	lines := bufio.NewScanner(f)
	for nr := 1; lines.Scan(); nr++ {
		line := lines.Text()
		switch sign, text, _ := strings.Cut(line, " "); {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			p = nil
		case p == nil:
			kind, about, found := strings.Cut(line, ": ")
			if !found {
				return nil, fmt.Errorf("%s:%d: %q is not KIND: WHAT", name, nr, line)
			}
			p = &patch{where: fmt.Sprintf("%s:%d", name, nr), about: about}
			p.kind, _, p.security = strings.Cut(kind, ", security")
			all = append(all, p)
		case p.file == "":
			p.file = line
		case sign == "tests":
			p.tests = strings.Fields(text)
		case sign == "-":
			p.old = append(p.old, text)
		case sign == "+":
			p.new = append(p.new, text)
		default:
			return nil, fmt.Errorf("%s:%d: %q begins with neither - nor +", name, nr, line)
		}
	}
	for _, p := range all {
		if p.file == "" || len(p.old) == 0 {
			return nil, fmt.Errorf("%s: no file, or no line that begins with -", p.where)
		}
	}
	return all, lines.Err()
}

func (p *patch) python() bool { return strings.HasSuffix(p.file, ".py") }

// find returns where in text the patch's old lines are.
func (p *patch) find(text string) (from, to int, err error) {
	first := strings.TrimSpace(p.old[0])
	found := 0
	for at := 0; ; {
		k := strings.Index(text[at:], first)
		if k < 0 {
			break
		}
		k += at
		at = k + 1
		end, ok := k, true
		for n, line := range p.old {
			line = strings.TrimSpace(line)
			if n > 0 {
				rest := strings.TrimLeft(text[end:], " \t\n")
				end = len(text) - len(rest)
			}
			if ok = strings.HasPrefix(text[end:], line); !ok {
				break
			}
			end += len(line)
		}
		if ok {
			found++
			from = k
			to = end
		}
	}
	if found != 1 {
		return 0, 0, fmt.Errorf("%s: the text occurs %d times in %s, not once", p.where, found,
			p.file)
	}
	return from, to, nil
}

// patch plants a defect that was written by hand.
func (s *source) patch(p *patch) (*Mutant, error) {
	from, to, err := p.find(s.text)
	if err != nil {
		return nil, err
	}
	m := &Mutant{
		File: s.name, Kind: p.kind, Text: p.about, Security: p.security, Written: true,
		Line: 1 + strings.Count(s.text[:from], "\n"), Key: s.name + ": by hand: " + p.about,
	}
	old, replacement := s.text[from:to], oneText(p.new)
	line := s.text[strings.LastIndex(s.text[:from], "\n")+1 : from]
	alone := strings.TrimSpace(line) == "" // a call is a statement then
	if x, err := parser.ParseExpr(old); err == nil && !(alone && isCall(x)) {
		if len(p.new) == 0 {
			return nil, fmt.Errorf("%s: an expression cannot be left out", p.where)
		}
		if isCondition(x) {
			s.between(m, from, to, "(mutant__(<number>) && ("+replacement+
				") || !mutant__(<number>) && (", "))")
		} else {
			s.between(m, from, to, "mutantValue__(<number>, "+replacement+", ", ")")
		}
	} else {
		for _, text := range []string{old, replacement} {
			if !areStatements(text) {
				return nil, fmt.Errorf("%s: neither an expression nor whole statements: %s",
					p.where, text)
			}
		}
		s.between(m, from, to, "if mutant__(<number>) { "+replacement+" } else { ", " }")
	}
	s.mutants = append(s.mutants, m)
	return m, nil
}

func areStatements(text string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", "package p; func _() { "+text+"\n}",
		parser.SkipObjectResolution)
	return err == nil
}

// oneText joins lines of statements or of an expression in one, so that no line is added.
func oneText(lines []string) string {
	var out strings.Builder
	for k, line := range lines {
		line = strings.TrimSpace(line)
		out.WriteString(line)
		if k == len(lines)-1 {
			break
		}
		if strings.HasSuffix(line, "{") || strings.HasSuffix(line, ",") ||
			strings.HasSuffix(line, "&&") || strings.HasSuffix(line, "||") {
			out.WriteString(" ")
		} else {
			out.WriteString("; ")
		}
	}
	return out.String()
}

func isCall(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.CallExpr:
		return true
	case *ast.UnaryExpr:
		return x.Op == token.ARROW
	}
	return false
}

func isCondition(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.ParenExpr:
		return isCondition(x.X)
	case *ast.UnaryExpr:
		return x.Op == token.NOT
	case *ast.BinaryExpr:
		switch x.Op {
		case token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR,
			token.GEQ:
			return true
		}
	}
	return false
}
