//go:build !cgo

package codec

const jpegExact = false

func setPlain(*Decoder, bool) {}
