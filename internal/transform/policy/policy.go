// Package policy has augmentation policies: torchvision's RandAugment, TrivialAugmentWide and
// AutoAugment, and timm's. A policy draws operations on an image of a known size, whose pixels it
// does not need; package transform carries them out.
package policy

import (
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/random"
)

// A Policy draws the operations for an image. It is immutable.
type Policy interface {
	// Draw calls act with each operation in order, for an image of width x height pixels, as soon
	// as it is drawn. It returns the first error of act, or ErrBits.
	Draw(d *random.Draws, width, height int, act func(*Action) error) error
	// Channels returns how many channels images must have at least: 3 if a fill has three levels.
	Channels() int
}

// Kind is what an Action does.
type Kind uint8

// Kinds of actions.
const (
	Nothing Kind = iota
	Move         // an affine transform
	Rotate
	Brightness
	Color
	Contrast
	Sharpness
	Posterize
	Solarize
	SolarizeAdd
	AutoContrast
	Equalize
	Invert
	Blur
	Gray // in as many channels as there are
	Hue  // drawn by no policy, but by ColorJitter
)

// An Action is an operation of PIL with its arguments.
type Action struct {
	Kind Kind
	Name string // the operation's in its library
	// Amount is what PIL's function takes: a factor, bits, a level, degrees, a radius.
	Amount float64
	Matrix [6]float64 // of Move
	Filter pixels.Filter
	Fill   [3]byte
	// Unsure reports that torch may round a number of it otherwise.
	Unsure bool
}

// Fill is the argument fill of operations that move pixels.
type Fill struct {
	Levels [3]byte
	One    bool // one level for all channels
}

// filters are those of operations that move pixels.
var filters = map[string]pixels.Filter{
	"nearest": pixels.Nearest, "bilinear": pixels.Bilinear, "bicubic": pixels.Bicubic,
}
