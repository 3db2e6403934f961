package transform

import (
	"errors"
	"fmt"
	"image"
)

// Picture converts a result of Worker.Apply back into an image for display: it reverses Normalize
// and converts numbers from 0 to 1 to levels. Views lie side by side. It returns an error for
// arrays and ragged images, and if sample has the wrong length.
func (p *Program) Picture(sample []byte) (*image.NRGBA, error) {
	if p.known.stage == raw {
		return nil, errors.New("an array cannot be shown as a picture")
	}
	if p.Ragged() {
		return nil, errors.New("a ragged image has no fixed size")
	}
	if len(sample) != p.bytes {
		return nil, fmt.Errorf("a sample has %d bytes, not %d", p.bytes, len(sample))
	}
	shown := []known{p.known}
	if p.Views() {
		shown = p.known.views
	}
	width, height := 0, 0
	for i := range shown {
		width += shown[i].width
		height = max(height, shown[i].height)
	}
	picture := image.NewNRGBA(image.Rect(0, 0, width, height))
	left := 0
	for i := range shown {
		k := &shown[i]
		k.target.Draw(picture, image.Rect(left, 0, left+k.width, k.height), sample, k.channels)
		left += k.width
		sample = sample[k.output().Bytes():]
	}
	return picture, nil
}
