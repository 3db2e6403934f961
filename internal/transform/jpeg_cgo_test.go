//go:build cgo

package transform

// exactJPEG: JPEGs are decoded by libjpeg-turbo, as PIL does.
const exactJPEG = true
