//go:build cgo

package pixels

const usesC = true

// kernels returns all implementations that this machine has, Go's first.
func kernels() (all []kernel) {
	for k := inGo; k <= plain+kernel(level); k++ {
		all = append(all, k)
	}
	return all
}
