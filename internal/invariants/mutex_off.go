//go:build !invariants

package invariants

import "sync"

// Mutex is a sync.Mutex of a type whose locks nest with others. Where the tag is set, the order in
// which goroutines take such locks is recorded by the type Of that the lock guards, and one that is
// taken in the reverse order panics, whether or not two goroutines meet in it. The zero value is
// unlocked. Locks of one type must not nest.
type Mutex[Of any] struct{ sync.Mutex }
