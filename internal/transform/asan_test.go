//go:build asan

package transform

const sanitized = true
