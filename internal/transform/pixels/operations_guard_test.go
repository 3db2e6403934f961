//go:build cgo && linux

package pixels

import (
	"math/rand/v2"
	"testing"
)

// TestOperationsStayInside: no kernel touches what lies before or after an image or its result.
func TestOperationsStayInside(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	edges := []int{1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 21, 22, 33, 64, 70}
	images := 60
	if sanitized || testing.Short() {
		images = 10
	}
	for i := range images {
		width := edges[r.IntN(len(edges))]
		height := edges[r.IntN(len(edges))]
		channels := 1 + i/2%2*2
		src := guardedImage(t, r, width, height, channels, r.IntN(2)*5, i%2 == 0)
		n := numbers{r, 5}
		for _, o := range append(n.operations(width, height), n.convolutions()...) {
			var want Image
			if o.run(&Editor{kernel: inGo}, &want, &src) != nil {
				continue
			}
			to := guardedResult(t, len(want.Pix), i%2 == 0)
			for k := plain; k <= plain+kernel(level); k++ {
				got := Image{Pix: to}
				if err := o.run(&Editor{kernel: k}, &got, &src); err != nil {
					t.Fatal(err)
				}
				if string(got.Pix) != string(want.Pix) {
					t.Errorf("kernel %d, %dx%dx%d, %s%v: something else than Go's", k, width, height,
						channels, o.name, o.args)
				}
			}
		}
	}
}

// results are guarded bytes of earlier results, by their number and place.
type resultKey struct {
	n     int
	atEnd bool
}

var results = map[resultKey][]byte{}

func guardedResult(t *testing.T, n int, atEnd bool) []byte {
	key := resultKey{n, atEnd}
	if results[key] == nil {
		results[key] = guarded(t, n, atEnd)
	}
	return results[key]
}
