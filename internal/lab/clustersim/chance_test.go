//go:build !simulation

package clustersim

// reseed does nothing: only the runtime of repeatable workers can begin its chance anew.
func reseed(uint64) {}
