//go:build asan

package pixels

const sanitized = true
