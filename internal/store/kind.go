package store

import "github.com/hdmlp/hdmlp/internal/lib/option"

// Kind describes a kind of storage class: to the configuration, which reads and checks its options,
// and to the daemon, which creates classes. Each kind is one sub-package, which returns its Kind,
// and one line in the table of cmd/hdmlp/kinds.go.
type Kind struct {
	Name string // as used in [[storage_class]]
	Help string // where samples are kept, in one sentence without its full stop
	// Options are what a class of this kind is configured by, besides what all classes have: their
	// kind, and how many samples are read and written at the same time and how fast. One of them is
	// CapacityKey.
	Options []Option
	// Memory means that samples take this host's memory, which all such classes share.
	Memory bool
	// Held returns the bytes that a class finds in its directory and can reuse; nil if the kind
	// keeps nothing there.
	Held func(dir string) (int64, error)
	// Reserve returns how many bytes of a disk of that size a class leaves free by default; nil if
	// it has no disk.
	Reserve func(total int64) int64
	// Check returns an error if a class cannot use its directory because of what the directory
	// contains; nil if the kind keeps nothing there.
	Check func(dir string) error
	// New creates a class. Its error describes what is wrong with the options, or is a *LimitError.
	New func(o Options) (Class, error)
}

// Keys of options that mean the same in all kinds which have them.
const (
	// CapacityKey is a size: how many bytes samples may take. If the kind does not require it, 0 is
	// what the disk has free, minus the reserve.
	CapacityKey = "capacity"
	// PathKey is the path of a directory that no other class has. No two classes of a kind without
	// it are made: one serves all jobs.
	PathKey = "path"
	// ReserveKey is a size: how many bytes to leave free on the directory's disk; 0: the kind's
	// default.
	ReserveKey = "reserve"
)

// Option is an option of a kind. It is a key of the kind's [[storage_class]] entries, unless it is
// Shared.
type Option struct {
	// Option's Job is for the one class of the kind that a job without entries may have. It has
	// that class if the job's key of a required option has a value.
	option.Option
	// Shared means that Job gives the option of classes in entries, too.
	Shared  bool
	Example string // as an entry may have it
}

// Options are the options of one class. A kind without a directory may use one class for all.
type Options struct {
	Values option.Values
	Warn   func(text string) // reports what a user should know; safe for concurrent use
}

// Has reports whether the kind has an option of this key.
func (k Kind) Has(key string) bool {
	for i := range k.Options {
		if k.Options[i].Key == key {
			return true
		}
	}
	return false
}
