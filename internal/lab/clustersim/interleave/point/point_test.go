package point_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/interleave/point"
)

func TestVirtualTimeDoesNotPassWhileAGoroutineYields(t *testing.T) {
	seed := uint64(1)
	for ; point.Begin(seed) != 10; seed++ { // points between two yields
	}
	synctest.Test(t, func(t *testing.T) {
		began, met := time.Now(), 0
		go func() {
			for range 1000 {
				point.Here()
				met++
			}
		}()
		for range 1000 {
			point.Here()
		}
		synctest.Wait()
		if time.Since(began) > 0 || met != 1000 {
			t.Errorf("%v passed; the other goroutine met %d points", time.Since(began), met)
		}
	})
	for ; point.Begin(seed) != 0; seed++ { // none yields
	}
}
