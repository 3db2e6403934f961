//go:build !cgo

package transform

// exactJPEG: Go's decoder is near to libjpeg-turbo's; package codec documents how near.
const exactJPEG = false
