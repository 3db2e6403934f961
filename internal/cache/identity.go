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

// # Which copies count
//
// Every sample has a digest, taken when it was first read from the source, here or by another node.
// Bytes of the sample that come another way, later, are compared with it: that two reads of one
// sample differ is an error, never a choice.
//
// A copy that a storage class holds counts once it was confirmed: it was put there by this cache,
// or what it was made of is still what the source has (Origin.SameInstance), which takes one stat
// of the file. So copies that are left from before the cache was made, or before another job came
// to use it (Doubt), are confirmed when they are first needed, by the worker that would else read
// them. One that does not count is dropped and read anew. A stat that fails confirms nothing, and
// leaves it to the read from the source to say why.

// ConflictError says that two nodes of a job have read different bytes for one sample.
type ConflictError struct {
	Sample       int
	Path         string // where this node has it
	Node         int    // the other node
	Than         int    // the node whose bytes this one knows; -1: it has read them itself
	Mine, Theirs uint32 // the digests that this node knows, and the other one's
}

func (e *ConflictError) Error() string {
	than := "this node"
	if e.Than >= 0 {
		than = fmt.Sprintf("node %d", e.Than)
	}
	return fmt.Sprintf("sample %d (%s): node %d has other bytes (digest %08x) than %s (%08x), "+
		"although names, sizes and times agree: "+
		"the nodes read different files; mount the same dataset on all of them", e.Sample,
		printable.Name(e.Path), e.Node, e.Theirs, than, e.Mine)
}

// VerifyError says that bytes which were to be delivered are not those that the source has.
type VerifyError struct {
	Sample    int
	Path      string
	From      string // where the bytes were taken from
	Got, Want uint32 // digests
}

func (e *VerifyError) Error() string {
	return fmt.Sprintf("sample %d (%s): the bytes from %s (digest %08x) are not those of the "+
		"file (%08x): "+
		"look for more with `hdmlp cache check` if there is a cache directory, and whether all "+
		"nodes mount the same dataset", e.Sample, printable.Name(e.Path), e.From, e.Got, e.Want)
}

// digests are the digests of the samples, by ID, as far as they are known. An entry is
//
//	bits 0 to 31   the digest
//	bits 32 to 55  the node that it was learned from, plus 1; 0: this one
//	bit 62         this cache has read the sample from the source itself
//	bit 63         the entry is there
type digests []atomic.Uint64

// BytesPerSample is the memory that a Cache takes for each sample of its dataset, held or not:
// digests, sets, and what plans give it.
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

// node is the node that the digest was learned from; -1: this one.
func (d digests) node(id int) int { return int(d[id].Load()>>32&(1<<24-1)) - 1 }

// learn notes a digest, if none is known yet, and returns the one that is known then.
func (d digests) learn(id int, sum uint32, node int) uint32 {
	if d[id].CompareAndSwap(0, digestKnown|uint64(node+1)<<32|uint64(sum)) {
		return sum
	}
	return uint32(d[id].Load())
}

// liesIn is the hash of the directory that the dataset lies in now.
func (c *Cache) liesIn() uint32 {
	if c.directory == nil {
		return 0
	}
	return dataset.PlaceHash(c.directory.Place())
}

// cameFrom takes note that another node gave a sample with this digest.
func (c *Cache) cameFrom(node, id int, digest uint32) (storageclass.Origin, error) {
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

// wasRead takes note that the sample, read from the source, has these bytes.
func (c *Cache) wasRead(id int, data []byte, stamp dataset.Stamp) (storageclass.Origin, error) {
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
			Err: fmt.Errorf("its bytes (digest %08x) are not those that were read before (%08x), "+
				"although size and modification time are", sum, known),
		}
	}
	c.digests[id].Or(digestOwn)
	return storageclass.Origin{Digest: sum, Place: c.liesIn(), Instance: stamp.Instance()}, nil
}

// Doubt has every copy confirmed again when it is next needed: a job has begun to use the cache
// that was not there when the copies were made.
func (c *Cache) Doubt() { c.confirmed.clear() }

// confirm decides whether the copies of a sample that the classes hold count, if that is not known
// yet. It may block, as reads from the source do.
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

// kept notes that a class holds the sample as this cache read it.
func (c *Cache) kept(cl *class, id int, origin storageclass.Origin) {
	// another cache over the store may have put its own
	if held, ok := cl.Store.Origin(id); ok && held == origin {
		c.confirmed.set(id)
	}
}
