package lmdb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// A tag of ours is "LMD", the page size as a power of two, a hash of the meta page (u32), and the
// last transaction's number (u64).
const (
	tagMark = "LMD"
	tagSize = 16
)

// Objects returns the place with tags for LMDB data files, where it has none itself: the last
// transaction, and the roots of its trees. A read fails with source.ErrChanged if another one was
// committed before the read ended.
//
// A writer replaces a page only if neither the last two snapshots nor a reader in the lock file has
// it. So as long as the last transaction is that of the index, none of its pages has been replaced;
// once there is another, the next writer may do so at any time. The tag is therefore read after the
// bytes, at each read, and an answer is never used again: both meta pages are one read of two pages
// that stay in the page cache. Sizes and times are compared as well, but do not show what a writer
// with a map (MDB_WRITEMAP) does. A network file system may hide writers on other hosts, as it does
// from LMDB.
//
// Objects of a store that tags them are replaced as a whole, and keep the store's tags. List leaves
// tags out.
func Objects(o objects.Objects) objects.Objects {
	if w, ok := o.(*watched); ok {
		return w
	}
	return &watched{Objects: o}
}

// watched are objects whose data files have tags.
type watched struct {
	objects.Objects
	checks sync.Pool // of *check
}

// check is the memory of a read.
type check struct {
	object source.Object // without its tag
	buffer []byte
	part   [1][]byte
}

var _ objects.Objects = (*watched)(nil)

// tag returns the tag of a file in this state.
func (s *snapshot) tag() (tag [tagSize]byte) {
	copy(tag[:], tagMark)
	tag[3] = byte(bits.TrailingZeros64(uint64(s.pageSize)))
	binary.LittleEndian.PutUint32(tag[4:], s.hash)
	binary.LittleEndian.PutUint64(tag[8:], s.transaction)
	return tag
}

func isOurs(tag [tagSize]byte) bool { return string(tag[:3]) == tagMark && tag[3] < 32 }

// untagged returns an object and its place without tags of ours.
func untagged(o objects.Objects, object source.Object) (source.Object, objects.Objects) {
	if w, ok := o.(*watched); ok {
		o = w.Objects
	}
	if isOurs(object.Tag) {
		object.Tag = [tagSize]byte{}
	}
	return object, o
}

// Stat implements objects.Objects. A file that is no data file has no tag.
func (w *watched) Stat(ctx context.Context, name string) (source.Object, error) {
	o, err := w.Objects.Stat(ctx, name)
	if err != nil || o.Tag != [tagSize]byte{} {
		return o, err
	}
	f, err := openFile(ctx, w.Objects, o)
	var other *Error
	switch {
	case err == nil:
		o.Tag = f.tag()
	case !errors.As(err, &other):
		return o, err
	}
	return o, nil
}

// Read implements objects.Objects.
func (w *watched) Read(ctx context.Context, o *source.Object, offset int64, parts [][]byte,
) (source.Stamp, error) {
	if !isOurs(o.Tag) {
		return w.Objects.Read(ctx, o, offset, parts)
	}
	c, ok := w.checks.Get().(*check)
	if !ok {
		c = new(check)
	}
	defer w.checks.Put(c)
	c.object = *o
	c.object.Tag = [tagSize]byte{}
	stamp, err := w.Objects.Read(ctx, &c.object, offset, parts)
	if err == nil {
		err = w.check(ctx, o, c)
	}
	return stamp, err
}

// check reads both meta pages again, and compares them with the object's tag.
func (w *watched) check(ctx context.Context, o *source.Object, c *check) error {
	size := int64(1) << o.Tag[3]
	if n := int(size + metaSize); len(c.buffer) != n {
		c.buffer = make([]byte, n)
	}
	c.part[0] = c.buffer
	if _, err := w.Objects.Read(ctx, &c.object, 0, c.part[:]); err != nil {
		return err
	}
	first, err := parseMeta(c.buffer, 0)
	second, secondErr := parseMeta(c.buffer[size:], 1)
	now := newer(first, second)
	if err == nil && secondErr == nil && now.tag() == o.Tag {
		return nil
	}
	return &objects.Error{
		Path: w.Path(o.Name), Kind: source.ErrChanged,
		Err: fmt.Errorf("the last transaction was number %d then, and is %d now: keep programs from "+
			"writing to it, or read a copy that mdb_copy has made",
			binary.LittleEndian.Uint64(o.Tag[8:]), now.transaction),
	}
}
