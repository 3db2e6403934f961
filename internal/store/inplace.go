package store

import (
	"os"
	"time"
)

// InPlace is implemented by stores whose samples lie in shared memory, so that a sample can be read
// from the source straight into the class, and used by other processes without a copy. The memory
// consists of segments, each a memfd of its own.
type InPlace interface {
	// Fill reserves the sample's bytes and calls read with them, which returns their origin; dst is
	// valid until read returns. If read succeeds, the sample is held; otherwise Fill returns its
	// error, and the bytes are free again. Fill must not be called for a sample that is held or
	// being filled. It returns ErrFull as Put does.
	Fill(id int, read func(dst []byte) (Origin, error)) error
	// Locate returns where the sample is; its length is the sample's size. ok is false if the
	// sample is not held. The position may be used until a Tenant that was notified of the segment's
	// end has settled.
	Locate(id int) (at Position, ok bool)
	// View returns the sample's bytes in their segment. It must be released once. ok is false if the
	// sample is not held; there is then nothing to release.
	View(id int) (v View, ok bool)
	// Segment returns the memfd of a segment, sealed so that other processes can only map it for
	// reading, and its size. It belongs to the store. ok is false if there is no such segment any
	// more.
	Segment(number uint32) (memfd *os.File, size int64, ok bool)
}

// Shrinker is implemented by stores that are InPlace and give memory back while they are open, by
// segment. The samples of a segment that is given back are no longer held, and may be added again,
// to another segment. Numbers of segments are never used twice, nor is the memory of a segment: so
// nothing that refers to a segment, or views it, ever sees other bytes there.
type Shrinker interface {
	// Growing reports whether the memory of samples may grow now. If not, Put and Fill return ErrFull
	// although there is room, once nothing is Freed.
	Growing() bool
	// Freed returns the memory that samples may take although it may not grow, in bytes: of what they
	// took when it could last, what has become free since, and was not given back. 0 if it may grow.
	Freed() int64
	// Horizon returns for how long ahead of its use a sample should be located: so long it may take
	// until a segment that is given back is free. 0: as long as one likes.
	Horizon() time.Duration
	// Segments returns the segments that can be given back now, in the order in which they were
	// made.
	Segments() []Extent
	// GiveBack stops handing out the samples of a segment and frees its memory as soon as nothing
	// uses it. It reports whether it has begun to: it does nothing if samples are being added to
	// the segment, or there is no such segment. why is for people.
	GiveBack(number uint32, why string) bool
	// Returned describes what was given back since the store was made.
	Returned() Returned
	// Join has the tenant notified of segments that are given back, until it leaves. leave must not
	// be called by the tenant's methods.
	Join(t Tenant) (leave func())
}

// Position is where a sample is in shared memory.
type Position struct {
	Segment uint32 // less than MaxSegments
	Offset  int64
}

// MaxSegments limits the numbers of segments.
const MaxSegments = 1 << 23

// View is a sample's bytes where they are. They must not be modified, and are valid until the Hold
// is released.
type View struct {
	Hold
	Data []byte
	At   Position
}

// Hold keeps the bytes of a View valid until it is released. Package exchange has the same type.
type Hold = interface{ Release() }

// Extent describes a segment to code that decides which one to give back.
type Extent struct {
	Number uint32
	Bytes  int64   // of memory
	Held   []int32 // the samples that it holds
	Dead   int64   // bytes of samples that are not held any more
}

// Returned describes memory that a store gave back.
type Returned struct {
	Bytes    int64 // by GiveBack, in total
	Now      int64 // of these, since the memory may not grow; 0 if it may
	Segments int   // by GiveBack
	// Used is the memory that segments still take that were given back, or whose last sample was
	// dropped, because processes view their samples, or the daemon reads them.
	Used int64
	Last time.Time // when GiveBack last did; zero: never
	Why  string    // its last reason
}

// Tenant is notified of segments that are given back. Its methods are called without locks, and
// must not block.
type Tenant interface {
	// Vacate is called once the samples of a segment are no longer located. The tenant calls settled
	// once nothing refers to the segment by number any more, so that it need not stay open, and gone
	// once no process that the tenant has notified of it maps it any more. It calls each once, at
	// once or later, and settled first.
	Vacate(segment uint32, samples []int32, settled, gone func())
	// Refill is called when the memory may grow again after it could not.
	Refill()
	// Delay estimates how long it takes from Vacate until the tenant's processes map the segment no
	// more, if they keep no samples.
	Delay() time.Duration
	// Rank returns how soon the tenant can do without a sample: 0 for the sample that it needs kept
	// most, up to 1 for what it needs kept least, and 2 for what need not be kept. It is a snapshot.
	Rank() func(id int32) float64
}
