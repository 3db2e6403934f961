package store

import "github.com/hdmlp/hdmlp/internal/lib/human"

// UnsafeError refuses a file or directory to which other users could have written, or that is not
// of the expected type: what is read there could be theirs, and what is written there could end up
// elsewhere.
type UnsafeError struct {
	Path   string // the file or directory
	Reason string // what is wrong with it: "belongs to user 1001 (mode 0755), ..."
	Hint   string // what a user can do
}

func (e *UnsafeError) Error() string {
	return human.Name(e.Path) + " " + e.Reason + "; " + e.Hint
}
