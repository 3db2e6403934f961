package cache

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// # Valid copies
//
// Every sample has a digest, taken when it was first read from the source, here or by another node.
// Bytes of the sample that arrive later in another way are compared with it: two reads of one
// sample that differ are an error, never a choice.
//
// A copy in a storage class is valid once it was confirmed: it was put there by this cache, or the
// file that it was made from is still the source's (Origin.SameInstance), which takes one stat of
// the file. So copies from before the cache was made, or before another job began to use it
// (Doubt), are confirmed when they are first needed, by the worker that would otherwise read them.
// A copy that is not valid is dropped, and the sample is read again. If the stat fails, nothing is
// confirmed, and the read from the source will report the reason.

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

// digests are the known digests of the samples, by ID. An entry has
//
//	bits 0 to 31   the digest
//	bits 32 to 55  the node that it was learned from, plus 1; 0: this one
//	bit 62         this cache has read the sample from the source itself
//	bit 63         the entry is there
type digests []atomic.Uint64

// BytesPerSample is the memory that a Cache takes for each sample of its dataset, held or not: its
// digest, bits, and planned class.
const BytesPerSample = 8 + 1 + 1

const (
	digestOwn   = 1 << 62
	digestKnown = 1 << 63
)

// of returns a sample's digest.
func (d digests) of(id int) (sum uint32, known bool) {
	e := d[id].Load()
	return uint32(e), e != 0
}

// own reports whether this cache has read the sample from the source itself.
func (d digests) own(id int) bool { return d[id].Load()&digestOwn != 0 }

// node returns the node that the digest was learned from; -1: this one.
func (d digests) node(id int) int { return int(d[id].Load()>>32&(1<<24-1)) - 1 }

// learn records a digest if none is known yet, and returns the one that is then known.
func (d digests) learn(id int, sum uint32, node int) uint32 {
	if d[id].CompareAndSwap(0, digestKnown|uint64(node+1)<<32|uint64(sum)) {
		return sum
	}
	return uint32(d[id].Load())
}

// liesIn returns the hash of the directory that the dataset is currently in.
func (c *Cache) liesIn() uint32 {
	if c.directory == nil {
		return 0
	}
	return dataset.PlaceHash(c.directory.Place())
}

// remoteOrigin returns the origin of a sample that another node sent with this digest, or an error
// if another digest is known.
func (c *Cache) remoteOrigin(node, id int, digest uint32) (storageclass.Origin, error) {
	if known := c.digests.learn(id, digest, node); known != digest {
		return storageclass.Origin{},
			&ConflictError{
				Sample: id,
				Path:   c.path(id),
				Node:   node,
				Than:   c.digests.node(id),
				Mine:   known,
				Theirs: digest,
			}
	}
	return storageclass.Origin{
		Digest:   digest,
		Place:    c.liesIn(),
		Instance: c.index.Stamp(id).Instance(),
	}, nil
}

// sourceOrigin returns the origin of a sample that was read from the source with these bytes, or an
// error if another digest is known.
func (c *Cache) sourceOrigin(id int, data []byte,
	stamp dataset.Stamp,
) (storageclass.Origin, error) {
	sum := digest.Of(data)
	switch known := c.digests.learn(id, sum, -1); {
	case known == sum:
	case c.digests.node(id) >= 0:
		return storageclass.Origin{},
			&ConflictError{
				Sample: id,
				Path:   c.path(id),
				Node:   c.digests.node(id),
				Than:   -1,
				Mine:   sum,
				Theirs: known,
			}
	case !c.digests.own(id):
		return storageclass.Origin{},
			&VerifyError{Sample: id, Path: c.path(id), From: "a cached copy", Got: known, Want: sum}
	default:
		return storageclass.Origin{}, &dataset.SampleError{
			ID: id, Path: c.path(id), Kind: dataset.ErrChanged,
			Err: fmt.Errorf("its bytes (digest %08x) differ from those read earlier (%08x), "+
				"although size and modification time are the same", sum, known),
		}
	}
	c.digests[id].Or(digestOwn)
	return storageclass.Origin{Digest: sum, Place: c.liesIn(), Instance: stamp.Instance()}, nil
}

// Doubt makes every copy be confirmed again when it is next needed. It is called when a job begins
// to use the cache that was not there when the copies were made.
func (c *Cache) Doubt() {
	c.confirmed.clear()
	for _, cl := range c.classes {
		if cl.writer != nil {
			cl.writer.Doubt()
		}
	}
}

// confirm determines whether the classes' copies of a sample are valid, if that is not known yet.
// It may block, as reads from the source do.
func (c *Cache) confirm(ctx context.Context, id int) {
	if c.confirmed.has(id) || !c.Has(id) {
		return
	}
	stamp, err := c.source.Stat(ctx, id)
	if err != nil {
		return
	}
	now := storageclass.Origin{Place: c.liesIn(), Instance: stamp.Instance()}
	for j := range c.classes {
		store := c.classes[j].Store
		origin, ok := store.Origin(id)
		if !ok {
			continue
		}
		known, read := c.digests.of(id)
		if !origin.SameInstance(now) || read && known != origin.Digest {
			store.Drop(id)
			continue
		}
		c.digests.learn(id, origin.Digest, -1)
		c.confirmed.set(id)
	}
}

// confirmKept records that a class's copy is valid if it is the one that this cache has read.
func (c *Cache) confirmKept(cl *class, id int, origin storageclass.Origin) {
	// Another cache over the store may have put another copy.
	if held, ok := cl.Store.Origin(id); ok && held == origin {
		c.confirmed.set(id)
	}
}
