// Package storageclass defines what holds samples on a node: the storage
// classes 1..J of the performance model (thesis 3.1.1), fastest first; class 0,
// the staging buffer, is package staging. Each kind of class is one sub-package;
// conformance is checked by package storageclasstest.
//
// A class keeps one store per dataset. A store only grows: what a policy has
// placed stays until the whole store is evicted, which can happen once no job
// has it open. So a store is an append-only arena, and reading from it needs no
// lock against eviction.
//
// Classes know nothing of sources, plans or jobs.
package storageclass

import (
	"errors"
	"os"
)

// Dataset identifies the samples that a store holds and gives their sizes.
type Dataset struct {
	Fingerprint [16]byte           // its version, as dataset.Index computes it
	Samples     int                // F: IDs are in [0, F)
	Size        func(id int) int64 // bytes of one sample; must be cheap and safe for concurrent use
	About       About              // for people and commands, not for the class
}

// About says what a dataset is. A class that outlives its process writes it beside the samples, so
// that it can be seen what a store belongs to and compared with that.
type About struct {
	Kind       string // of its source
	Path       string // where it lies, as the process that opened it sees it; absolute
	Extensions []string
	Bytes      int64 // of all samples
}

// Origin says what a copy of a sample was made of. A store keeps it with the copy, and does not
// look at it.
type Origin struct {
	Digest   uint32 // of the sample's bytes (package digest), when they were read from the source
	Place    uint32 // hash of the directory that the dataset lay in; 0: its source has none
	Instance uint32 // of the file, as dataset.Stamp has it; 0: its source has none
}

// SameInstance reports whether a copy of this origin counts for a sample whose origin would be now
// if it were read again, in a dataset of the same version. In the same directory the file must be
// the same instance. A copy that was made elsewhere, on another node or before the dataset was
// moved, counts by its dataset's version.
func (o Origin) SameInstance(now Origin) bool {
	return o.Instance == now.Instance || o.Place != now.Place
}

// BytesPerSample is the memory that a store takes for each sample of its dataset, held or not:
// where it lies, and its origin.
const BytesPerSample = 8 + 4 + 8

// Class is one storage class of a node: its samples, one store per dataset.
// All methods are safe for concurrent use.
type Class interface {
	// Kind is the name of the class's kind.
	Kind() string
	// Open returns the dataset's store with room for at least room bytes in
	// all, what it already holds included: a store that is left from an earlier
	// job is found again, warm. If that holds more than room, the class either
	// gives it the room that it has taken, or drops what came last. Opening a
	// store that is open returns the same store once more, its room unchanged.
	// Stores of other datasets that nobody has open are evicted, least recently
	// used first, where room is short; a *LimitError says that there is too little.
	Open(ds Dataset, room int64) (Store, error)
	// Available is how many bytes a store opened now for ds could have:
	// what is free, what the dataset's own store has, and what could be evicted.
	Available(ds Dataset) (int64, error)
	// Close releases everything. No store may be open.
	Close() error
}

// Store holds samples of one dataset in one class. All methods are safe for
// concurrent use.
type Store interface {
	// Has reports whether the sample is held.
	Has(id int) bool
	// Held returns the IDs of all samples held, in the order in which they came.
	Held() []int32
	// Room returns the bytes that samples may take in all, and those taken.
	Room() (total, used int64)
	// Put keeps a copy of data, whose digest must be the origin's, as the sample. Keeping a sample
	// that is already held, or being put, does nothing. ErrFull: there is no room for it, and the
	// store is as before.
	Put(id int, data []byte, origin Origin) error
	// Origin returns what the sample was put with; ok is false where it is not held.
	Origin(id int) (origin Origin, ok bool)
	// Drop forgets the sample, which may then be put again. Who has its bytes in place keeps them.
	Drop(id int)
	// Read fills dst, whose length must be the sample's size. ErrNotHeld: the
	// sample is not here. ErrCorrupt: its checksum was wrong; the store has
	// dropped it, and it may be put again.
	Read(id int, dst []byte) error
	// Close gives the store back to its class, which keeps what it holds until
	// the room is needed for another dataset. Every Open needs one Close, and
	// nothing may be called after the last.
	Close() error
}

// InPlace is implemented by stores whose samples lie in shared memory, so that a
// sample can be read from the source straight into the class, and handed over
// where it lies.
type InPlace interface {
	Store
	// Fill reserves the sample's bytes and calls read with them, which returns their origin; dst is
	// valid until read returns. If read succeeds, the sample is held; if not, its error is
	// returned, the bytes are free again, and nothing is held. It must not be called for a sample
	// that is held or being filled. ErrFull as for Put.
	Fill(id int, read func(dst []byte) (Origin, error)) error
	// Locate gives the sample's offset in the segment; its length is the
	// sample's size. ok is false where the sample is not held.
	Locate(id int) (offset int64, ok bool)
	// View returns the sample where it lies. It must not be changed, and is valid until the store
	// is closed. ok is false where the sample is not held.
	View(id int) (data []byte, ok bool)
	// Segment returns the memfd that the samples lie in, sealed so that other
	// processes can map it for reading only, and its size. It belongs to the
	// store and stays open until the store is evicted.
	Segment() (memfd *os.File, size int64)
}

var (
	ErrFull    = errors.New("the storage class is full")
	ErrNotHeld = errors.New("the storage class does not hold the sample")
	ErrCorrupt = errors.New("the cached copy of the sample is corrupt")
)
