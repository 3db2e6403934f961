package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// statements plants the mutants of a block's statements: each that can be left out is.
func (w *walker) statements(list []ast.Stmt, within *ast.FuncType) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok {
				w.call(s, call)
			}
		case *ast.DeferStmt:
			if !w.locked(s, s.Call) && !onlySays(w.textOf(s.Call)) {
				w.leaveOut(s, "defer")
			}
		case *ast.GoStmt:
			if text := w.textOf(s.Call); !strings.Contains(text, "\n") {
				m := w.add(s, w.function, "go", w.textOf(s))
				w.around(m, s, "if mutant__(<number>) { "+text+" } else { ", " }")
			}
		case *ast.SendStmt:
			w.leaveOut(s, "drop")
		case *ast.IncDecStmt:
			w.leaveOut(s, "drop")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && !isBlank(s.Lhs) {
				w.leaveOut(s, "drop")
			}
		case *ast.BranchStmt:
			if s.Tok == token.BREAK || s.Tok == token.CONTINUE {
				w.leaveOut(s, "drop")
			}
		case *ast.ReturnStmt:
			w.result(s, within)
		}
	}
}

func isBlank(list []ast.Expr) bool {
	for _, x := range list {
		if name, ok := x.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return true
}

func (w *walker) leaveOut(s ast.Stmt, kind string) {
	m := w.add(s, w.function, kind, w.textOf(s))
	w.around(m, s, "if !mutant__(<number>) { ", " }")
}

func (w *walker) call(s ast.Stmt, call *ast.CallExpr) {
	text := w.textOf(call)
	if called(call) == "panic" || onlySays(text) || w.locked(s, call) {
		return
	}
	w.leaveOut(s, "drop")
}

// called returns the name of the function or method that is called.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// onlySays reports whether a call writes to a log or checks an invariant: to leave it out is no
// defect that tests should find.
func onlySays(text string) bool {
	for _, start := range []string{"invariants.", "slog.", "runtime.KeepAlive"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	receiver, _, _ := strings.Cut(text, "(")
	words := []string{".Debug", ".Info", ".Warn", ".log.Error", ".log", "log", ".poison"}
	return slices.ContainsFunc(words, func(word string) bool {
		return strings.HasSuffix(receiver, word)
	})
}

// locked has one mutant leave out all calls of Lock and Unlock on a mutex in a function: what it
// guards is not guarded there. It reports whether s is such a call.
func (w *walker) locked(s ast.Stmt, call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch f.Sel.Name {
	case "Lock", "Unlock", "RLock", "RUnlock":
	default:
		return false
	}
	mutex := w.textOf(f.X)
	m := w.locks[mutex]
	if m == nil {
		m = w.add(s, w.function, "unlocked", mutex)
		w.locks[mutex] = m
	}
	w.around(m, s, "if !mutant__(<number>) { ", " }")
	return true
}

// result changes what a function returns: an error to nil, true to false.
func (w *walker) result(s *ast.ReturnStmt, within *ast.FuncType) {
	if len(s.Results) == 0 || within.Results == nil {
		return
	}
	fields := within.Results.List
	last, isName := fields[len(fields)-1].Type.(*ast.Ident)
	value := s.Results[len(s.Results)-1]
	if !isName {
		return
	}
	text := w.textOf(value)
	switch {
	case last.Name == "error" && text != "nil" && (len(s.Results) > 1 || single(within)):
		m := w.add(s, w.function, "error", "return "+text)
		w.around(m, value, "mutantError__(<number>, ", ")")
	case last.Name == "bool" && (text == "true" || text == "false"):
		m := w.add(s, w.function, "result", w.textOf(s))
		w.around(m, value, "mutant__(<number>) != ", "")
	}
}

// single reports whether a function has one result.
func single(f *ast.FuncType) bool {
	return len(f.Results.List) == 1 && len(f.Results.List[0].Names) < 2
}
