//go:build asan

package codec

const sanitized = true
