package targets

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Input is one of the fields of a sample that a list of transforms is applied to jointly.
type Input struct {
	// Kind is "image", of which there is at most one; "mask", of its size, whose pixels are numbers;
	// or "boxes" around objects of the image, as JSON, of which there is at most one.
	Kind string
	// Type is that of a mask as it is decoded: uint8, of one byte; bool, of a PNG of one bit; or
	// uint16 or int32, of 16 bits. A sample with another is an error.
	Type pixels.Type
}

// IsMask reports whether it is a mask.
func (i Input) IsMask() bool { return i.Kind == "mask" }

// Inputs is what is known of the fields.
type Inputs struct {
	List  []Input
	Image int // the number of the image, or -1
	Boxes int // the same of boxes
	Mask  pixels.Type
	Typed bool // Mask is the type of all masks in the end
	PIL   bool // see Set.PIL
}

// InputsOf checks the kinds of fields.
func InputsOf(list []Input, pil bool) (*Inputs, error) {
	in := &Inputs{List: list, Image: -1, Boxes: -1, PIL: pil}
	for i, input := range list {
		at := -1
		switch input.Kind {
		case "image":
			at, in.Image = in.Image, i
		case "boxes":
			at, in.Boxes = in.Boxes, i
		case "mask":
		default:
			return nil, fmt.Errorf("kinds: %q is no kind; allowed: image, mask, boxes", input.Kind)
		}
		if at >= 0 {
			return nil, fmt.Errorf("kinds: two fields are of the kind %s; one may be", input.Kind)
		}
	}
	if in.Image < 0 && !slices.ContainsFunc(list, Input.IsMask) {
		return nil, errors.New("kinds: there is neither an image nor a mask")
	}
	return in, nil
}

// First returns the number of the field that the others follow: the image, or else the first mask.
func (in *Inputs) First() int {
	if in.Image >= 0 {
		return in.Image
	}
	return slices.IndexFunc(in.List, Input.IsMask)
}

// InputError is an error of one of several fields, by its number.
type InputError struct {
	Input int
	Err   error
}

// OfInput returns the number of the field.
func (e *InputError) OfInput() int { return e.Input }

func (e *InputError) Error() string { return e.Err.Error() }

func (e *InputError) Unwrap() error { return e.Err }
