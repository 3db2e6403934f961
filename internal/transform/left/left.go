// Package left has the reasons for which an image is not made by the daemon, but left to the
// receiver in Python, which decodes and transforms it with PIL and torch.
package left

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// Reasons for delivering an image encoded. The first two are of images in sizes of their own alone.
var (
	ErrLarge = errors.New("the image becomes larger than a ragged one may be")
	ErrOther = errors.New("what its file says beside its pixels changes with them")

	ErrIncomplete = errors.New("a progressive JPEG whose scans are not complete, which releases of " +
		"libjpeg-turbo decode differently")
	// ErrOdd: the receiver would decode the file.
	ErrOdd = errors.New("what its file says beside its pixels may make Pillow refuse it")
	// ErrMode: images are not converted.
	ErrMode = errors.New("its mode in Pillow is not that of the others")
	// ErrRounding is of one sample in 25,000 that are cropped at random.
	ErrRounding = errors.New("what is drawn for it depends on how torch rounds a number")
)

// Foreign reports whether an error means that the receiver may decode the image, with PIL, or does
// so differently, or draws another crop with torch.
func Foreign(err error) bool {
	return errors.Is(err, codec.ErrFormat) || errors.Is(err, codec.ErrUnsupported) ||
		errors.Is(err, codec.ErrAnimated) || errors.Is(err, ErrIncomplete) ||
		errors.Is(err, ErrOdd) || errors.Is(err, ErrMode) || errors.Is(err, ErrRounding) ||
		errors.Is(err, policy.ErrBits)
}

// Error reports that an image is left to the receiver (ImgDecode's leave).
type Error struct{ Why error }

func (e *Error) Error() string { return e.Why.Error() }

func (e *Error) Unwrap() error { return e.Why }

// Usual reports whether the image is like others, and only what is drawn for it is uncertain.
func (e *Error) Usual() bool {
	return errors.Is(e.Why, ErrRounding) || errors.Is(e.Why, policy.ErrBits)
}
