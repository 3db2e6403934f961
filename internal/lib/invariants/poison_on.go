//go:build invariants

package invariants

import (
	"bytes"
	"fmt"
)

// Poison finds uses of memory after its release. The memory's owner keeps one next to its free
// list, and calls the methods with its lock held.
type Poison struct {
	// used is the end of the memory that was ever reserved; memory from there on is not poisoned.
	used int64
}

const poison = 0xdb

var poisoned = bytes.Repeat([]byte{poison}, 64<<10)

// Release overwrites [from, to) of memory, which was just released, so that later reads get
// nonsense.
func (p *Poison) Release(memory []byte, from, to int64) {
	for rest := memory[from:to]; len(rest) > 0; {
		rest = rest[copy(rest, poisoned):]
	}
}

// Reserve panics if [from, to) of memory was written since its release.
func (p *Poison) Reserve(memory []byte, from, to int64) {
	for at := from; at < min(to, p.used); {
		part := memory[at:min(at+int64(len(poisoned)), to, p.used)]
		if !bytes.Equal(part, poisoned[:len(part)]) {
			for i, b := range part {
				if b != poison {
					panic(fmt.Sprintf("invariant violated: byte %d was written after its "+
						"release: %#x in [%d, %d)", at+int64(i), b, from, to))
				}
			}
		}
		at += int64(len(part))
	}
	p.used = max(p.used, to)
}
