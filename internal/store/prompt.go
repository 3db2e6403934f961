package store

import "errors"

// Prompt is a Store whose samples lie on a disk, and which can read those that the operating system
// has in memory without waiting for the disk.
type Prompt interface {
	Store
	// ReadNow is Read of a sample for which nothing has to be waited for. It returns ErrWait, and
	// changes nothing but dst, if the disk would have to be asked, or if the sample is not held or
	// its copy is corrupt: then Read answers.
	ReadNow(id int, dst []byte) error
}

// ErrWait reports that a sample cannot be read without waiting.
var ErrWait = errors.New("the sample cannot be read without waiting for its disk")
