//go:build !cgo

package pixels

const usesC = false

func kernels() []kernel { return []kernel{inGo} }
