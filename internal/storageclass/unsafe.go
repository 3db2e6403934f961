package storageclass

import "github.com/hdmlp/hdmlp/internal/printable"

// UnsafeError refuses a place that other users could have written to, or that is
// not what it should be: what is read there might be theirs, and what is written there
// might go elsewhere.
type UnsafeError struct {
	Path   string // the directory or file
	Reason string // what is wrong with it: "belongs to user 1001 (mode 0755), ..."
	Hint   string // what a user can do
}

func (e *UnsafeError) Error() string {
	return printable.Name(e.Path) + " " + e.Reason + "; " + e.Hint
}
