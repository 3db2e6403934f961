//go:build asan

package folder

const sanitized = true
