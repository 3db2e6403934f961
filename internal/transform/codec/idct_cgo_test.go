//go:build cgo

package codec

import (
	"math/rand/v2"
	"testing"
)

// TestSamplesOfRandomJPEGs: our inverse DCT gives what libjpeg's does, also where 16 bits overflow.
func TestSamplesOfRandomJPEGs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	d := newTwoDecoders(t)
	for i := range 600 {
		if says := d.difference(randomJPEG(t, r), Want{}); says != "" {
			t.Errorf("random JPEG %d: %s", i, says)
		}
	}
}
