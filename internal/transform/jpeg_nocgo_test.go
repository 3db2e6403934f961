//go:build !cgo

package transform

// exactJPEG: Go's decoder is near to libjpeg-turbo's; package codec says how near.
const exactJPEG = false
