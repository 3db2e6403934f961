package source

// Object is something that a dataset is stored in and that is replaced as a whole: a file, or an
// object of a store.
type Object struct {
	Name  string // its path below the dataset's root, or its key below the prefix, with slashes
	Size  int64  // bytes
	Stamp Stamp  // what a change of it changes; 0: unknown
	// Modified is its modification time, in nanoseconds since 1970; 0: unknown.
	Modified int64
	// Tag is the hash of what its store identifies its contents by (the ETag); zero: there is none.
	Tag [16]byte
}

// Range is a range of an object's bytes.
type Range struct {
	Object int   // its number in the index
	Offset int64 // bytes
	Length int64 // bytes; Missing: the sample does not have the field
}
