package tree

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
)

// Gone reports whether an error means that the file system is no longer accessible.
func Gone(err error) bool {
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ESTALE) ||
		errors.Is(err, unix.ENODEV)
}

// Kind distinguishes permanent from temporary errors. Unknown errors count as temporary: they are
// retried until the timeout.
func Kind(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return source.ErrMissing
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EISDIR),
		errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL),
		errors.Is(err, unix.ESPIPE), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EXDEV),
		errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EBADF), errors.Is(err, unix.EFBIG),
		errors.Is(err, unix.EOVERFLOW):
		return source.ErrUnreadable
	}
	return source.ErrUnavailable
}
