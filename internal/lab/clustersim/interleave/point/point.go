// Package point is where goroutines of a simulation yield: the text that package interleave makes
// of a package calls Here before each statement.
//
// Virtual time does not pass while a goroutine yields. Only goroutines of a process with one
// processor may call it, which are not preempted in between.
package point

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
)

var (
	left   atomic.Int64 // points until the next yield; 0 and less: there is none
	mean   int64        // points between two of them
	random *rand.Rand
)

// means are how many points lie between two yields; 0: no goroutine yields. A step in which all
// yield often meets what needs several in a row, and one in which few do lets the others come far.
var means = []int64{0, 10, 30, 100, 300, 1000, 3000, 10000}

// Begin has goroutines yield as a seed has it, and returns the number of points between two yields.
func Begin(seed uint64) int64 {
	random = rand.New(rand.NewPCG(seed, 3))
	mean = means[random.IntN(len(means))]
	draw()
	return mean
}

func draw() {
	if mean == 0 {
		left.Store(0)
		return
	}
	left.Store(1 + int64(random.ExpFloat64()*float64(mean)))
}

// Here is a point at which the goroutine may yield.
func Here() {
	if left.Add(-1) != 0 {
		return
	}
	// The goroutine that yields goes on when no other one can, or, now and then, earlier. What it
	// has not yet done may take several of their steps.
	for times := 1 + random.IntN(3); times > 0; times-- {
		runtime.Gosched()
	}
	draw()
}
