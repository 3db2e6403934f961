//go:build cgo

package forms

const canConvert = true
