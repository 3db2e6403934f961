package dataset

import (
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/printable"
)

// Reasons for which a dataset cannot be opened. All are the user's to mend;
// where the source does not answer, the reason is ErrUnavailable instead.
var (
	ErrNoDirectory         = errors.New("there is no such directory")
	ErrNotDirectory        = errors.New("it is not a directory")
	ErrUnreadableDirectory = errors.New("the directory cannot be read")
	ErrNoClasses           = errors.New("there are no classes in it")
	ErrEmptyClass          = errors.New("there are classes without samples")
	ErrLinkCycle           = errors.New("a symbolic link leads back to a directory above it")
	ErrUnsettled           = errors.New("its files change while they are listed")
	ErrExtensions          = errors.New("the list of extensions is wrong")
	ErrFormat              = errors.New("a file in it does not have the format of this kind")
)

// Error says why a dataset cannot be opened, and what to do.
type Error struct {
	Path string // the directory
	Kind error  // one of the reasons above, or ErrUnavailable
	Hint string // which ones, and what to do; may be empty
	Err  error  // what the system said; may be nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("dataset %s: %v", printable.Name(e.Path), e.Kind)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

// Unwrap lets errors.Is find both the reason and what the system said.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}
