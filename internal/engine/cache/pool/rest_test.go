//go:build invariants

package pool

import "testing"

// TestReadsThatWereNotLeftAreFound checks that a gate is only at rest when all reads have left it,
// and what was lent is taken back.
func TestReadsThatWereNotLeftAreFound(t *testing.T) {
	g := NewGate(Limits{Start: 1, Least: 1, Most: 1}, func(int) {})
	atRest := func() (ok bool) {
		defer func() { ok = recover() == nil }()
		g.CheckRest()
		return true
	}
	g.Enter(true, nil)
	if atRest() {
		t.Error("with a read inside")
	}
	g.Leave(false)
	g.Lend(1)
	if atRest() {
		t.Error("with one lent")
	}
	g.Lend(-1)
	if !atRest() {
		t.Error("although all have left")
	}
}
