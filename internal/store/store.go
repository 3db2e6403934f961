// Package store defines the storage classes that hold samples on a node: classes 1..J of the
// performance model (thesis 3.1.1), fastest first; class 0, the staging buffer, is package staging.
// Each kind of class is one sub-package; package storetest checks their conformance.
//
// A class keeps one store per dataset, which is evicted as a whole once no job has it open and room
// is needed. Samples stay where they were put: plans are static, so eviction one by one could not
// win. Two things remove samples from an open store. Drop removes those that are corrupt, or that
// no plan places there any more. GiveBack (inplace.go) frees the memory of many when the machine
// runs out of it.
//
// Classes know nothing of sources, plans or jobs.
package store

import (
	"errors"
	"reflect"
	"slices"
)

// Dataset identifies the samples that a store holds and gives their sizes.
type Dataset struct {
	Fingerprint [16]byte           // its version, as source.Index computes it
	Samples     int                // F: IDs are in [0, F)
	Size        func(id int) int64 // bytes of one sample; must be cheap and safe for concurrent use
	// Align is the multiple, a power of 2, at which samples begin in classes that deliver them in
	// place; 0: they begin anywhere.
	Align int64
	// Directory identifies the directory that it is in, by device and inode; zeros: its source has
	// none. Datasets of one directory, kind and description are versions of each other.
	Directory [2]uint64
	About     About // for people and commands
}

// Supersedes reports whether d is another version of older: its directory has other contents now.
func (d *Dataset) Supersedes(older *Dataset) bool {
	return d.Directory == older.Directory && d.Directory != [2]uint64{} &&
		d.Fingerprint != older.Fingerprint && d.About.Kind == older.About.Kind &&
		slices.Equal(d.About.Extensions, older.About.Extensions) &&
		d.About.Manifest == older.About.Manifest &&
		reflect.DeepEqual(d.About.Options, older.About.Options)
}

// About describes a dataset. A class that outlives its process writes the description next to the
// samples, so that one can see which dataset a store belongs to, and compare the two.
type About struct {
	Kind       string // of its source
	Path       string // absolute, as the process that opened the dataset sees it
	Extensions []string
	Options    map[string]any // of its kind, if samples have fields: what it was asked for by
	Manifest   string         // hash of the list of samples that a process gave; "": none did
	List       []byte         // the list
	Bytes      int64          // of all samples
}

// Origin describes what a copy of a sample was made from. A store keeps it with the copy, and does
// not interpret it.
type Origin struct {
	Digest    uint32 // of the sample's bytes (package digest), when they were read from the source
	Directory uint32 // hash of the dataset's directory; 0 if its source has none
	Instance  uint32 // of the file, as in source.Stamp; 0 if its source has none
}

// SameInstance reports whether a copy of this origin was made of the file of a sample whose origin
// would be now if it were read again. It is also if the dataset was moved, or is at another path.
func (o Origin) SameInstance(now Origin) bool { return o.Instance == now.Instance }

// BytesPerSample is the memory that a store takes for each sample of its dataset, held or not: its
// location, its origin, and the form that it is in.
const BytesPerSample = 8 + 4 + 8 + 12

// Class is one storage class of a node, with one store per dataset. All methods are safe for
// concurrent use. Wrong calls return an error: a negative capacity, another number of samples under
// the same fingerprint, a call after Close.
type Class interface {
	// Kind returns the name of the class's kind.
	Kind() string
	// Open returns the dataset's store with a capacity of at least capacity bytes in total,
	// including what it already holds: a store that an earlier job left is reopened with its
	// samples. If it holds samples of more bytes than capacity, the newest are dropped; if it holds
	// some in other forms (Forms), it may have more than capacity. Opening a store that
	// is open returns the same store, its capacity unchanged. If capacity is short, stores of other
	// datasets that no job has open are evicted, least recently opened first; the error is a
	// *LimitError if there is too little even so.
	Open(ds Dataset, capacity int64) (Store, error)
	// Available returns how many bytes a store for ds could have if it were opened now: what is
	// free, what the dataset's own store holds, and what could be evicted; if it is open, its
	// capacity.
	Available(ds Dataset) (int64, error)
	// Close releases the class; it is an error if a store is open.
	Close() error
}

// Store holds the samples of one dataset in one class. All methods are safe for concurrent use. A
// sample that the dataset does not have is one that is not held, and cannot be put; nor can bytes
// of another length than the sample's.
type Store interface {
	// Has reports whether the sample is held.
	Has(id int) bool
	// Held returns the IDs of all samples held, in the order in which they were added.
	Held() []int32
	// Capacity returns the bytes that samples may take in total, and those that they take.
	Capacity() (total, used int64)
	// Put stores a copy of data, whose digest must be the origin's, as the sample. It does nothing
	// if the sample is already held or being put. If there is no room for it, Put returns ErrFull
	// and leaves the store unchanged.
	Put(id int, data []byte, origin Origin) error
	// Origin returns the origin with which the sample was put; ok is false if it is not held.
	Origin(id int) (origin Origin, ok bool)
	// Drop removes samples, which may then be put again. Callers that have a View of one keep it; a
	// Read in progress either succeeds or returns ErrNotHeld. The memory of a store whose samples
	// lie in segments is freed by segment: when the last sample of one was dropped.
	Drop(ids ...int)
	// Read fills dst, whose length must be the sample's size. It returns ErrNotHeld if the sample
	// is not held, ErrForm if it is held in another form than as read, and ErrCorrupt if its checksum
	// was wrong: the store has then dropped it, and it may be put again.
	Read(id int, dst []byte) error
	// Close returns the store to its class, which keeps its samples until the capacity is needed for
	// another dataset. Every Open needs one Close; no method may be called after the last one, but
	// Close, which then returns an error.
	Close() error
}

var (
	ErrFull    = errors.New("the storage class is full")
	ErrNotHeld = errors.New("the storage class does not hold the sample")
	ErrCorrupt = errors.New("the cached copy of the sample is corrupt")
	// ErrForm reports that the sample is held in another form than as read (Forms).
	ErrForm = errors.New("the storage class holds the sample in another form")
)
