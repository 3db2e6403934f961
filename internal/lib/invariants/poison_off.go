//go:build !invariants

package invariants

// Poison finds uses of memory after its release. The memory's owner keeps one next to its free
// list, and calls the methods with its lock held.
type Poison struct{}

// Release overwrites [from, to) of memory, which was just released, so that later reads get
// nonsense.
func (*Poison) Release([]byte, int64, int64) {}

// Reserve panics if [from, to) of memory was written since its release.
func (*Poison) Reserve([]byte, int64, int64) {}
