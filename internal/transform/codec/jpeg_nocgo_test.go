//go:build !cgo

package codec

const jpegExact = false
