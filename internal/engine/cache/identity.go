package cache

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// # Valid copies
//
// Every sample has a digest, taken when it was first read from the source, here or by another node.
// Bytes of the sample that arrive later in another way are compared with it: two reads of one
// sample that differ are an error, never a choice.
//
// A copy in a storage class is valid once it was confirmed: it was put there by this cache, or the
// file that it was made from is still the source's (Origin.SameInstance), which takes one stat of
// the file; or, if versions are trusted, it was made in another directory, of a dataset of the same
// version. So copies from before the cache was made, or before another job began to use it
// (Doubt), are confirmed when they are first needed, by the worker that would otherwise read them.
// A copy that is not valid is dropped, and the sample is read again. If the stat fails, nothing is
// confirmed, and the read from the source will report the reason.

// BytesPerSample is the memory that a Cache takes for each sample of its dataset, held or not: its
// digest, bits, planned class, and the size of its form.
const BytesPerSample = 8 + 1 + 1 + 1

// Sound reports whether the sample's bytes have been decoded to their end, as far as this cache is
// concerned: by any job since it was made.
func (c *Cache) Sound(id int) bool { return c.digests.Sound(id) }

// SetSound records that a sample that was fetched has been decoded to its end.
func (c *Cache) SetSound(id int) { c.digests.SetSound(id) }

// liesIn returns the hash of the directory that the dataset is currently in.
func (c *Cache) liesIn() uint32 {
	if c.directory == nil {
		return 0
	}
	return source.DirectoryHash(c.directory.DirectoryID())
}

// remoteOrigin returns the origin of a sample that another node sent with this digest, or an error
// if another digest is known.
func (c *Cache) remoteOrigin(node, id int, digest uint32) (store.Origin, error) {
	if err := c.digests.Received(id, digest, node, c.path); err != nil {
		return store.Origin{}, err
	}
	return store.Origin{
		Digest:    digest,
		Directory: c.liesIn(),
		Instance:  c.index.Stamp(id).Instance(),
	}, nil
}

// sourceOrigin returns the origin of a sample that was read from the source with these bytes, or an
// error if another digest is known.
func (c *Cache) sourceOrigin(id int, data []byte,
	stamp source.Stamp,
) (store.Origin, error) {
	sum, err := c.digests.Read(id, data, c.path)
	if err != nil {
		return store.Origin{}, err
	}
	return store.Origin{Digest: sum, Directory: c.liesIn(), Instance: stamp.Instance()}, nil
}

// Doubt makes every copy be confirmed again when it is next needed. It is called when a job begins
// to use the cache that was not there when the copies were made.
func (c *Cache) Doubt() {
	for _, cl := range c.classes { // first: what is written until then is confirmed
		if cl.writer != nil {
			cl.writer.Doubt()
		}
	}
	if d, ok := source.As[source.Doubted](c.source); ok {
		d.Doubt()
	}
	c.confirmed.clear()
}

// confirm determines whether the classes' copies of a sample are valid, if that is not known yet.
// It may block, as reads from the source do. It confirms none if a class whose copy is not valid
// does not drop it, because its disk hangs.
func (c *Cache) confirm(ctx context.Context, id int) {
	if c.confirmed.has(id) || !c.Has(id) {
		return
	}
	stamp, err := c.source.Stat(ctx, id)
	if err != nil {
		return
	}
	now := store.Origin{Directory: c.liesIn(), Instance: stamp.Instance()}
	valid, dropped := false, true
	for j := range c.classes {
		origin, ok := c.classes[j].Store.Origin(id)
		if !ok {
			continue
		}
		known, read := c.digests.Of(id)
		if !c.accepts(origin, now) || read && known != origin.Digest {
			dropped = c.drop(&c.classes[j], id) && dropped
			continue
		}
		c.digests.Learn(id, origin.Digest, -1)
		valid = true
	}
	if valid && dropped {
		c.confirmed.set(id)
		c.conversion.note()
	}
}

// accepts reports whether a copy may be valid, by what it was made from and what it would be made
// from now.
func (c *Cache) accepts(origin, now store.Origin) bool {
	if origin.SameInstance(now) {
		return true
	}
	elsewhere := origin.Directory != now.Directory
	if elsewhere && !c.trusts.Load() && c.foreign != nil {
		c.sayForeign.Do(c.foreign)
	}
	return elsewhere && c.trusts.Load()
}

// Distrust ends that copies from other directories are valid by their dataset's version, and makes
// every copy be confirmed again.
func (c *Cache) Distrust() {
	if c.trusts.Swap(false) {
		c.Doubt()
	}
}

// drop drops a class's copy of a sample. It reports whether that was possible in the time for which
// a class is waited for.
func (c *Cache) drop(cl *class, id int) bool {
	if cl.reader != nil {
		return cl.reader.Drop(id, c.classLimit(id, 0))
	}
	cl.Store.Drop(id)
	return true
}

// confirmKept records that the classes' copies of a sample are valid if this class's is the one
// that this cache has read, and no class holds other bytes, which could not be dropped (confirm).
func (c *Cache) confirmKept(cl *class, id int, origin store.Origin) {
	// Another cache over the store may have put another copy.
	if held, ok := cl.Store.Origin(id); !ok || held != origin {
		return
	}
	for j := range c.classes {
		if held, ok := c.classes[j].Store.Origin(id); ok && held.Digest != origin.Digest {
			return
		}
	}
	c.confirmed.set(id)
	c.conversion.note()
}
