//go:build simulation

package clustersim

import _ "unsafe" // for linkname

// simulationSeed is added to package runtime by an overlay (overlay_test.go).
//
//go:linkname simulationSeed runtime.simulationSeed
func simulationSeed(seed uint64)

func reseed(seed uint64) { simulationSeed(seed) }
