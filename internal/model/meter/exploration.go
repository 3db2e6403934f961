package meter

import "sync/atomic"

// Exploration limits what is read from the source only to know how fast it is. It is safe for
// concurrent use. The zero value is ready.
type Exploration struct {
	all   atomic.Int64 // bytes of all reads that were a choice
	spent atomic.Int64 // bytes read from the source to explore it
}

// explored is the share of all bytes that may be read from the source to explore it.
const explored = 1.0 / 1000

// Count counts a read of this many bytes for which a tier was chosen.
func (e *Exploration) Count(bytes int64) { e.all.Add(bytes) }

// Spend reports whether this many bytes may be read from the source to explore it, and counts them
// if so.
func (e *Exploration) Spend(bytes int64) bool {
	if float64(e.spent.Load()+bytes) > explored*float64(e.all.Load()) {
		return false
	}
	e.spent.Add(bytes)
	return true
}
