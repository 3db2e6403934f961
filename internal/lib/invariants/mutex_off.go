//go:build !invariants

package invariants

import "sync"

// Mutex is a sync.Mutex for locks that nest with others. In builds with the tag, the order in which
// goroutines take such locks is recorded by the type Of that the lock guards, and taking one in the
// reverse order panics, even if no two goroutines contend for it. The zero value is unlocked. Locks
// of one type must not nest.
type Mutex[Of any] struct{ sync.Mutex }
