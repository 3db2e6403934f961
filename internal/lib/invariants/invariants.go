// Package invariants enables checks that are too expensive for production, with the build tag
// invariants: freed memory is poisoned, double releases and uses after a release panic, state
// machines check their transitions, and locks check their order. Guard checks that cost something:
//
//	if Enabled {
//		b.checkTransition(from, to)
//	}
//
// Without the tag the compiler removes such a block.
package invariants

import "fmt"

// Check panics if ok is false, in builds with the tag.
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("invariant violated: " + fmt.Sprintf(format, args...))
	}
}
