package store

// Kind describes a kind of storage class: to the configuration, which validates its options, and to
// the daemon, which creates classes. Each kind is one sub-package, which returns its Kind, and one
// line in the table of cmd/hdmlp/kinds.go.
type Kind struct {
	Name string // as used in [[storage_class]]
	Help string // where samples are kept, in one sentence without its full stop
	// Directory means that a class keeps its samples in a directory of its own; if no capacity is
	// given, it uses what the disk has free. Otherwise samples lie in memory, which all such
	// classes share, and a capacity must be given.
	Directory bool
	// SizeKey and PathKey are the configuration keys with which a job requests one such class
	// without [[storage_class]]: its capacity and, if Directory is set, its path. "" if there is no
	// such key.
	SizeKey, PathKey string
	// Held returns the bytes that a class finds in its directory and can reuse; nil if the kind
	// keeps nothing there.
	Held func(dir string) (int64, error)
	// Check returns an error if a class cannot use its directory because of what the directory
	// contains; nil if the kind keeps nothing there.
	Check func(dir string) error
	// New creates a class. Its error describes what is wrong with the options, or is a *LimitError.
	New func(o Options) (Class, error)
}

// Options are the configuration of one class. A kind without a directory may use one class for all.
type Options struct {
	Dir string
	// bytes that samples may take; 0: what the disk has free, minus Reserve
	Capacity int64
	Reserve  int64             // bytes of the disk to leave free; 0: the kind's default
	Warn     func(text string) // reports what a user should know; safe for concurrent use
}
