package storageclass

// Kind describes a kind of storage class: to the configuration, which checks what users say of one,
// and to the daemon, which makes it. Each is one sub-package, which returns its Kind, and one line
// in the table of cmd/hdmlp/kinds.go.
type Kind struct {
	Name string // as [[storage_class]] has it
	Help string // where samples lie, in one sentence without its full stop
	// Directory: samples lie in a directory, which each class of the kind has for itself; if no
	// capacity is given, it takes what the disk has free. Otherwise they lie in memory, which all
	// such classes share, and the capacity must be given.
	Directory bool
	// SizeKey and PathKey are the configuration keys with which a job asks for one such class
	// without [[storage_class]]: its capacity and, of a kind with a directory, its path. "": there
	// are none.
	SizeKey, PathKey string
	// Held returns the bytes that a class finds in its directory, and may take again. nil: nothing
	// is kept there.
	Held func(dir string) (int64, error)
	// New makes a class. An error says what is wrong with the options, or is a *LimitError.
	New func(o Options) (Class, error)
}

// Options are what the configuration says of one class. A kind without a directory may make one
// class for all.
type Options struct {
	Dir string
	// bytes that samples may take; 0: what the disk has free, less Reserve
	Capacity int64
	Reserve  int64             // bytes of the disk that are left free; 0: the kind's default
	Warn     func(text string) // is told what a user should know; safe for concurrent use
}
