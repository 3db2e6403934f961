package source

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Reasons why a dataset cannot be opened. The user can fix all of them; if the source does not
// respond, the reason is ErrUnavailable instead.
var (
	ErrNoDirectory         = errors.New("there is no such directory")
	ErrPlace               = errors.New("it cannot be reached")
	ErrNotDirectory        = errors.New("it is not a directory")
	ErrUnreadableDirectory = errors.New("the directory cannot be read")
	ErrNoClasses           = errors.New("it has no class directories")
	ErrNoSamples           = errors.New("it has no samples")
	ErrUnusable            = errors.New("one of its files cannot be used")
	ErrKind                = errors.New("it is no dataset of this kind")
	ErrEmptyClass          = errors.New("some classes have no samples")
	ErrLinkCycle           = errors.New("a symbolic link leads back to a directory above it")
	ErrUnsettled           = errors.New("its files changed while they were being read")
	ErrExtensions          = errors.New("the list of extensions is invalid")
	ErrFormat              = errors.New("one of its files is not in the format of this kind")
	ErrGivenIndex          = errors.New("the index that was given cannot be used")
	ErrIndexDirectory      = errors.New("its index cannot be kept in the directory given for it")
)

// faultsOfOneFile are the errors that a single file can have while the source is healthy. A stale
// handle is one of a file whose server has replaced it. A lost connection or a missing device
// (ENOTCONN, ENODEV, ETIMEDOUT) is always the source's fault.
var faultsOfOneFile = []error{
	syscall.EIO, syscall.EUCLEAN, syscall.EBADMSG, syscall.ENODATA, syscall.EREMOTEIO,
	syscall.EILSEQ, syscall.ESTALE,
}

// OfOneFile reports whether a system call failed in a way that may be the fault of its file alone.
func OfOneFile(err error) bool {
	return slices.ContainsFunc(faultsOfOneFile, func(own error) bool { return errors.Is(err, own) })
}

// Error reports why a dataset cannot be opened, and what to do.
type Error struct {
	Path string // the directory, or a file in it
	Kind error  // one of the reasons above, or ErrUnavailable
	Hint string // details, and what to do; may be empty
	Err  error  // the underlying error; may be nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("dataset %s: %v", human.Name(e.Path), e.Kind)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

// Unwrap lets errors.Is find both the reason and the underlying error.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}
