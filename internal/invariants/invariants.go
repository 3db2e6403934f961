// Package invariants switches checks on that are too dear for production, by the build tag of its
// name: freed memory is poisoned, a release that comes twice or a use after it panics, state
// machines check their transitions, and locks their order. Guard what costs something:
//
//	if invariants.Enabled {
//		b.checkTransition(from, to)
//	}
//
// The compiler removes such a block where the tag is not set.
package invariants

import "fmt"

// Check panics if ok is false and the tag is set.
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("invariant violated: " + fmt.Sprintf(format, args...))
	}
}
