//go:build !invariants

package invariants

// Poison finds uses of memory after it was given back. The memory's owner keeps one beside its list
// of what is free, and holds its lock when it calls the methods.
type Poison struct{}

// Release overwrites [from, to) of memory, which was just given back: what still reads it reads
// nonsense.
func (*Poison) Release([]byte, int64, int64) {}

// Reserve panics if anything has written to [from, to) of memory since it was given back.
func (*Poison) Reserve([]byte, int64, int64) {}
