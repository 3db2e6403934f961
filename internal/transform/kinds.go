package transform

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/transform/describe"
)

// kinds lists all transforms, in the order of the documentation.
var kinds = slices.Concat([]kind{
	imgDecode,
	resize,
	centerCrop,
	randomCrop,
	randomResizedCrop,
	randomHorizontalFlip,
	randomVerticalFlip,
	pad,
	colorJitter,
	randomPhotometricDistort,
	grayscale,
}, planning(), []kind{
	randomRotation,
	randomPerspective,
	gaussianBlur,
	randomApply,
	randomOrder,
	randomChoice,
	toTensor,
	convertImageDtype,
	normalize,
	randomErasing,
	timmRandomErasing,
	views,
}, targeting(), []kind{
	scaleShift16,
	reshape,
	pixelsOf,
	ragged,
})

// A kind is an entry of the table of transforms.
type kind struct {
	name   string
	help   string // what it does, in a line; "" if torchvision has it
	params []param
	joint  jointly
	build  func(a *arguments) step
}

// jointly is whether a transform may be in a list for several kinds of fields.
type jointly uint8

const (
	refused  jointly = iota
	ofImages         // it may, and changes only images
	ofAll
)

// param is a parameter of a transform.
type param = describe.Param

// arguments holds the arguments that a description gives to one transform.
type arguments struct {
	describe.Arguments
	// nested builds entry i of a list of transforms in an argument, as build does.
	nested func(i int, entry map[string]json.RawMessage) (step, string, []error)
}

// arguments returns the arguments that an object of a description gives to a transform.
func (k *kind) arguments(place string, given map[string]json.RawMessage) *arguments {
	return &arguments{
		Arguments: describe.Arguments{Place: place, Params: k.params, Given: given},
	}
}

// Parse converts a list of transforms, written as in a Python script, into a description for
// Compile, which validates it:
//
//	RandomResizedCrop(224, scale=(0.5, 1)), RandomHorizontalFlip(), ToTensor()
func Parse(text string) ([]byte, error) {
	return describe.Parse(text, func(name string) ([]describe.Param, error) {
		k, err := kindOf(name)
		if err != nil {
			return nil, err
		}
		return k.params, nil
	})
}

// kindOf returns the transform of that name, or an error that suggests a similar one.
func kindOf(name string) (*kind, error) {
	for i := range kinds {
		if kinds[i].name == name {
			return &kinds[i], nil
		}
	}
	names := Names()
	return nil, fmt.Errorf("unknown transform %s%s; known transforms: %s",
		strconv.Quote(describe.Abbreviate(name)), human.Nearest(name, names), strings.Join(names, ", "))
}

// Help returns what the transform of that name does; "" for torchvision's.
func Help(name string) string {
	for i := range kinds {
		if kinds[i].name == name {
			return kinds[i].help
		}
	}
	return ""
}

// Names returns the names of all transforms, in the order of the documentation.
func Names() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}
