//go:build invariants

package invariants

import (
	"bytes"
	"fmt"
)

// Poison finds uses of memory after it was given back. The memory's owner keeps one beside its list
// of what is free, and holds its lock when it calls the methods.
type Poison struct {
	// the memory's end that was never reserved, and so is not poisoned either, begins here
	used int64
}

const poison = 0xdb

var poisoned = bytes.Repeat([]byte{poison}, 64<<10)

// Release overwrites [from, to) of memory, which was just given back: what still reads it reads
// nonsense.
func (p *Poison) Release(memory []byte, from, to int64) {
	for rest := memory[from:to]; len(rest) > 0; {
		rest = rest[copy(rest, poisoned):]
	}
}

// Reserve panics if anything has written to [from, to) of memory since it was given back.
func (p *Poison) Reserve(memory []byte, from, to int64) {
	for at := from; at < min(to, p.used); {
		part := memory[at:min(at+int64(len(poisoned)), to, p.used)]
		if !bytes.Equal(part, poisoned[:len(part)]) {
			for i, b := range part {
				if b != poison {
					panic(fmt.Sprintf("invariant violated: byte %d was written after it was "+
						"given back: %#x in [%d, %d)", at+int64(i), b, from, to))
				}
			}
		}
		at += int64(len(part))
	}
	p.used = max(p.used, to)
}
