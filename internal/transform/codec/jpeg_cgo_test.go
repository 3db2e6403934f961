//go:build cgo

package codec

const jpegExact = true
