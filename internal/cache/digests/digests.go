// Package digests has what is known of the bytes of a dataset's samples, and the errors if bytes
// that arrive differ from that.
package digests

import (
	"fmt"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/printable"
)

// ConflictError reports that two nodes of a job have read different bytes for one sample.
type ConflictError struct {
	Sample       int
	Path         string // on this node
	Node         int    // the other node
	Than         int    // the node that sent the bytes known here; -1: this node has read them
	Mine, Theirs uint32 // the digest known here, and the other node's
}

func (e *ConflictError) Error() string {
	than := "this node"
	if e.Than >= 0 {
		than = fmt.Sprintf("node %d", e.Than)
	}
	return fmt.Sprintf("sample %d (%s): node %d has other bytes (digest %08x) than %s (%08x), "+
		"although names, sizes and times agree: the nodes read different files; mount the same "+
		"dataset on all of them", e.Sample,
		printable.Name(e.Path), e.Node, e.Theirs, than, e.Mine)
}

// VerifyError reports that bytes about to be delivered differ from the source's.
type VerifyError struct {
	Sample    int
	Path      string
	From      string // the tier that the bytes came from
	Got, Want uint32 // digests
}

func (e *VerifyError) Error() string {
	return fmt.Sprintf("sample %d (%s): the bytes from %s (digest %08x) differ from the file's "+
		"(%08x): check that all nodes mount the same dataset, and run `hdmlp cache check` if "+
		"there is a cache directory", e.Sample, printable.Name(e.Path), e.From, e.Got, e.Want)
}

// Table has the known digests of the samples, by ID. It is safe for concurrent use. An entry has
//
//	bits 0 to 31   the digest
//	bits 32 to 55  the node that it was learned from, plus 1; 0: this one
//	bit 62         this cache has read the sample from the source itself
//	bit 63         the entry is there
type Table []atomic.Uint64

const (
	own   = 1 << 62
	known = 1 << 63
)

// Of returns a sample's digest.
func (d Table) Of(id int) (sum uint32, ok bool) {
	e := d[id].Load()
	return uint32(e), e != 0
}

// Own reports whether this cache has read the sample from the source itself.
func (d Table) Own(id int) bool { return d[id].Load()&own != 0 }

// Node returns the node that the digest was learned from; -1: this one.
func (d Table) Node(id int) int { return int(d[id].Load()>>32&(1<<24-1)) - 1 }

// Learn records a digest if none is known yet, and returns the one that is then known.
func (d Table) Learn(id int, sum uint32, node int) uint32 {
	if d[id].CompareAndSwap(0, known|uint64(node+1)<<32|uint64(sum)) {
		return sum
	}
	return uint32(d[id].Load())
}

// Read records that this cache has read the sample from the source itself.
func (d Table) Read(id int) { d[id].Or(own) }
