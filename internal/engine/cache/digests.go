package cache

import (
	"fmt"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
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
		human.Name(e.Path), e.Node, e.Theirs, than, e.Mine)
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
		"there is a cache directory", e.Sample, human.Name(e.Path), e.From, e.Got, e.Want)
}

// Table has the known digests of the samples, by ID. It is safe for concurrent use. An entry has
//
//	bits 0 to 31   the digest
//	bits 32 to 55  the node that it was learned from, plus 1; 0: this one
//	bit 61         a sample of these bytes has been decoded to its end
//	bit 62         this cache has read the sample from the source itself
//	bit 63         the entry is there
type Table []atomic.Uint64

const (
	sound = 1 << 61
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

// Sound reports whether the sample has been decoded to its end without an error (SetSound).
func (d Table) Sound(id int) bool { return d[id].Load()&sound != 0 }

// SetSound records that the sample has been decoded to its end, which need not be done again. Its
// digest must be known.
func (d Table) SetSound(id int) {
	if d[id].Load() != 0 {
		d[id].Or(sound)
	}
}

// Node returns the node that the digest was learned from; -1: this one.
func (d Table) Node(id int) int { return int(d[id].Load()>>32&(1<<24-1)) - 1 }

// Learn records a digest if none is known yet, and returns the one that is then known.
func (d Table) Learn(id int, sum uint32, node int) uint32 {
	if d[id].CompareAndSwap(0, known|uint64(node+1)<<32|uint64(sum)) {
		return sum
	}
	return uint32(d[id].Load())
}

// Received records the digest that a node has sent with a sample; path returns where this node has
// it. The error is a *ConflictError if another one is known.
func (d Table) Received(id int, sum uint32, node int, path func(id int) string) error {
	if mine := d.Learn(id, sum, node); mine != sum {
		return &ConflictError{
			Sample: id, Path: path(id), Node: node, Than: d.Node(id), Mine: mine, Theirs: sum,
		}
	}
	return nil
}

// Read records that this cache has read the sample from the source itself, and returns its digest,
// or an error if another one is known: a *ConflictError if another node has sent that, a
// *VerifyError if a cached copy had it, and a *source.SampleError if the source did.
func (d Table) Read(id int, data []byte, path func(id int) string) (sum uint32, err error) {
	sum = digest.Of(data)
	switch was := d.Learn(id, sum, -1); {
	case was == sum:
		d[id].Or(own)
		return sum, nil
	case d.Node(id) >= 0:
		return sum, &ConflictError{
			Sample: id, Path: path(id), Node: d.Node(id), Than: -1, Mine: sum, Theirs: was,
		}
	case !d.Own(id):
		return sum, &VerifyError{
			Sample: id, Path: path(id), From: "a cached copy", Got: was, Want: sum,
		}
	default:
		return sum, &source.SampleError{
			ID: id, Path: path(id), Kind: source.ErrChanged,
			Err: fmt.Errorf("its bytes (digest %08x) differ from those read earlier (%08x), "+
				"although size and modification time are the same", sum, was),
		}
	}
}

// Compare compares bytes that come from a tier with the known digest. The error is a *VerifyError.
func (d Table) Compare(id int, data []byte, path func(id int) string, from string) error {
	if got, want := digest.Of(data), uint32(d[id].Load()); got != want {
		return &VerifyError{Sample: id, Path: path(id), From: from, Got: got, Want: want}
	}
	return nil
}
